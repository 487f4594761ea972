"""The study of disclosure: a run, and its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.studies import disclosure


@pytest.mark.usefixtures("_small_study")
def test_the_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, variants = (
        tmp_path / "runs.jsonl",
        [disclosure.REAL, disclosure.COPIES, "shuffled genes", "weight decay 20"],
    )
    options = ["--data", "pbmc68k", "--seeds", "0", "--quick", "--threads", "1", "--output", str(output)]
    disclosure.main([*options, "--variants", *variants])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [run["variant"] for run in runs] == variants
    real, copies, *_ = (run["attacks"][0] for run in runs)
    assert copies["auc"] == 1.0 and real["auc_low"] < 0.5 < real["auc_high"]
    assert real["n_members"] == real["n_non_members"]
    assert all(0 < run["scores"]["auc_forest_genes"] <= 1 for run in runs[2:])
    assert "| pbmc68k | training cells | 1.000 | 1.000 | 1.000 |" in capsys.readouterr().out
