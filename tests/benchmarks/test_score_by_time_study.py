"""The study of scores by time of training: its runs, cells of other programs, and its figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks._data import LABEL, load_split
from benchmarks.studies import score_by_time


@pytest.mark.usefixtures("_small_study")
def test_programs_and_cells_of_others_are_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_by_time, "N_STEPS", 2)
    monkeypatch.setattr(score_by_time, "N_TREES", 20)
    split, output = load_split("pbmc68k", 0), tmp_path / "runs.jsonl"
    copies = split.held_out.copy()
    copies.obs = copies.obs[[LABEL]].astype(str)
    copies.uns["recipe"] = {"budget_seconds": 60.0, "training_seconds": {"all": 59.0}}
    copies.write_h5ad(tmp_path / "pbmc68k-seed0.h5ad")
    common = ["--data", "pbmc68k", "--seeds", "0", "--quick", "--threads", "1", "--output", str(output)]
    score_by_time.main([*common, "--external", f"Copies={tmp_path}"])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(run["variant"], run["length"]) for run in runs] == [
        ("scdiffgen", "2 epochs"),
        ("scVI", "2 epochs"),
        ("Copies", "allowed seconds: 60.0"),
    ]
    ours, scvi, same = (run["scores"] for run in runs)
    assert same["seconds"] == 59 and min(ours["seconds"], scvi["seconds"]) > 0
    assert same["forest AUC, genes"] < 0.5 < min(ours["forest AUC, genes"], scvi["forest AUC, genes"])
    assert "| pbmc68k | Copies | allowed seconds: 60.0 |" in capsys.readouterr().out
    components, genes = score_by_time.curves(runs).axes
    assert [line.get_xydata().tolist() for line in genes.lines[:3]] == [
        [[run["scores"]["seconds"], run["scores"]["forest AUC, genes"]]] for run in runs
    ]
    assert components.get_xscale() == "log"
