"""Minibatches that stay sparse from the AnnData to the loss."""

from __future__ import annotations

from scvi.dataloaders import AnnDataLoader, DataSplitter
from torch import Tensor


class SparseDataSplitter(DataSplitter):
    """Like :class:`scvi.dataloaders.DataSplitter`, but what is loaded sparse is not made dense."""

    def val_dataloader(self) -> AnnDataLoader | list:
        """Held-out minibatches; an empty list where no cell is held out."""
        loader = super().val_dataloader()
        return [] if loader is None else loader

    def on_after_batch_transfer(self, batch: dict[str, Tensor], dataloader_idx: int) -> dict[str, Tensor]:
        """Hand the batch on as it is."""
        return batch
