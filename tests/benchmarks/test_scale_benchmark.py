"""Cost against the number of cells: the simulated file, and what is said of the numbers."""

from collections.abc import Callable
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
from benchmarks import _scale_cells, render, scale
from benchmarks._record import read_result
from scipy import stats


def test_simulated_cells_are_of_their_kinds_and_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_scale_cells, "CHUNK", 300)
    _scale_cells.simulate_to(tmp_path / "cells.h5ad", 1_000, 40)
    cells = ad.read_h5ad(tmp_path / "cells.h5ad")
    assert cells.shape == (1_000, 40) and cells.X.has_sorted_indices
    depth = np.asarray(cells.X.sum(1)).ravel()
    assert abs(np.log(np.median(depth) / 1_000)) < 0.1
    of_type = [
        np.asarray(cells.X[(cells.obs["cell_type"] == kind).to_numpy()].sum(0)).ravel() for kind in ("type 0", "type 1")
    ]
    assert stats.chi2_contingency(np.vstack(of_type) + 1).pvalue < 1e-10


def test_a_short_run_is_written_and_rendered(tmp_path: Path, run_here: Callable[..., None]) -> None:
    run_here("-m", "benchmarks.scale", main=scale.main)
    scale.main(["--quick", "--threads", "1", "--output", str(tmp_path / "results"), "--scratch", str(tmp_path)])
    result = read_result(tmp_path / "results" / "scale.json")
    assert [(row["n_cells"], row["source"]) for row in result["rows"]] == [
        (size, source) for size in scale.QUICK_SIZES for source in scale.SOURCES
    ]
    assert all(value > 0 for row in result["rows"] for value in row.values() if not isinstance(value, str))
    page = render.render(tmp_path / "results", tmp_path / "docs")["benchmarks/speed.md"].read_text()
    assert "benchmarks/scale.png" in page
    assert (tmp_path / "docs/_static/benchmarks/scale.png").stat().st_size > 1000
