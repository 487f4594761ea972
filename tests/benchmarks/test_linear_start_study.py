from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks._data import LABEL, load_split
from benchmarks.studies import linear_start


def test_only_training_cells_are_split() -> None:
    """Held-out cells of the study are a quarter of each label of the training cells, and never held out elsewhere."""
    whole = load_split("pbmc68k", 0)
    inner = linear_start.inner_split(whole)
    parts = [set(part.obs_names) for part in (inner.train, inner.held_out)]
    assert parts[0] | parts[1] == set(whole.train.obs_names) and not parts[0] & parts[1]
    wanted, found = (cells.obs[LABEL].value_counts() for cells in (whole.train, inner.held_out))
    assert (abs(found.reindex(wanted.index, fill_value=0) - wanted / 4) <= 0.5).all()


@pytest.mark.usefixtures("_small_study")
def test_runs_are_added_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    output = tmp_path / "study.jsonl"
    common = ["--data", "pbmc68k", "--threads", "1", "--output", str(output)]
    linear_start.main([*common, "--seeds", "0", "--quick", "--variants", "default", "as before"])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [run["variant"] for run in runs] == ["default", "as before"]
    capsys.readouterr()
    linear_start.main([*common, "--variants"])
    assert f"| as before | {runs[1]['scores']['seconds']:.0f} | " in capsys.readouterr().out
