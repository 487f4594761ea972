"""The study of sizes: what it trains on and is scored on, and what studies have in common."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks._data import LABEL, load_split
from benchmarks._variants import study_table
from benchmarks.studies import sizes


def test_fewer_cells_are_training_cells_and_scores_are_on_other_real_cells() -> None:
    whole = load_split("pbmc68k", 0)
    split = sizes.fewer_cells(whole, 100)
    assert split.train.n_obs == 100
    assert set(split.train.obs_names) <= set(whole.train.obs_names)
    assert set(split.held_out.obs_names) <= set(whole.other.obs_names)
    assert set(split.held_out.obs[LABEL]) <= set(split.train.obs[LABEL])


def test_a_table_has_the_last_run_of_each_seed() -> None:
    runs = [("a", 0, 9.0), ("a", 0, 1.0), ("a", 1, 2.0), ("a", 2, 4.0), ("b", 0, None)]
    lines = [{"size": size, "seed": seed, "scores": {"nll": score}, "environment": {}} for size, seed, score in runs]
    assert study_table(lines, {"nll": 1}).splitlines()[2:] == ["| a | 2.0 (1.0 to 4.0) |", "| b | - |"]


@pytest.mark.usefixtures("_small_study")
def test_the_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "runs.jsonl"
    common = ["--seeds", "0", "--quick", "--threads", "1", "--output", str(output)]
    sizes.main(["--data", "pbmc68k", "--cells", "150", "--variants", "8 x 64, 2 layers", *common])
    run = json.loads(output.read_text())
    assert (run["data"], run["cells"], run["variant"], run["seed"]) == ("pbmc68k", 150, "8 x 64, 2 layers", 0)
    assert 0 < run["scores"]["nats per molecule"] < 10 and 0 < run["scores"]["forest AUC, genes"] <= 1
    assert "| pbmc68k | 8 x 64, 2 layers | 150 | 2 |" in capsys.readouterr().out
