"""Minibatches that stay sparse from the AnnData to the loss; in stages, of what was computed of the cells once."""

from collections.abc import Callable, Iterator

import torch
from scvi.dataloaders import AnnDataLoader, DataSplitter
from torch import Tensor

from ._block_loader import BlockLoader, cell_loader

Minibatch = dict[str, Tensor]


class SparseDataSplitter(DataSplitter):
    """Split cells as scvi-tools does, but keep sparse minibatches sparse, and read counts on disk in blocks."""

    data_loader_cls = staticmethod(cell_loader)

    def setup(self, stage: str | None = None) -> None:
        """Split the cells, once: the network starts from the training cells before Lightning asks for them."""
        if not hasattr(self, "train_idx"):
            super().setup(stage)

    def val_dataloader(self) -> AnnDataLoader | BlockLoader | list:
        """Held-out minibatches; an empty list where no cell is held out."""
        loader = super().val_dataloader()
        if loader is None:
            return []
        loader.generator = torch.Generator()  # loaders draw a number, by which validation would change the training
        return loader

    def on_after_batch_transfer(self, batch: Minibatch, dataloader_idx: int) -> Minibatch:
        """Hand the batch on as it is."""
        return batch


class StagedLoader:
    """A loader that can compute something of every minibatch once, and hand out that, shuffled or not, from then on."""

    def __init__(self, loader: AnnDataLoader | BlockLoader, *, shuffle: bool) -> None:
        self.loader = loader
        self.shuffle = shuffle
        self.cached: Minibatch | None = None

    def __len__(self) -> int:
        """Number of minibatches."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Minibatch]:
        """Minibatches of what is handed out now."""
        if self.cached is None:
            yield from self.loader
            return
        n_cells = len(next(iter(self.cached.values())))
        order = torch.randperm(n_cells) if self.shuffle else torch.arange(n_cells)
        for rows in order.tensor_split(len(self)):
            yield {key: values[rows] for key, values in self.cached.items()}

    def cache(self, compute: Callable[[Minibatch], Minibatch]) -> Minibatch:
        """Compute something of every minibatch, a row a cell, and hand it out from now on; also returned, whole."""
        parts = [compute(batch) for batch in self.loader]
        self.cached = {key: torch.cat([part[key].cpu() for part in parts]) for key in parts[0]}
        return self.cached


class StagedDataSplitter(SparseDataSplitter):
    """The same for training in stages, of which later ones need not look at the counts."""

    def train_dataloader(self) -> StagedLoader:
        """Minibatches to train on."""
        return StagedLoader(super().train_dataloader(), shuffle=True)

    def val_dataloader(self) -> StagedLoader | list:
        """Held-out minibatches; an empty list where no cell is held out."""
        loader = super().val_dataloader()
        return [] if isinstance(loader, list) else StagedLoader(loader, shuffle=False)
