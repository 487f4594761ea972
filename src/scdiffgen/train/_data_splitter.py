"""Minibatches that stay sparse from the AnnData, in memory or on disk, to the loss."""

from __future__ import annotations

from scvi.dataloaders import AnnDataLoader, DataSplitter
from torch import Tensor

from ._block_loader import BlockLoader, cell_loader
from ._staged_loader import StagedLoader


class SparseDataSplitter(DataSplitter):
    """Like :class:`scvi.dataloaders.DataSplitter`, but what is loaded sparse is not made dense.

    Counts on disk are read in blocks, :class:`BlockLoader`.
    """

    data_loader_cls = staticmethod(cell_loader)

    def val_dataloader(self) -> AnnDataLoader | BlockLoader | list:
        """Held-out minibatches; an empty list where no cell is held out."""
        loader = super().val_dataloader()
        return [] if loader is None else loader

    def on_after_batch_transfer(self, batch: dict[str, Tensor], dataloader_idx: int) -> dict[str, Tensor]:
        """Hand the batch on as it is."""
        return batch


class StagedDataSplitter(SparseDataSplitter):
    """The same for training in stages, of which later ones need not look at the counts."""

    def train_dataloader(self) -> StagedLoader:
        """Minibatches to train on."""
        return StagedLoader(super().train_dataloader(), shuffle=True)

    def val_dataloader(self) -> StagedLoader | list:
        """Held-out minibatches; an empty list where no cell is held out."""
        loader = super().val_dataloader()
        return [] if isinstance(loader, list) else StagedLoader(loader, shuffle=False)
