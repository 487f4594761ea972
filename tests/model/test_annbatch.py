"""Training from shards of zarr by scvi-tools' annbatch module, and generated cells read by annbatch."""

from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pytest
import zarr
from anndata import AnnData
from lightning.pytorch import LightningDataModule
from scipy import sparse
from small_cells import QUIET, SMALL, simulated_cells, simulated_shares, trained_model

from scdiffgen.datasets import simulate
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_summary import training_summary

annbatch = pytest.importorskip("annbatch")
dataloaders = pytest.importorskip("scvi.dataloaders")
pytestmark = [
    pytest.mark.skipif(not hasattr(dataloaders, "AnnbatchDataModule"), reason="needs scvi-tools 1.5"),
    pytest.mark.filterwarnings("ignore"),  # of zarr and annbatch
]
CHUNKS: dict[str, Any] = {"chunk_size": 16, "preload_nchunks": 4, "preload_to_gpu": False}


def shards_of(cells: AnnData, path: Path) -> Any:
    """Cells in two files, written as one shuffled collection."""
    halves = [path / "one.h5ad", path / "other.h5ad"]
    for file, rows in zip(halves, np.array_split(np.arange(cells.n_obs), 2), strict=True):
        part = cells[rows].copy()
        part.X = sparse.csr_matrix(part.X)
        part.write_h5ad(file)
    collection = annbatch.DatasetCollection(zarr.open_group(str(path / "shards.zarr"), mode="w"))
    return collection.add_adatas(halves, shuffle=True)


def module_of(collection: Any, cells: AnnData, **keys: Any) -> Any:
    loader = annbatch.Loader(**CHUNKS, batch_size=32).use_collection(collection)
    return dataloaders.AnnbatchDataModule(loader, **CHUNKS, shuffle=True, var_names=list(cells.var_names), **keys)


@pytest.fixture(scope="module")
def cells() -> AnnData:
    return simulated_cells(320)


@pytest.fixture(scope="module")
def collection(cells: AnnData, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return shards_of(cells, tmp_path_factory.mktemp("shards"))


def test_training_from_shards_and_reading_what_was_generated(cells: AnnData, collection: Any, tmp_path: Path) -> None:
    keys = {"batch_key": "batch", "label_key": "cell_type", "continuous_covariate_keys": ["age"]}
    module = module_of(collection, cells, **keys)
    model = TokenDiffusion(registry=module.registry, **SMALL)
    model.train(20, datamodule=module, **QUIET)
    np.testing.assert_array_equal(np.sort(training_summary(model).library), np.sort(cells.X.sum(1)))

    path = model.generate_to(tmp_path / "new.zarr", {"cell_type": "b"}, n_cells=400, chunk_size=150, seed=0)
    written = ad.read_zarr(path)
    shares = written.X.sum(0) / written.X.sum()
    near, far = (np.abs(np.asarray(shares).ravel() - of_type).sum() for of_type in simulated_shares()[::-1])
    assert near < 0.25 < far

    on_disk = AnnData(ad.io.sparse_dataset(zarr.open_group(str(path), mode="r")["X"]), obs=written.obs, var=written.var)
    direct = annbatch.Loader(**CHUNKS, batch_size=32).add_adata(on_disk)
    again = annbatch.DatasetCollection(zarr.open_group(str(tmp_path / "again.zarr"), mode="w")).add_adatas([path])
    for loader in (direct, annbatch.Loader(**CHUNKS, batch_size=32).use_collection(again)):
        batches = list(loader)
        sizes = np.concatenate([np.asarray(batch["X"].sum(1)).ravel() for batch in batches])
        np.testing.assert_array_equal(np.sort(sizes), np.sort(np.asarray(written.X.sum(1)).ravel()))
        assert {label for batch in batches for label in batch["obs"]["cell_type"]} == {"b"}


def test_shards_at_an_address_with_perturbations(tmp_path: Path) -> None:
    """Written by `generate_to` in chunks, then read as they are: from an address, by a loader with data frames."""
    screen = simulate(n_cells=600, n_genes=30)
    keys = {"layer": "counts", "labels_key": "cell_type", "perturbation_key": "perturbation"}
    model = trained_model(screen, **keys)
    path = model.generate_to(tmp_path / "cells.zarr", n_cells=320, chunk_size=100, n_steps=2, seed=0)
    written, group = ad.read_zarr(path), zarr.open_group(path.as_uri(), mode="r")
    assert group["X/data"].metadata.zarr_format == 3 and group["X/data"].shards[0] > group["X/data"].chunks[0]
    cells = AnnData(ad.io.sparse_dataset(group["X"]), obs=written.obs, var=written.var)

    class Shards(LightningDataModule):
        def train_dataloader(self) -> Any:
            return annbatch.Loader(**CHUNKS, batch_size=32, shuffle=True, to="torch").add_adata(cells)

    streamed = TokenDiffusion(registry=model.registry, **SMALL)
    streamed.train(1, datamodule=Shards(), **QUIET)
    kept = training_summary(streamed)
    np.testing.assert_array_equal(np.sort(kept.library), np.sort(np.asarray(written.X.sum(1)).ravel()))
    known = model.registry["field_registries"]["perturbation"]["state_registry"]["names"]
    ids, _, mask, _ = kept.conditions["perturbation"]
    found = ["+".join(sorted(known[own[there]])) or "control" for own, there in zip(ids, mask, strict=True)]
    assert sorted(found) == sorted("+".join(sorted(name.split("+"))) for name in written.obs["perturbation"])
    in_order = annbatch.Loader(**CHUNKS, batch_size=32).add_adata(cells)
    tokens = streamed.get_latent_representation(dataloader=in_order, silent=True)
    streamed.write_back(dataloader=in_order, path=tmp_path / "tokens.zarr", keys="X_tokens", silent=True)
    np.testing.assert_array_equal(ad.read_zarr(tmp_path / "tokens.zarr").obsm["X_tokens"], tokens)
    streamed.save(tmp_path / "model")
    written.layers["counts"] = written.X
    beside = TokenDiffusion.load(tmp_path / "model", written)
    np.testing.assert_allclose(beside.get_latent_representation(silent=True), tokens, atol=1e-5)


def test_columns_that_the_module_was_not_given_are_no_conditions(cells: AnnData, collection: Any) -> None:
    module = module_of(collection, cells, label_key="cell_type")
    model = TokenDiffusion(registry=module.registry, **SMALL)
    assert [spec.name for spec in model.module.specs] == ["cell_type"]
    model.train(1, datamodule=module, **QUIET)
    assert model.generate({"cell_type": "a"}, 3, seed=0, silent=True).obs["cell_type"].tolist() == ["a"] * 3


def test_cells_to_validate_on(cells: AnnData, collection: Any) -> None:
    module = module_of(collection, cells, label_key="cell_type")
    module.set_split(0.8, 0.2)
    model = TokenDiffusion(registry=module.registry, **SMALL)
    model.train(2, datamodule=module, check_val_every_n_epoch=1, **QUIET)
    assert len(model.history["validation_loss"]) == 2
    assert len(training_summary(model).library) == 256
