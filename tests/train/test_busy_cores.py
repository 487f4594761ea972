"""A warning of training on a machine whose cores are busy, from the load average."""

import os
import warnings

import pytest
import torch
from small_cells import simulated_cells, small_model

from scdiffgen.train import _plan


@pytest.mark.parametrize(("load", "n_threads", "warns"), [(9.0, 4, True), (9.0, 1, False), (4.6, 4, False)])
def test_busy_cores_are_named_with_the_way_out(load: float, n_threads: int, warns: bool) -> None:
    with warnings.catch_warnings(record=True, action="always") as caught:
        _plan.warn_of_busy_cores(load, 4, n_threads)
    said = "9 threads are running on 4 cores, and the 4 threads of PyTorch wait for one another"
    way_out = "OMP_NUM_THREADS=1 and NUMBA_NUM_THREADS=1"
    assert [said in str(w.message) and way_out in str(w.message) for w in caught] == [True] * warns


@pytest.mark.parametrize("load", [None, 100.0], ids=["Windows", "busy"])
def test_training_looks_at_the_load_once_where_there_is_one(
    load: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if load is None:
        monkeypatch.delattr(os, "getloadavg", raising=False)
    else:
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    with warnings.catch_warnings(record=True, action="always") as caught:
        small_model(simulated_cells(60)).train(max_epochs=1, accelerator="cpu", enable_progress_bar=False)
    assert sum("threads are running" in str(w.message) for w in caught) == (load is not None)
