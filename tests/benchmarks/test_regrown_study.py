"""The study of where generated cells go wrong: what is kept of a cell, and that every row is measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from anndata import AnnData
from benchmarks._data import LABEL
from benchmarks.studies import regrown
from small_cells import QUIET, simulated_cells, small_model


def test_a_cell_keeps_its_share_and_its_size() -> None:
    cells = simulated_cells(60)
    model = small_model(cells)
    model.train(max_epochs=1, **QUIET)
    counts, library = cells.X.toarray() if hasattr(cells.X, "toarray") else cells.X, np.asarray(cells.X.sum(1)).ravel()
    for share in (0.0, 0.5, 1.0):
        found = regrown.regrown(model, cells, share, seed=0)
        np.testing.assert_array_equal(np.asarray(found.X.sum(1)).ravel(), library)
        assert ((found.X.toarray() == counts).all(1).mean() > 0.99) == (share == 1.0)
        kept = np.minimum(found.X.toarray(), counts).sum() / counts.sum()
        assert kept >= share - 0.05


def test_halves_have_half_of_each_label() -> None:
    cells = AnnData(np.ones((30, 2)))
    cells.obs[LABEL] = np.repeat(["a", "b"], [20, 10])
    one, other = regrown.halves(cells, seed=0)
    assert sorted([*one.obs_names, *other.obs_names]) == sorted(cells.obs_names)
    assert one.obs[LABEL].value_counts().to_dict() == other.obs[LABEL].value_counts().to_dict() == {"a": 10, "b": 5}


@pytest.mark.usefixtures("_small_study")
def test_every_share_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variant, shares in {regrown.REAL: (0.0, 0.7), regrown.ONCE: (), regrown.THRICE: (0.3,)}.items():
        monkeypatch.setitem(regrown.SHARES, variant, shares)
    for name, number in {"N_DRAWS": 1, "N_STEPS": 2, "N_TREES": 20}.items():
        monkeypatch.setattr(regrown, name, number)
    output = tmp_path / "runs.jsonl"
    regrown.main(["--data", "pbmc68k", "--seeds", "0", "--quick", "--threads", "1", "--output", str(output)])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(run["variant"], run["kept"]) for run in runs] == [(v, s) for v, of in regrown.SHARES.items() for s in of]
    of_real = {run["kept"]: run["scores"]["forest AUC, genes"] for run in runs if run["variant"] == regrown.REAL}
    assert of_real[0.7] < of_real[0.0]  # of a model that has hardly learned anything
    assert "| pbmc68k | real cells | 0.7 |" in capsys.readouterr().out
