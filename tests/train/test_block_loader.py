"""Minibatches from disk hold the very cells of the matrix in memory, each once, well mixed, in constant memory."""

import tracemalloc
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pytest
import scvi
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse, stats
from small_cells import simulated_cells, small_model

from scdiffgen.model import TokenDiffusion, open_cells
from scdiffgen.train import BlockLoader, cell_loader

N_CELLS = 200


KEPT: list[Any] = []


@pytest.fixture(scope="module", params=["csr.h5ad", "dense.h5ad", "csr.zarr", "dense.zarr"])
def manager(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Registered cells on disk, each identified by its counts."""
    return registered(request.param, tmp_path_factory.mktemp("cells"))


def registered(name: str, folder: Path) -> Any:
    adata = simulated_cells(N_CELLS)
    adata.X[:, 0] = np.arange(N_CELLS)
    adata.X = sparse.csr_matrix(adata.X) if name.startswith("csr") else adata.X
    write = adata.write_zarr if name.endswith("zarr") else adata.write_h5ad
    write(folder / name)
    model = small_model(open_cells(folder / name), labels_key="cell_type", continuous_covariate_keys=["age"])
    KEPT.append(model)  # the manager does not keep the cells
    return model.adata_manager


def numbers(batches: list[dict[str, torch.Tensor]]) -> np.ndarray:
    """Which cells, in the order in which they came."""
    return np.concatenate([batch["X"].to_dense()[:, 0].numpy() for batch in batches]).astype(int)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch_size=st.integers(1, 90),
    block_size=st.integers(1, 60),
    n_blocks=st.integers(1, 9),
    shuffle=st.booleans(),
    kept=st.sets(st.integers(0, N_CELLS - 1), min_size=1),
)
def test_every_cell_comes_once_with_its_own_counts_and_conditions(
    batch_size: int, block_size: int, n_blocks: int, shuffle: bool, kept: set[int], manager: Any
) -> None:
    expected = simulated_cells(N_CELLS)
    options = {"batch_size": batch_size, "block_size": block_size, "n_blocks": n_blocks, "shuffle": shuffle}
    loader = BlockLoader(manager, np.array(list(kept)), **options)
    batches = list(loader)
    assert (
        [len(batch["X"]) for batch in batches[:-1]]
        == [batch_size] * (len(loader) - 1)
        == [batch_size] * (len(batches) - 1)
    )
    came = numbers(batches)
    assert sorted(came) == sorted(kept)
    np.testing.assert_array_equal(torch.cat([b["X"].to_dense()[:, 1:] for b in batches]), expected.X[came, 1:])
    codes = torch.cat([batch["labels"] for batch in batches]).numpy().ravel()
    np.testing.assert_array_equal(np.array(["a", "b"])[codes], expected.obs["cell_type"].iloc[came])
    ages = torch.cat([batch["extra_continuous_covs"] for batch in batches]).numpy().ravel()
    np.testing.assert_allclose(ages, expected.obs["age"].iloc[came])
    if not shuffle:
        assert came.tolist() == sorted(kept)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return registered("csr.h5ad", tmp_path_factory.mktemp("rows"))


def test_each_pass_has_another_order_and_the_same_seed_the_same(rows: Any) -> None:
    orders = []
    for _ in range(2):
        torch.manual_seed(1)
        loader = BlockLoader(rows, shuffle=True, block_size=8, n_blocks=5, batch_size=32)
        orders.append([numbers(list(loader)).tolist() for _ in range(2)])
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]


def test_cells_that_lie_sorted_on_disk_are_mixed(rows: Any) -> None:
    """Positions within a pass are uniform, and minibatches hold cells from everywhere."""
    torch.manual_seed(0)
    loader = BlockLoader(rows, shuffle=True, block_size=4, n_blocks=10, batch_size=40)
    passes = [list(loader) for _ in range(30)]
    where = np.array([np.flatnonzero(numbers(batches) == 7)[0] for batches in passes])
    assert stats.kstest((where + 0.5) / N_CELLS, "uniform").pvalue > 1e-3
    thirds = np.concatenate([numbers([batch]) for batches in passes for batch in batches[:1]]) // (N_CELLS / 4)
    assert stats.chisquare(np.bincount(thirds.astype(int))[:4]).pvalue > 1e-4


@pytest.mark.parametrize(("n_processes", "n_each"), [(2, 100), (3, 67)])
def test_processes_share_the_cells(n_processes: int, n_each: int, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    came = []
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: n_processes)
    for process in range(n_processes):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda process=process: process)
        loader = BlockLoader(rows, shuffle=True, block_size=8, batch_size=16, distributed_sampler=True)
        batches = list(loader)
        assert len(batches) == len(loader) == -(-n_each // 16)
        came.append(numbers(batches))
    assert [len(own) for own in came] == [n_each] * n_processes
    assert set(np.concatenate(came)) == set(range(N_CELLS))


def test_the_last_minibatch_may_be_left_out(rows: Any) -> None:
    loader = BlockLoader(rows, batch_size=64, drop_last=True, block_size=50, n_blocks=1)
    assert [len(batch["X"]) for batch in loader] == [64] * 3 and len(loader) == 3


@pytest.mark.parametrize("name", ["block_size", "n_blocks"])
def test_sizes_that_cannot_be_are_named(name: str, rows: Any) -> None:
    with pytest.raises(ValueError, match=f"`{name}` is 0: pass a whole number of at least 1"):
        cell_loader(rows, **{name: 0})


def test_memory_does_not_grow_with_the_number_of_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registering and training never hold the whole matrix: what more cells take is much less than they are."""
    monkeypatch.setattr("scdiffgen.data._counts.BLOCK_VALUES", 200 * 400)
    monkeypatch.setattr("scdiffgen.model._training_runs.MOST_CELLS", 500)
    monkeypatch.setattr("scdiffgen.model._training_summary.REGRESSION_CELLS", 500)
    small_model().train(1, accelerator="cpu", enable_progress_bar=False)  # imports what training needs
    sizes, peaks = [], []
    for n_cells in (2_000, 6_000):
        matrix = sparse.csr_matrix(np.random.default_rng(0).poisson(1.0, (n_cells, 400)).astype(np.float32))
        sizes.append(matrix.data.nbytes + matrix.indices.nbytes)
        ad.AnnData(matrix).write_h5ad(tmp_path / f"{n_cells}.h5ad")
        del matrix
        tracemalloc.start()
        adata = open_cells(tmp_path / f"{n_cells}.h5ad")
        TokenDiffusion.setup_anndata(adata)
        model = TokenDiffusion(adata, n_tokens=2, token_dim=8, n_layers=1)
        options = {"block_size": 50, "n_blocks": 4}
        model.train(1, accelerator="cpu", enable_progress_bar=False, datasplitter_kwargs=options)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(model.training_summary_["library"]) == n_cells
    growth = (peaks[1] - peaks[0]) / (sizes[1] - sizes[0])
    assert growth < 0.5, f"peaks {peaks} for matrices of {sizes} bytes"


def test_training_from_disk_is_as_good_as_from_memory(tmp_path: Path) -> None:
    """Cells sorted by type: what a reader of consecutive cells would stumble over."""
    adata = simulated_cells(600)
    adata = adata[np.argsort(adata.obs["cell_type"], kind="stable")].copy()
    adata.X = sparse.csr_matrix(adata.X)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    losses = []
    for cells, options in (
        (adata, {}),
        (open_cells(tmp_path / "cells.h5ad"), {"datasplitter_kwargs": {"block_size": 32, "n_blocks": 4}}),
    ):
        scvi.settings.seed = 0
        model = small_model(cells)
        model.train(12, accelerator="cpu", enable_progress_bar=False, batch_size=64, **options)
        losses.append(model.history["validation_loss"].to_numpy(float)[-1, 0])
    assert abs(losses[1] / losses[0] - 1) < 0.01
