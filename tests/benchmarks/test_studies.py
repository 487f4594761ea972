"""Studies of variants of the model: their table, and a run."""

import json
from pathlib import Path

import pytest
from benchmarks._variants import study_table
from benchmarks.studies import gene_means


def test_a_table_has_the_last_run_of_each_seed() -> None:
    runs = [("a", 0, 9.0), ("a", 0, 1.0), ("a", 1, 2.0), ("a", 2, 4.0), ("b", 0, None)]
    lines = [{"size": size, "seed": seed, "scores": {"nll": score}, "environment": {}} for size, seed, score in runs]
    assert study_table(lines, {"nll": 1}).splitlines()[2:] == ["| a | 2.0 (1.0 to 4.0) |", "| b | - |"]


@pytest.mark.usefixtures("_small_study")
def test_a_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gene_means, "N_TREES", 10)
    monkeypatch.setattr(gene_means, "N_DRAWS", 1)
    options = "--data pbmc68k --seeds 0 --quick --threads 1".split()
    gene_means.main([*options, "--output", str(tmp_path / "runs.jsonl")])
    runs = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [run["variant"] for run in runs] == ["shuffled genes", "not calibrated", "default"]
    assert all(0 < run["scores"]["auc_forest_genes"] <= 1 for run in runs)
    assert "| pbmc68k | shuffled genes |" in capsys.readouterr().out
