"""Cells that are simulated to disk for measurements of cost."""

from pathlib import Path

import anndata as ad
import numpy as np
import pytest
from benchmarks import _scale_cells
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
