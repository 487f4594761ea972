"""Cells in whichever matrix, file, order or part they come: the same answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData, read_h5ad
from scipy import sparse
from small_cells import simulated_cells, trained_model

from scdiffgen.model import TokenDiffusion

MATRICES: dict[str, Callable[[np.ndarray], Any]] = {
    "CSR matrix": sparse.csr_matrix,
    "CSC array": sparse.csc_array,
    "int64": lambda counts: counts.astype(np.int64),
}


def tokens(model: TokenDiffusion, adata: AnnData | None = None, **arguments: Any) -> np.ndarray:
    return model.get_latent_representation(adata, silent=True, **arguments)


def test_every_matrix_trains_the_same() -> None:
    losses = []
    for convert in (np.asarray, *MATRICES.values()):
        adata = simulated_cells()
        adata.X = convert(adata.X)
        model = trained_model(adata, 2, labels_key="cell_type")
        losses.append(model.history["train_loss"].to_numpy(float))
    np.testing.assert_allclose(losses, np.broadcast_to(losses[0], np.shape(losses)), rtol=1e-5)


@pytest.fixture(params=["dense", "CSR matrix"])
def backed(request: pytest.FixtureRequest, tmp_path: Path) -> AnnData:
    """The cells of the small model, on disk."""
    adata = simulated_cells(120)
    adata.X = MATRICES.get(request.param, np.asarray)(adata.X)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    return read_h5ad(tmp_path / "cells.h5ad", backed="r")


ORDERS: dict[str, Any] = {
    "any order": [70, 3, 40, 7, 110],
    "from the end": [-1, 3, -120],
    "a mask": np.arange(120) % 7 == 0,
    "a series": pd.Series([9, 4]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_cells_come_back_in_the_order_they_are_asked_for(name: str, small: TokenDiffusion) -> None:
    chosen, names = ORDERS[name], small.adata.obs_names
    expected = np.asarray(names[np.asarray(chosen)])
    asked = {"indices": chosen, "batch_size": 2, "silent": True}
    np.testing.assert_allclose(tokens(small, indices=chosen, batch_size=2), tokens(small)[chosen], atol=1e-5)
    assert small.get_token_activation(**asked).index.tolist() == expected.tolist()
    assert small.get_nll_bound(**asked, n_draws=1).index.tolist() == expected.tolist()
    deeper = small.deepen(factor=1.0, n_steps=2, **asked)
    np.testing.assert_array_equal(deeper.X.toarray(), small.adata.X[chosen])
    assert deeper.obs_names.tolist() == expected.tolist()


def test_a_cell_may_be_asked_for_twice(small: TokenDiffusion) -> None:
    np.testing.assert_allclose(tokens(small, indices=[3, 3, 1]), tokens(small)[[3, 3, 1]], atol=1e-5)
    deeper = small.deepen(indices=[3, 3], factor=3, n_steps=2, seed=0, silent=True)
    assert (deeper.X[0] != deeper.X[1]).nnz  # two draws, not one twice


def test_a_model_trains_on_cells_on_disk(backed: AnnData) -> None:
    model = trained_model(backed, 2, labels_key="cell_type")
    np.testing.assert_array_equal(np.sort(model.training_summary_["library"]), np.sort(simulated_cells(120).X.sum(1)))
    assert np.isfinite(model.get_nll_bound(silent=True)["nll"]).all()
    assert len(model.differential_expression(groupby="cell_type", n_samples_overall=20, silent=True)) == 40


def test_the_registration_can_be_looked_at(small: TokenDiffusion, capsys: pytest.CaptureFixture[str]) -> None:
    small.view_anndata_setup()
    shown = capsys.readouterr().out
    assert "cell_type" in shown and "TokenDiffusion.setup_anndata" in shown
    print(small)
    assert "2 tokens of 8" in capsys.readouterr().out
