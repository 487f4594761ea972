"""Cells generated into a file: the same kinds in the same order as in memory, whatever the file and the chunks."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import torch
import zarr
from scipy import sparse, stats
from small_cells import simulated_cells, trained_model

from scdiffgen.model import TokenDiffusion, _chunked_generation

TABLE = pd.DataFrame({"cell_type": ["b", "a", "b"], "batch": ["x", "y", None], "n_cells": [3, 9, 5]})
Generate = Callable[..., ad.AnnData]


def read(path: Path) -> ad.AnnData:
    return ad.read_h5ad(path) if path.suffix == ".h5ad" else ad.io.read_zarr(path)


@pytest.fixture
def generate(small: TokenDiffusion, tmp_path: Path) -> Generate:
    def quickly(*arguments: Any, name: str = "cells.h5ad", **options: Any) -> ad.AnnData:
        options = {"n_steps": 4, "silent": True, "chunk_size": 4, **options}
        return read(small.generate_to(tmp_path / name, *arguments, **options))

    return quickly


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
@pytest.mark.parametrize("chunk_size", [1, 4, 17, 100])
def test_the_file_holds_what_generate_would_return(
    name: str, chunk_size: int, generate: Generate, small: TokenDiffusion, tmp_path: Path
) -> None:
    """What was requested exactly; counts of the library sizes that were given."""
    sizes = np.arange(20, 37)
    cells = generate(TABLE, name=name, chunk_size=chunk_size, library_size=sizes)
    expected = small.generate(TABLE, library_size=sizes, n_steps=4, silent=True)
    requested = pd.Series(cells.obs["batch"].notna() & ~cells.obs["drawn_conditions"].str.contains("batch"))
    assert requested.tolist() == [True] * 12 + [False] * 5
    pd.testing.assert_frame_equal(cells.obs.drop(columns="age")[:12], expected.obs.drop(columns="age")[:12])
    pd.testing.assert_series_equal(cells.obs["cell_type"], expected.obs["cell_type"])
    assert cells.obs.columns.equals(expected.obs.columns) and cells.obs.dtypes.equals(expected.obs.dtypes)
    pd.testing.assert_frame_equal(cells.var, expected.var)
    assert isinstance(cells.X, sparse.csr_matrix) and cells.X.dtype == np.int32
    np.testing.assert_array_equal(np.asarray(cells.X.sum(1)).ravel(), sizes)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    if name.endswith("zarr"):
        stored = zarr.open_array(str(tmp_path / name / "X/data"), mode="r")
        assert stored.metadata.zarr_format == 3 and stored.shards[0] == 128 * stored.chunks[0]


def test_cells_differ_between_seeds_and_between_chunks(generate: Generate) -> None:
    one, other = (generate({"cell_type": "a"}, 40, name=f"{seed}.h5ad", seed=seed).X.toarray() for seed in (0, 1))
    assert (one != other).any()
    assert len(np.unique(one, axis=0)) == 40


def test_cells_are_distributed_as_those_of_generate(generate: Generate, small: TokenDiffusion) -> None:
    """Sums of every gene over 600 cells in 75 chunks, against generated in one go: a chi-squared test."""
    asked = {"cell_type": "a", "batch": "x"}
    streamed = generate(asked, 600, chunk_size=8).X
    together = small.generate(asked, 600, n_steps=4, seed=1, silent=True).X
    table = np.vstack([np.asarray(streamed.sum(0)), np.asarray(together.sum(0))])
    assert stats.chi2_contingency(table).pvalue > 1e-3
    depths = [np.asarray(counts.sum(1)).ravel() for counts in (streamed, together)]
    assert stats.ks_2samp(*depths).pvalue > 1e-3


def test_library_sizes_by_a_function_see_the_conditions_of_each_chunk(generate: Generate) -> None:
    def deep_b(table: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        return np.where(table["cell_type"] == "b", 70, 30)

    cells = generate(TABLE, library_size=deep_b)
    assert np.asarray(cells.X.sum(1)).ravel().tolist() == [70] * 3 + [30] * 9 + [70] * 5


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_a_file_that_is_there_is_left_alone(
    name: str, generate: Generate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = generate(TABLE, name=name)
    monkeypatch.setattr("scdiffgen.model._chunked_generation.sample_chunk", lambda *_: pytest.fail("sampled again"))
    before = (tmp_path / name).stat().st_mtime_ns
    again = generate(TABLE, name=name)
    assert (tmp_path / name).stat().st_mtime_ns == before
    assert (first.X != again.X).nnz == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_steps": 5}, r"n_steps \(was 4\)"),
        ({"seed": 1}, r"seed \(was 0\)"),
        ({"chunk_size": 5}, r"chunk_size \(was 4\)"),
        ({"batch_size": 2}, r"batch_size \(was 512\)"),
        ({"guidance_scale": 2.0}, r"guidance_scale \(was 1.0\)"),
        ({"library_size": 20}, r"library_size"),
        ({"conditions": TABLE.iloc[:2]}, "conditions\\."),
    ],
)
def test_cells_that_were_asked_for_differently_are_not_mixed(
    change: dict[str, Any], message: str, generate: Generate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with a whole file nor with one that was begun."""
    generate(TABLE)
    with pytest.raises(ValueError, match=f"cells.h5ad was begun by another call, with other {message}"):
        generate(**{"conditions": TABLE, **change})
    (tmp_path / "cells.h5ad").unlink()
    monkeypatch.setattr("scdiffgen.io._whole_files.ChunkedFile.finish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(TABLE)
    with pytest.raises(ValueError, match=f"cells.h5ad.partial was begun by another call, with other {message}"):
        generate(**{"conditions": TABLE, **change})


def test_a_model_read_again_goes_on_with_or_without_its_cells(
    generate: Generate, small: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(TABLE)
    small.save(tmp_path / "model")
    monkeypatch.setattr("scdiffgen.model._chunked_generation.sample_chunk", lambda *_: pytest.fail("sampled again"))
    for cells in (False, small.adata[:50].copy()):
        model = TokenDiffusion.load(tmp_path / "model", cells, accelerator="cpu")
        model.generate_to(tmp_path / "cells.h5ad", TABLE, n_steps=4, chunk_size=4, silent=True)


def test_files_of_other_models_are_not_mixed(
    generate: Generate, small: TokenDiffusion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other weights, clusters that are numbered from 1 instead of 0, renamed genes, and other training cells."""
    generate({"cell_type": "a"}, 4)
    weights = small.module.ema_denoiser.network.readout._parameters
    labels, genes = (small.registry["field_registries"][name]["state_registry"] for name in ("labels", "X"))
    summary = small.training_summary_
    for mapping, entry, value, named in (
        (weights, "bias", torch.nn.Parameter(weights["bias"] + 1), "weights\\."),
        (labels, "categorical_mapping", np.array(["z", "a"], dtype=object), "categories"),
        (genes, "column_names", np.array([f"ENSG{i}" for i in range(20)], dtype=object), "genes"),
        (vars(small), "training_summary_", {**summary, "library": summary["library"] * 2}, "training cells\\."),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(mapping, entry, value)
            with pytest.raises(ValueError, match=f"cells.h5ad was begun by another model, with other {named}"):
                generate({"cell_type": "a"}, 4)


@pytest.mark.parametrize("content", ["text", "h5", "h5ad"])
def test_files_of_others_are_left_alone(content: str, generate: Generate, tmp_path: Path) -> None:
    path = tmp_path / "cells.h5ad"
    if content == "text":
        path.write_text("mine")
    elif content == "h5":
        h5py.File(path, "w").close()
    else:
        ad.AnnData(np.ones((2, 2))).write_h5ad(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"cells.h5ad exists, and was not made by `generate_to`. Pass another path"):
        generate(TABLE)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "cells.csv"}, r"`path` is '.*cells.csv': pass the name of a file that ends with '.h5ad' or '.zarr'"),
        ({"chunk_size": 0}, "`chunk_size` is 0"),
        ({"seed": None}, "`seed` is None: pass a whole number of at least 0"),
        ({"library_size": [1, 2]}, r"`library_size` has shape \(2,\): pass one number, or one for each of 17 cells"),
        ({"guidance_scale": {"age": 2.0}}, "`guidance_scale` names 'age'"),
    ],
)
def test_what_cannot_be_is_named_before_a_file_is_made(
    options: dict[str, Any], message: str, generate: Generate, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        generate(TABLE, **options)
    assert not list(tmp_path.iterdir())


def test_a_column_that_the_format_cannot_hold_is_named_before_the_first_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adata = simulated_cells(60).copy()
    adata.obs["G1/S"] = np.resize(["yes", "no"], 60)
    model = trained_model(adata, labels_key="cell_type", categorical_covariate_keys=["G1/S"])
    monkeypatch.setattr("scdiffgen.model._chunked_generation.sample_chunk", lambda *_: pytest.fail("sampled"))
    for conditions in ({"G1/S": "yes"}, {"cell_type": "a"}):  # requested, and drawn
        with pytest.raises(ValueError, match=r"a .zarr cannot hold the column 'G1/S' .*: pass another format"):
            model.generate_to(tmp_path / "cells.zarr", conditions, 4, n_steps=2)
    assert not list(tmp_path.iterdir())


def draws_of(model: TokenDiffusion, path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list]:
    """Categories that the network was given, cell by cell."""
    given: dict[str, list] = {}
    sample = _chunked_generation.sample_chunk

    def listen(sampler: Any, chunk: Any) -> Any:
        for name, condition in chunk[0].items():
            given.setdefault(name, []).extend(condition.ids[:, 0].tolist())
        return sample(sampler, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(_chunked_generation, "sample_chunk", listen)
        model.generate_to(path, {"cell_type": "a"}, 30, chunk_size=7, n_steps=2, silent=True)
    return given


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_drawn_conditions_are_those_that_cells_were_drawn_with(
    suffix: str, small: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the file is finished by another call than the one that drew the cells."""
    path = tmp_path / f"cells{suffix}"
    with monkeypatch.context() as patch:
        patch.setattr("scdiffgen.io._whole_files.ChunkedFile.finish", lambda *_: None)
        given = draws_of(small, path, monkeypatch)
    assert not path.exists()
    assert not draws_of(small, path, monkeypatch)
    obs = read(path).obs
    assert obs["batch"].tolist() == np.array(["x", "y"])[given["batch"]].tolist() and obs["batch"].nunique() == 2
    assert (obs["drawn_conditions"] == "age, batch").all()


def wait_and_generate(model: TokenDiffusion, path: Path, started: Any, go_on: Any) -> None:
    """In another process: stop within the first chunk until it may go on."""
    sample = _chunked_generation.sample_chunk

    def slowly(*arguments: Any) -> Any:
        started.set()
        go_on.wait(60)
        return sample(*arguments)

    _chunked_generation.sample_chunk = slowly
    torch.set_num_threads(1)
    model.generate_to(path, TABLE, chunk_size=4, n_steps=4, silent=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the other process is forked")
@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_second_process_learns_of_the_first(
    is_killed: bool, name: str, generate: Generate, small: TokenDiffusion, tmp_path: Path
) -> None:
    """It changes nothing; the first one's file is whole, and if that was killed, the same call goes on at once."""
    fork = multiprocessing.get_context("fork")
    started, go_on = fork.Event(), fork.Event()
    process = fork.Process(target=wait_and_generate, args=(small, tmp_path / name, started, go_on))
    process.start()
    try:
        assert started.wait(60)
        with pytest.raises(RuntimeError, match=rf"process {process.pid} on .* is generating .*{name}. Wait until"):
            generate(TABLE, name=name)
    finally:
        process.kill() if is_killed else go_on.set()
        process.join(60)
    assert (tmp_path / name).exists() == (not is_killed)
    one, other = generate(TABLE, name=name), generate(TABLE, name=f"other_{name}")
    np.testing.assert_array_equal(one.X.toarray(), other.X.toarray())
    pd.testing.assert_frame_equal(one.obs, other.obs)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, f"other_{name}"]
