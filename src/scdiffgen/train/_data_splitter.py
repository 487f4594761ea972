"""Data splitters with sparse minibatches, and with cached features for training in stages."""

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import cast

import torch
from scvi.dataloaders import AnnDataLoader, DataSplitter
from torch import Tensor

from ._block_loader import BlockLoader, cell_loader

Minibatch = dict[str, Tensor]


class SparseDataSplitter(DataSplitter):
    """scvi-tools' data splitter, with minibatches that stay sparse, and block-wise reading of counts on disk."""

    data_loader_cls = staticmethod(cell_loader)

    def setup(self, stage: str | None = None) -> None:
        """Split the cells once, because the network is initialised from training cells before Lightning calls this."""
        if not hasattr(self, "train_idx"):
            super().setup(stage)

    def val_dataloader(self) -> AnnDataLoader | BlockLoader | list:
        """Return held-out minibatches, or an empty list if no cell is held out."""
        loader = super().val_dataloader()
        if loader is None:
            return []
        loader.generator = torch.Generator()  # otherwise validation would draw from the generator of the training
        return loader

    def on_after_batch_transfer(self, batch: Minibatch, dataloader_idx: int) -> Minibatch:
        return batch


class StagedLoader:
    """Loader that can compute features of all minibatches once, and yield minibatches of the features afterwards."""

    def __init__(self, loader: Iterable[Minibatch], *, shuffle: bool) -> None:
        self.loader = loader
        self.shuffle = shuffle
        self.cached: Minibatch | None = None
        self.n_cached = 0

    def __len__(self) -> int:
        return self.n_cached or len(cast("Sized", self.loader))

    def __iter__(self) -> Iterator[Minibatch]:
        """Yield minibatches of cells, or of the features once they are cached."""
        if self.cached is None:
            yield from self.loader
            return
        n_cells = len(next(iter(self.cached.values())))
        order = torch.randperm(n_cells) if self.shuffle else torch.arange(n_cells)
        for rows in order.tensor_split(len(self)):
            yield {key: values[rows] for key, values in self.cached.items()}

    def cache(self, compute: Callable[[Minibatch], Minibatch]) -> Minibatch:
        """Compute features of all cells, cache them for later iterations, and return them; one row per cell."""
        parts = [compute(batch) for batch in self.loader]
        self.n_cached = len(parts)
        self.cached = {key: torch.cat([part[key].cpu() for part in parts]) for key in parts[0]}
        return self.cached


class StagedDataSplitter(SparseDataSplitter):
    """Data splitter for training in stages, with later stages that need no counts."""

    def train_dataloader(self) -> StagedLoader:
        return StagedLoader(super().train_dataloader(), shuffle=True)

    def val_dataloader(self) -> StagedLoader | list:
        """Return held-out minibatches, or an empty list if no cell is held out."""
        loader = super().val_dataloader()
        return [] if isinstance(loader, list) else StagedLoader(loader, shuffle=False)
