"""What is written into an AnnData, that nothing else is touched, and that scanpy draws it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import torch
from anndata import AnnData, read_h5ad
from scipy import sparse
from small_cells import simulated_cells, trained_model

from scdiffgen.model import TokenDiffusion
from scdiffgen.model._token_mixin import TokenReader
from scdiffgen.tl import token_associations

KEYS = ["X_generated", "X_tokens", "X_token_activation", "token_loadings"]


def own(slot: Iterable[str]) -> set[str]:
    """Keys that do not belong to scvi-tools."""
    return {key for key in slot if not key.startswith("_scvi")}


@pytest.fixture
def written(small: TokenDiffusion) -> AnnData:
    adata = simulated_cells(60, seed=3)
    small.write_back(adata, n_steps=4, seed=0, silent=True)
    return adata


def test_every_key_has_its_place_shape_and_type(written: AnnData) -> None:
    twins = written.obsm["X_generated"]
    assert sparse.issparse(twins) and twins.format == "csr" and twins.dtype == np.int32 and twins.shape == (60, 20)
    assert written.obsm["X_tokens"].shape == (60, 16)
    assert written.obsm["X_token_activation"].shape == (60, 2)
    assert written.varm["token_loadings"].shape == (20, 2)
    for values in (written.obsm["X_tokens"], written.obsm["X_token_activation"], written.varm["token_loadings"]):
        assert type(values) is np.ndarray and values.dtype == np.float32 and np.isfinite(values).all()


def test_what_is_written_is_what_the_methods_return(written: AnnData, small: TokenDiffusion) -> None:
    np.testing.assert_array_equal(written.obsm["X_tokens"], small.get_latent_representation(written))
    np.testing.assert_array_equal(written.obsm["X_token_activation"], small.get_token_activation(written))
    np.testing.assert_array_equal(written.varm["token_loadings"], small.get_token_loadings())
    np.testing.assert_array_equal(written.varm["token_log_rates"], small.get_token_loadings(method="readout"))
    about = written.uns["scdiffgen"]
    assert about["tokens"].tolist() == ["token_1", "token_2"]
    np.testing.assert_allclose(about["explained"].sum(), 1)


def test_tokens_stored_in_half_the_memory_are_off_by_what_is_stated(
    written: AnnData, small: TokenDiffusion, tmp_path: Path
) -> None:
    adata = simulated_cells(60, seed=3)
    small.write_back(adata, keys=KEYS[1:], dtype="float16", silent=True)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    adata = read_h5ad(tmp_path / "cells.h5ad")
    for key in ("X_tokens", "X_token_activation"):
        exact, half = written.obsm[key], adata.obsm[key]
        assert half.dtype == np.float16
        error = np.abs(half.astype(np.float64) - exact)
        assert 0 < error.max()
        assert (error <= np.maximum(2.0**-11 * np.abs(exact), 3e-8)).all()
    np.testing.assert_array_equal(adata.varm["token_loadings"], written.varm["token_loadings"])
    associations = [token_associations(cells, "cell_type") for cells in (adata, written)]
    pd.testing.assert_frame_equal(*associations, rtol=1e-2)
    sc.pp.neighbors(adata, use_rep="X_tokens", n_neighbors=5)
    sc.pl.embedding(adata, "X_token_activation", color="cell_type", show=False)
    plt.close("all")


def test_what_half_the_memory_does_not_hold_is_refused(small: TokenDiffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    adata = simulated_cells(5)
    with pytest.raises(ValueError, match=r"`dtype` is 'int8': choose from \['float32', 'float16'\]"):
        small.write_back(adata, dtype="int8")
    monkeypatch.setattr(type(small.module), "tokens", lambda *_: torch.full((5, 2, 8), -1e5))
    with pytest.raises(ValueError, match="too small for a token of 100000: pass 'float32'"):
        small.write_back(adata, keys=["X_tokens"], dtype="float16")
    assert not own(adata.obsm)


def test_twins_have_the_depth_and_the_label_of_their_cells(written: AnnData) -> None:
    twins = np.asarray(written.obsm["X_generated"].todense())
    np.testing.assert_array_equal(twins.sum(1), written.X.sum(1))
    assert (twins != written.X).any()
    labels = written.obs["cell_type"].to_numpy()
    means = {label: written.X[labels == label].sum(0) for label in "ab"}
    for label, other in ("ab", "ba"):
        made = twins[labels == label].sum(0)
        assert np.corrcoef(made, means[label])[0, 1] > np.corrcoef(made, means[other])[0, 1]


@pytest.mark.parametrize("keys", [["token_loadings"], ["X_tokens", "X_generated"], "X_token_activation", []])
def test_only_what_is_asked_for_is_written(keys: Any, small: TokenDiffusion) -> None:
    adata, before = simulated_cells(20, seed=3), simulated_cells(20, seed=3)
    for each in (adata, before):
        each.obsm["X_pca"], each.varm["PCs"] = np.ones((20, 2)), np.ones((20, 2))
        each.layers["raw"], each.uns["note"] = each.X.copy(), "mine"
    small.write_back(adata, keys=keys, n_steps=2, silent=True)
    asked = [keys] if isinstance(keys, str) else keys
    beside = {"token_log_rates"} if "token_loadings" in asked else set()
    assert own(adata.obsm) | own(adata.varm) == {"X_pca", "PCs", *asked, *beside}
    assert own(adata.uns) == {"note", "scdiffgen"}
    np.testing.assert_array_equal(adata.X, before.X)
    np.testing.assert_array_equal(adata.layers["raw"], before.layers["raw"])
    pd.testing.assert_frame_equal(adata.var, before.var)
    pd.testing.assert_frame_equal(adata.obs[list(before.obs)], before.obs)
    assert own(adata.obs) == {*before.obs}


def test_nothing_is_written_when_something_fails(small: TokenDiffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    adata = simulated_cells(20, seed=3)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(TokenReader, "activation_of", fail)
    with pytest.raises(RuntimeError, match="broken"):
        small.write_back(adata, n_steps=2, silent=True)
    assert not own(adata.obsm) and not adata.varm and not own(adata.uns)


def test_by_default_results_go_to_the_cells_of_the_model() -> None:
    model = trained_model(simulated_cells(), labels_key="cell_type")
    model.write_back(n_steps=2, silent=True)
    assert own(model.adata.obsm) | own(model.adata.varm) == {*KEYS, "token_log_rates"}


def test_results_survive_a_file(written: AnnData, tmp_path) -> None:
    written.write_h5ad(tmp_path / "cells.h5ad")
    read = read_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(read.obsm["X_generated"].toarray(), written.obsm["X_generated"].toarray())
    np.testing.assert_array_equal(read.varm["token_loadings"], written.varm["token_loadings"])
    assert read.uns["scdiffgen"]["tokens"].tolist() == ["token_1", "token_2"]


def test_scanpy_draws_loadings_and_activations(written: AnnData) -> None:
    sc.pl.ranking(written, "varm", "token_loadings", indices=[0, 1], n_points=5, show=False)
    figure = plt.gcf()
    drawn = [{text.get_text() for text in axes.texts} for axes in figure.axes]
    for token, genes in enumerate(drawn):
        best = written.var_names[np.argsort(-written.varm["token_loadings"][:, token])[:5]]
        assert {*best} <= genes
    plt.close(figure)
    axes = sc.pl.embedding(written, "X_token_activation", color="cell_type", show=False)
    points = np.concatenate([collection.get_offsets() for collection in axes.collections])
    assert {tuple(point) for point in points.round(4)} == {
        tuple(point) for point in written.obsm["X_token_activation"].astype(float).round(4)
    }
    plt.close(axes.figure)
    sc.pp.neighbors(written, use_rep="X_tokens", n_neighbors=5)
