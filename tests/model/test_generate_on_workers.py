"""Generating on a Dask cluster: the very cells of one process, also when a worker dies."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import torch
from own_process import fork_server

from scdiffgen.io import _whole_files
from scdiffgen.model import TokenDiffusion

dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")

N_CHUNKS = 12
OPTIONS = {"n_steps": 4, "chunk_size": 10, "silent": True}
TABLE = pd.DataFrame({"cell_type": ["a", "b"], "n_cells": [50, 10 * N_CHUNKS - 50]})


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two processes of one thread each, forked from one that has imported the package: those that die start quickly."""
    if not hasattr(os, "fork"):
        pytest.skip("processes are forked")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    method = fork_server().get_start_method()
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": method}),
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(torch.set_num_threads, 1)
        yield client


def assert_same_file(one: Path, other: Path) -> None:
    there, expected = ad.read_h5ad(one), ad.read_h5ad(other)
    np.testing.assert_array_equal(there.X.toarray(), expected.X.toarray())
    pd.testing.assert_frame_equal(there.obs, expected.obs)


def test_workers_generate_what_one_process_does(client: Any, small: TokenDiffusion, tmp_path: Path) -> None:
    there = small.generate_to(tmp_path / "workers.h5ad", TABLE, client=client, seed=3, **OPTIONS)
    here = small.generate_to(tmp_path / "here.h5ad", TABLE, seed=3, **OPTIONS)
    assert_same_file(there, here)


@pytest.mark.parametrize("n_killed", [1, 2])
def test_a_worker_that_dies_half_way_changes_nothing(
    n_killed: int, client: Any, small: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two; and then both, with the model that they had been sent."""
    write, written = _whole_files.ChunkedFile.write, []

    def write_and_kill(self: _whole_files.ChunkedFile, chunk: int, counts: Any) -> None:
        write(self, chunk, counts)
        written.append(chunk)
        if len(written) == N_CHUNKS // 2:
            for pid in list(client.run(os.getpid).values())[:n_killed]:
                os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(_whole_files.ChunkedFile, "write", write_and_kill)
    there = small.generate_to(tmp_path / "workers.h5ad", TABLE, client=client, **OPTIONS)
    assert sorted(written) == list(range(N_CHUNKS))
    monkeypatch.undo()
    assert_same_file(there, small.generate_to(tmp_path / "here.h5ad", TABLE, **OPTIONS))


def test_what_is_no_client_is_named(small: TokenDiffusion, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"`client` is 2: pass a synchronous `distributed.Client\(...\)`"):
        small.generate_to(tmp_path / "cells.h5ad", TABLE, client=2, **OPTIONS)


def test_without_dask_an_extra_is_named(small: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"`client` needs Dask: pip install 'scdiffgen\[distributed\]'"):
        small.generate_to(tmp_path / "cells.h5ad", TABLE, client=object(), **OPTIONS)
