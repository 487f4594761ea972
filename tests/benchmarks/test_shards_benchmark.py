"""Costs of cells in shards: what is said of the numbers, and a short run where annbatch is installed."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks import render, shards
from benchmarks._record import environment, write_result

RESULT = {
    "benchmark": "shards",
    "environments": [environment(1, [0])],
    "data": {"n_genes": 2_000, "n_steps": 300},
    "write": [{"n_cells": 9_000, "n_workers": 2, "cells_per_second": 700.4, "peak_memory": 900, "peak_of_a_worker": 1}],
    "read": [{"source": "cells.zarr", "n_cells": 9_000, "cells_per_second": 50_000, "peak_memory": 800}],
    "train": [
        {"model": "scdiffgen", "source": "cells.zarr", "n_processes": 2, "seed": seed, "cells_per_second": 3_000 + seed}
        | {"loss": 5.5 + seed, "peak_memory": 1_000}
        for seed in range(3)
    ],
    "cost": [shards.BASE | {"scdiffgen training": 3_500, "scVI generating": 20_000}],
}


def test_tables_are_on_the_page_of_speed(tmp_path: Path) -> None:
    write_result(tmp_path / "results", "shards", RESULT)
    page = render.render(tmp_path / "results", tmp_path)["speed.md"].read_text()
    for row in (
        "| writing, 2 Dask workers | 9,000 | 700 | 238 | 900 | 1 |",
        "| reading .zarr by annbatch | 9,000 | 50,000 | 3 | 800 | - |",
        "| scdiffgen | .zarr by annbatch | 2 | 3,002 | 1,000 | 6.5000 (5.5000 to 7.5000) |",
        "| small | 2,000 | 256 | 1 | 16 | 3,500 | - | - | 20,000 |",
    ):
        assert row in page


@pytest.mark.skipif(not find_spec("annbatch"), reason="needs annbatch")
@pytest.mark.filterwarnings("ignore")  # of zarr and annbatch
def test_written_cells_are_read_by_both(tmp_path: Path) -> None:
    written = shards.write(tmp_path, 300, 1e3, 500, 30)
    assert written["n_cells"] == 300
    for source, n_cells in ((shards.ZARR, 256), (shards.H5AD, 300)):  # annbatch drops the last minibatch
        assert shards.read(tmp_path, 1, source)["n_cells"] == n_cells
