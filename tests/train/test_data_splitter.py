"""Sparse minibatches against scvi-tools' dense ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scvi
import torch
from scipy import sparse
from scvi.dataloaders import DataSplitter
from small_cells import simulated_cells, small_model

from scdiffgen.train import SparseDataSplitter


def batches(splitter: DataSplitter) -> list[dict[str, torch.Tensor]]:
    splitter.setup()
    torch.manual_seed(0)
    return [splitter.on_after_batch_transfer(batch, 0) for batch in splitter.train_dataloader()]


@pytest.mark.parametrize("layout", [sparse.csr_matrix, np.asarray])
def test_minibatches_hold_the_same_numbers_as_scvi_tools_dense_ones(layout: Callable[[Any], Any]) -> None:
    adata = simulated_cells()
    adata.X = layout(adata.X)
    manager = small_model(adata).adata_manager
    scvi.settings.seed = 0
    ours = batches(SparseDataSplitter(manager, batch_size=32, load_sparse_tensor=True))
    scvis = batches(DataSplitter(manager, batch_size=32, load_sparse_tensor=False))
    assert len(ours) == len(scvis) == 3
    for batch, dense in zip(ours, scvis, strict=True):
        assert batch["X"].layout == (torch.strided if layout is np.asarray else torch.sparse_csr)
        torch.testing.assert_close(batch["X"].to_dense(), dense["X"])
        torch.testing.assert_close(batch["labels"], dense["labels"])
