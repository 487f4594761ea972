"""The study of how genes of tokens are ranked: what it counts as found, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.studies import token_ranking

GENES = pd.Index([f"G{i}" for i in range(100)])
MARKERS = {"first": "G0 G1 G2 G3", "second": "G50 G51 G52 ABSENT", "few": "G60 ABSENT"}


def test_markers_are_counted_in_the_program_that_has_most_of_them() -> None:
    ordered = np.zeros((100, 2))
    ordered[[0, 1, 50], 0] = 3
    ordered[[50, 51, 52, 2], 1] = 3
    found = token_ranking.scores(ordered, GENES, np.full(100, 0.25), MARKERS)
    assert found["top 10, first of 4"] == 4  # genes that are level keep their order
    assert found["top 10, second of 3"] == 3 and found["markers in top 10"] == 1
    assert found["share of cells"] == 0.25 and not any("few" in name for name in found)


def test_a_token_has_two_ends_and_a_factor_one() -> None:
    ordered = -np.arange(100.0)[:, None]
    ends = {method: token_ranking.both_ends(method, ordered) for method in ("tokens", "NMF")}
    top = {name: set(np.argsort(-each, axis=0)[:10].ravel()) for name, each in ends.items()}
    assert top["NMF"] == {*range(10)} and top["tokens"] == {*range(10), *range(90, 100)}


def test_runs_are_written_and_trainings_kept(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    options = ["--data", "pbmc68k", "--seeds", "0", "--quick", "--threads", "1", "--output", str(tmp_path)]
    for _ in range(2):  # the second reads what the first has trained
        token_ranking.main(options)
    lines = (tmp_path / "study-token-ranking.jsonl").read_text().splitlines()
    orders = [(run["method"], run["order"]) for run in map(json.loads, lines)]
    assert orders.count(("tokens", "regression")) == 1 and ("NMF", "loadings") in orders
    assert (tmp_path / "parts/token-ranking/pbmc68k-seed0.npz").exists()
    assert "## pbmc68k" in capsys.readouterr().out
