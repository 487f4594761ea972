"""Training from a registry and a data module, without an AnnData."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scvi
import torch
from anndata import AnnData
from lightning.pytorch import LightningDataModule
from mudata import MuData
from scipy import sparse, stats
from small_cells import QUIET, SMALL, simulated_cells, simulated_shares
from torch import Tensor

from scdiffgen.data import registered_conditions
from scdiffgen.datasets import simulate, simulate_cite
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._sampler import Sampler
from scdiffgen.model._training_data import KeptCells
from scdiffgen.model._training_summary import training_summary

KEYS = {"labels_key": "cell_type", "batch_key": "batch", "continuous_covariate_keys": ["age"]}


class Stream:
    """Minibatches of rows of tensors, shuffled anew at every pass."""

    def __init__(self, tensors: Mapping[str, Tensor], batch_size: int) -> None:
        self.tensors, self.batch_size = tensors, batch_size

    def __len__(self) -> int:
        return -(-len(self.tensors["X"]) // self.batch_size)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        order = torch.randperm(len(self.tensors["X"]))
        for rows in order.split(self.batch_size):
            yield {key: each[rows] for key, each in self.tensors.items()}


class Cells(LightningDataModule):
    """Cells that were registered somewhere else, split at a row."""

    def __init__(self, tensors: Mapping[str, Tensor], n_train: int, batch_size: int = 32) -> None:
        super().__init__()
        self.train_cells = {key: each[:n_train] for key, each in tensors.items()}
        self.held_out = {key: each[n_train:] for key, each in tensors.items()}
        self.batch_size = batch_size

    def train_dataloader(self) -> Stream:
        return Stream(self.train_cells, self.batch_size)

    def val_dataloader(self) -> Stream | None:
        return Stream(self.held_out, self.batch_size) if len(self.held_out["X"]) else None


def tensors_of(model: TokenDiffusion) -> dict[str, Tensor]:
    """What scvi-tools' loader hands out of all cells."""
    return next(iter(model._make_data_loader(model.adata, batch_size=model.adata.n_obs)))


def by_stream(adata: AnnData, n_train: int = 0, sizes: Mapping[str, Any] = SMALL, **keys: Any) -> tuple[Any, Cells]:
    """An untrained model made of the registry alone, and the cells in a data module."""
    TokenDiffusion.setup_anndata(adata, **(keys or KEYS))
    registered = TokenDiffusion(adata, **sizes)
    return TokenDiffusion(registry=registered.registry, **sizes), Cells(tensors_of(registered), n_train or adata.n_obs)


@pytest.mark.parametrize("process", ["gaussian", "latent"])
def test_processes_that_cache_their_codes_train_from_a_stream(process: str, tmp_path: Path) -> None:
    model, cells = by_stream(simulated_cells(200), 160, {**SMALL, "process": process}, labels_key="cell_type")
    model.train(40, datamodule=cells, check_val_every_n_epoch=10, plan_kwargs={"lr": 0.01, "ema_decay": 0.95}, **QUIET)
    assert len(model.history["train_loss"]) == 40 and len(model.history["validation_loss"]) == 4
    drawn = [model.generate({"cell_type": name}, n_cells=100, n_steps=8, seed=0) for name in "ab"]
    learned, truth = (np.log(pair[1] + 0.01) - np.log(pair[0] + 0.01) for pair in (
        [np.asarray(each.X.sum(0)).ravel() / each.X.sum() for each in drawn], simulated_shares()
    ))  # fmt: skip
    assert np.corrcoef(learned, truth)[0, 1] > 0.8
    model.train(2, datamodule=cells, **QUIET)  # of a further training, too
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", adata=False)
    again = [each.generate({"cell_type": "a"}, n_cells=5, n_steps=4, seed=0).X.toarray() for each in (model, loaded)]
    np.testing.assert_array_equal(*again)


def test_trained_saved_loaded_and_generating(tmp_path: Path) -> None:
    model, cells = by_stream(simulated_cells(200), n_train=160)
    model.train(2, datamodule=cells, check_val_every_n_epoch=1, **QUIET)
    assert model.is_trained and model.adata is None and len(model.history["validation_loss"]) == 2
    summary = training_summary(model)
    assert len(summary.library) == summary.conditions.n_cells == 160
    np.testing.assert_array_equal(np.sort(summary.library), np.sort(cells.train_cells["X"].sum(1)))
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", adata=False)
    drawn = [each.generate({"cell_type": "a", "age": 40}, n_cells=5, seed=0) for each in (model, loaded)]
    np.testing.assert_array_equal(drawn[0].X.toarray(), drawn[1].X.toarray())
    assert list(drawn[0].var_names) == [f"gene{i}" for i in range(20)]
    loaded.train(1, datamodule=cells, **QUIET)
    other = TokenDiffusion.load(tmp_path / "model", simulated_cells(30, seed=3))
    assert other.get_latent_representation(silent=True).shape == (30, 16)
    registry = TokenDiffusion.load_registry(str(tmp_path / "model"))
    assert TokenDiffusion(registry=registry, **SMALL).summary_stats.n_labels == 2


def test_it_learns_what_it_learns_of_an_anndata() -> None:
    adata = simulated_cells(400)
    streamed, cells = by_stream(adata, labels_key="cell_type")
    registered = TokenDiffusion(adata, **SMALL)
    scvi.settings.seed = 0
    registered.train(12, train_size=1.0, batch_size=32, plan_kwargs={"lr": 1e-2}, **QUIET)
    scvi.settings.seed = 0
    streamed.train(12, datamodule=cells, plan_kwargs={"lr": 1e-2}, **QUIET)
    losses = [model.history["train_loss"]["train_loss"].iloc[-5:].mean() for model in (registered, streamed)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    for label in "ab":
        real = np.asarray(adata.X[adata.obs["cell_type"] == label])
        asked = {"n_cells": 300, "n_steps": 8, "seed": 1}
        drawn = [model.generate({"cell_type": label}, **asked).X for model in (registered, streamed)]
        shares = [np.asarray(each.sum(0)).ravel() / each.sum() for each in (*drawn, real)]
        np.testing.assert_allclose(shares[1], shares[0], atol=0.015)
        np.testing.assert_allclose(shares[1], shares[2], atol=0.015)
        sizes = [np.asarray(each.sum(1)).ravel() for each in (drawn[1], real)]
        assert stats.ks_2samp(*sizes).pvalue > 1e-3


def test_sparse_minibatches_and_tensors_that_are_not_registered() -> None:
    model, cells = by_stream(simulated_cells(80))

    class Other(Cells):
        def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> dict[str, Any]:
            return {**batch, "X": batch["X"].to_sparse(), "ind_x": None, "size_factor": 0}

    model.train(1, datamodule=Other(cells.train_cells, 80), **QUIET)
    assert model.generate(n_cells=3, seed=0).n_obs == 3


def test_responses_are_transferred_from_the_cells_that_are_kept() -> None:
    screen = simulate(n_cells=600, n_genes=30)
    keys = {"layer": "counts", "labels_key": "cell_type", "perturbation_key": "perturbation"}
    streamed, cells = by_stream(screen, **keys)
    registered = TokenDiffusion(screen, **SMALL)
    streamed.train(1, datamodule=cells, **QUIET)
    registered.train(1, train_size=1.0, **QUIET)
    bulks = [training_summary(model).pseudobulks[0] for model in (registered, streamed)]
    np.testing.assert_array_equal(bulks[0].cell_context, bulks[1].cell_context)
    np.testing.assert_allclose(bulks[0].share, bulks[1].share, rtol=1e-5)
    np.testing.assert_allclose(bulks[0].log_mean, bulks[1].log_mean, rtol=1e-5)


def test_several_modalities() -> None:
    mdata: MuData = simulate_cite(n_cells=200)
    TokenDiffusion.setup_mudata(mdata, labels_key="cell_type")
    registered = TokenDiffusion(mdata, **SMALL)
    streamed = TokenDiffusion(registry=registered.registry, **SMALL)
    streamed.train(1, datamodule=Cells(tensors_of(registered), 200), **QUIET)
    drawn = streamed.generate(n_cells=3, seed=0)
    assert list(drawn.mod) == list(mdata.mod)
    assert set(training_summary(streamed).library_from_tokens) == {("rna",), ("protein",)}


class Frames:
    """Minibatches as annbatch hands them out: CSR counts, and data frames of the cells and of the genes; in order."""

    def __init__(self, cells: AnnData, batch_size: int = 32) -> None:
        self.parts = [cells[start : start + batch_size] for start in range(0, cells.n_obs, batch_size)]

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for part in self.parts:
            yield {"X": sparse.csr_matrix(part.X.astype(np.int32)), "obs": part.obs, "var": part.var, "index": None}


class Shards(LightningDataModule):
    """A data module of nothing but such minibatches."""

    def __init__(self, cells: AnnData) -> None:
        super().__init__()
        self.cells = cells

    def train_dataloader(self) -> Frames:
        return Frames(self.cells)


def screened_cells(n_cells: int = 120) -> AnnData:
    """Cells with all that can be registered, some of it missing."""
    cells, kind = simulated_cells(n_cells), np.arange(n_cells) % 4
    cells.obs["drug"] = np.array(["control", "A", "B", "B+A"])[kind]
    cells.obs["dose"] = np.array(["0", "0.5", "2", "1+0.5"])[kind]
    cells.obs["organ"], cells.obs["tissue"] = np.where(kind < 2, "lung", "gut"), np.where(kind == 3, "colon", None)
    cells.obs["sex"] = pd.Categorical(np.where(kind % 2, "f", "m"), ["m", "f"])
    cells.obs.loc[cells.obs_names[:10], "age"] = np.nan
    return cells


SCREEN: dict[str, Any] = {
    **{"labels_key": "cell_type", "batch_key": "batch", "perturbation_key": "drug", "dose_key": "dose"},
    **{"hierarchy_keys": ["organ", "tissue"], "categorical_covariate_keys": ["sex"]},
    "continuous_covariate_keys": ["age"],
}


@pytest.fixture(scope="module")
def screened() -> TokenDiffusion:
    """A model that was trained from minibatches with data frames."""
    TokenDiffusion.setup_anndata(registered := screened_cells(), **SCREEN)
    model = TokenDiffusion(registry=TokenDiffusion(registered, **SMALL).registry, **SMALL)
    model.train(1, datamodule=Shards(screened_cells()), **QUIET)
    return model


def test_all_that_is_registered_is_read_from_data_frames(screened: TokenDiffusion) -> None:
    TokenDiffusion.setup_anndata(cells := screened_cells(), **SCREEN)
    expected = registered_conditions(TokenDiffusion(cells, **SMALL).adata_manager)
    found = training_summary(screened).conditions
    assert list(found) == list(expected) == ["cell_type", "hierarchy", "sex", "age", "batch", "drug"]
    for name, condition in expected.items():
        for one, other in zip(found[name], condition, strict=True):
            np.testing.assert_allclose(one, other, err_msg=name)
    drawn = screened.generate({"drug": "B+A", "dose": "1+0.5", "organ": "gut", "sex": "f"}, 3, n_steps=2, silent=True)
    assert drawn.obs[["drug", "dose", "organ", "sex"]].to_numpy().tolist() == [["B+A", "1+0.5", "gut", "f"]] * 3


def test_cells_of_a_loader_are_read_as_those_of_an_anndata(screened: TokenDiffusion, tmp_path: Path) -> None:
    cells, options = screened_cells(70), {"silent": True, "batch_size": 32}
    loader = Frames(cells)
    screened.write_back(path=tmp_path / "results.zarr", dataloader=loader, n_steps=2, **options)
    written = ad.read_zarr(tmp_path / "results.zarr")
    tokens, bound = screened.get_latent_representation(dataloader=loader), screened.get_nll_bound(dataloader=loader)
    np.testing.assert_array_equal(tokens, screened.get_latent_representation(cells, **options))
    pd.testing.assert_frame_equal(bound, screened.get_nll_bound(cells, **options))
    screened.write_back(path=tmp_path / "same.zarr", adata=cells, n_steps=2, **options)
    screened.write_back(cells, n_steps=2, **options)
    for results in (written, ad.read_zarr(tmp_path / "same.zarr")):
        assert results.obs_names.equals(cells.obs_names) and results.var_names.equals(cells.var_names)
        assert results.obs["drug"].tolist() == cells.obs["drug"].tolist()
        np.testing.assert_array_equal(results.obsm["X_generated"].toarray(), cells.obsm["X_generated"].toarray())
        for key in ("X_tokens", "X_token_activation"):
            np.testing.assert_array_equal(results.obsm[key], cells.obsm[key])
        np.testing.assert_array_equal(results.varm["token_loadings"], cells.varm["token_loadings"])
        assert results.uns["scdiffgen"]["model_id"] == cells.uns["scdiffgen"]["model_id"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.zarr", "same.zarr"]


def test_what_a_loader_or_a_file_cannot_be(screened: TokenDiffusion, tmp_path: Path) -> None:
    cells = screened_cells(40)
    with pytest.raises(ValueError, match="leave out `adata` and `indices`"):
        screened.get_nll_bound(cells, dataloader=Frames(cells))
    with pytest.raises(ValueError, match=r"`dataloader`: a minibatch has 20 genes, and 20 .*order"):
        screened.get_latent_representation(dataloader=Frames(cells[:, ::-1].copy()), silent=True)
    with pytest.raises(ValueError, match=r"`dataloader`: 'perturbation' is registered, but .* missing .*'obs'"):
        screened.get_nll_bound(dataloader=[{"X": cells.X, "obs": cells.obs.drop(columns="dose")}], silent=True)
    with pytest.raises(ValueError, match="tensors have 39, 40 rows"):
        screened.get_nll_bound(dataloader=[{"X": sparse.csr_matrix(cells.X[1:]), "obs": cells.obs}], silent=True)
    with pytest.raises(ValueError, match="unseen perturbation"):
        screened.get_nll_bound(dataloader=[{"X": cells.X, "obs": cells.obs.assign(drug="C", dose=1)}], silent=True)
    with pytest.raises(ValueError, match="minibatch 0 does not hold molecule counts"):
        screened.get_nll_bound(dataloader=[{"X": sparse.csr_matrix(np.log1p(cells.X)), "obs": cells.obs}], silent=True)
    with pytest.raises(ValueError, match="`dataloader` yields no cell"):
        screened.get_nll_bound(dataloader=[], silent=True)
    with pytest.raises(ValueError, match="pass `path`"):
        screened.write_back(dataloader=Frames(cells))
    for path in (tmp_path, tmp_path / "results.h5ad"):
        with pytest.raises(ValueError, match=r"a new file that ends with '.zarr'"):
            screened.write_back(cells, path=path)
    broken = [next(iter(Frames(cells))), {"X": torch.zeros(1, 20)}]
    with pytest.raises(ValueError, match="is registered, but it is missing in a minibatch"):
        screened.write_back(dataloader=broken, path=tmp_path / "half.zarr", keys=["X_tokens"], silent=True)
    assert [path.name for path in tmp_path.iterdir()] == ["half.zarr.partial"]


class Interrupted(Frames):
    """Minibatches that end at one with an error."""

    def __init__(self, cells: AnnData, at: int) -> None:
        super().__init__(cells)
        self.at = at

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number, batch in enumerate(super().__iter__()):
            if number == self.at:
                raise KeyboardInterrupt
            yield batch


def test_results_of_an_interrupted_call_are_kept_and_the_next_one_goes_on(
    screened: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, options = screened_cells(100), {"n_steps": 2, "silent": True}
    screened.write_back(dataloader=Frames(cells), path=tmp_path / "whole.zarr", **options)
    path = tmp_path / "cells.zarr"
    with pytest.raises(KeyboardInterrupt):
        screened.write_back(dataloader=Interrupted(cells, 2), path=path, **options)
    with pytest.raises(ValueError, match=r"begun by another call, with other n_steps \(was 2\)"):
        screened.write_back(dataloader=Frames(cells), path=path, n_steps=3, silent=True)
    with pytest.raises(ValueError, match="begun with other cells"):
        screened.write_back(dataloader=Frames(screened_cells(40)[8:].copy()), path=path, **options)
    draw, drawn = Sampler.minibatch, []
    monkeypatch.setattr(Sampler, "minibatch", lambda *args: drawn.append(args) or draw(*args))
    screened.write_back(dataloader=Frames(cells), path=path, **options)
    assert len(drawn) == 2  # of four
    whole, resumed = (ad.read_zarr(tmp_path / name) for name in ("whole.zarr", "cells.zarr"))
    pd.testing.assert_frame_equal(whole.obs, resumed.obs)
    np.testing.assert_array_equal(whole.obsm["X_generated"].toarray(), resumed.obsm["X_generated"].toarray())
    np.testing.assert_array_equal(whole.obsm["X_tokens"], resumed.obsm["X_tokens"])


@pytest.mark.parametrize("column", ["G1/S", "date"])
def test_columns_that_a_file_cannot_hold_are_named_before_anything_is_computed(
    column: str, screened: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = screened_cells(40)
    cells.obs[column] = pd.Timestamp("2026-01-01") if column == "date" else 1.0
    monkeypatch.setattr(Sampler, "minibatch", lambda *_: pytest.fail("computed"))
    for given in ({"adata": cells}, {"dataloader": [{"X": sparse.csr_matrix(cells.X), "obs": cells.obs}]}):
        with pytest.raises(ValueError, match=f"cannot hold the column {column!r} .*rename or convert"):
            screened.write_back(path=tmp_path / "cells.zarr", silent=True, **given)
    assert not (tmp_path / "cells.zarr").exists()


def written_by_scvi_tools(adata: AnnData) -> dict[str, Any]:
    """The registry that scvi-tools' MappedCollectionDataModule writes of such cells."""
    empty: dict[str, Any] = {"data_registry": {}, "state_registry": {}, "summary_stats": {}}
    genes = {"n_obs": adata.n_obs, "n_vars": adata.n_vars, "column_names": adata.var_names}
    batch = {"categorical_mapping": {"y": 1, "x": 0}, "original_key": "batch"}
    labels = {"categorical_mapping": np.array(["a", "b", "?"], dtype=object), "original_key": "cell_type"}
    return {
        "scvi_version": scvi.__version__,
        "model_name": "SCVI",
        "setup_method_name": "setup_datamodule",
        "setup_args": {"layer": None, "batch_key": "batch", "labels_key": "cell_type", "samples_key": None},
        "field_registries": {
            "X": {"data_registry": {"attr_name": "X", "attr_key": None}, "state_registry": genes, "summary_stats": {}},
            "batch": {**empty, "state_registry": batch, "summary_stats": {"n_batch": 2}},
            "labels": {**empty, "state_registry": {**labels, "unlabeled_category": "?"}},
            "sample": {**empty, "state_registry": {"categorical_mapping": None, "original_key": None}},
            "size_factor": empty,
            "extra_categorical_covs": empty,
            "extra_continuous_covs": empty,
        },
    }


def test_a_registry_that_a_data_module_of_scvi_tools_wrote(tmp_path: Path) -> None:
    adata = simulated_cells(80)
    _, cells = by_stream(adata, labels_key="cell_type", batch_key="batch")
    model = TokenDiffusion(registry=written_by_scvi_tools(adata), **SMALL)
    model.train(1, datamodule=cells, **QUIET)
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", simulated_cells(20, seed=5))
    assert loaded.get_latent_representation(silent=True).shape == (20, 16)
    assert loaded.generate({"cell_type": "b", "batch": "y"}, n_cells=2).obs["batch"].tolist() == ["y", "y"]


def test_codes_in_another_order_than_that_of_the_model_are_refused() -> None:
    adata = simulated_cells(80)
    model, cells = by_stream(adata, labels_key="cell_type", batch_key="batch")
    cells.registry = written_by_scvi_tools(adata)  # whose batches are coded x, y and labels a, b
    model.train(1, datamodule=cells, **QUIET)
    for field, mapping in {"batch": {"y": 0, "x": 1}, "labels": ["b", "a"]}.items():
        cells.registry = written_by_scvi_tools(adata)
        cells.registry["field_registries"][field]["state_registry"]["categorical_mapping"] = mapping
        with pytest.raises(ValueError, match="`datamodule` encodes .* as .*, the model as .*registry="):
            model.train(1, datamodule=cells, **QUIET)


@pytest.mark.parametrize("n_cells", [5, 64, 65, 1000])
def test_cells_that_are_kept_of_a_stream_are_evenly_spread(n_cells: int) -> None:
    model = by_stream(simulated_cells(30), labels_key="cell_type")[0]
    counts = sparse.random(n_cells, 20, 0.3, format="csr", random_state=0, dtype=np.float32)
    counts[:, 0] = np.arange(n_cells)[:, None]
    kept = KeptCells(model.module, 64, 7)
    given = training_conditions(model, n_cells)
    for start in range(0, n_cells, 50):
        rows = np.arange(start, min(start + 50, n_cells))
        kept.add(counts[rows], given.take(rows))
    batches = list(kept)
    places = np.concatenate([batch.to_dense()[:, 0].numpy() for batch, _ in batches])
    step = 2 ** int(np.ceil(np.log2(max(n_cells / 64, 1))))
    np.testing.assert_array_equal(places, np.arange(0, n_cells, step))
    assert sum(conditions.n_cells for _, conditions in batches) == len(places) == len(kept) <= 64


def training_conditions(model: TokenDiffusion, n_cells: int) -> Any:
    codes = {"labels": torch.zeros(n_cells, 1)}
    return model.module.unpack({"X": torch.ones(n_cells, 20), **codes})[1].numpy()


def replaced(key: str, change: Callable[[Tensor], Any]) -> Callable[[Cells], Cells]:
    def of(cells: Cells) -> Cells:
        changed = {**cells.train_cells, key: change(cells.train_cells[key])}
        return Cells({name: each for name, each in changed.items() if each is not None}, 80)

    return of


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("labels", lambda codes: codes * 0 + 5), r"code 5 of 'cell_type'.*2 categories"),
        (replaced("labels", lambda codes: None), "'labels' is registered, but it is missing in a minibatch"),
        (replaced("X", lambda counts: counts[:, :10]), "has 10 genes, and 20 are registered"),
        (replaced("X", lambda counts: counts.log1p()), "does not hold molecule counts"),
        (replaced("X", lambda counts: counts * 0), "without a molecule"),
        (lambda cells: Cells({key: each[:0] for key, each in cells.train_cells.items()}, 0), "yields no cell"),
    ],
)
def test_minibatches_that_do_not_fit_the_registry(change: Callable[[Cells], Cells], message: str) -> None:
    model, cells = by_stream(simulated_cells(80))
    with pytest.raises(ValueError, match=message):
        model.train(1, datamodule=change(cells), **QUIET)
    assert not model.is_trained


def test_what_cannot_be_done() -> None:
    adata = simulated_cells(80)
    model, cells = by_stream(adata)
    with pytest.raises(TypeError, match="`datamodule` is of type list"):
        model.train(1, datamodule=[], **QUIET)
    with pytest.raises(TypeError, match="`train_size` has no effect with `datamodule`"):
        model.train(1, datamodule=cells, train_size=0.5, **QUIET)
    with pytest.raises(ValueError, match="there are none: pass"):
        model.train(1, datamodule=cells, early_stopping=True, **QUIET)
    with pytest.raises(ValueError, match="already has training cells"):
        TokenDiffusion(adata, **SMALL).train(1, datamodule=cells, **QUIET)
    for registry in ({}, 3, {"field_registries": {}}):
        with pytest.raises(ValueError, match="`registry` .*load_registry"):
            TokenDiffusion(registry=registry)
    model.train(1, datamodule=cells, **QUIET)
    for call in (model.get_latent_representation, model.evaluate_held_out, model.write_back):
        with pytest.raises(ValueError, match=r"trained from a data module|has no cells|not know which cells"):
            call()
    model.adata = adata
    with pytest.raises(ValueError, match=r"data module|does not know which cells"):
        model.evaluate_held_out()
