"""The study of units of the read-out: what it trains, and on which cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks._data import LABEL, load_split
from benchmarks._variants import inner_split
from benchmarks.studies import readout_units


def test_only_training_cells_are_split() -> None:
    """Held-out cells of the study are a quarter of each label of the training cells, and never held out elsewhere."""
    whole = load_split("pbmc68k", 0)
    inner = inner_split(whole)
    parts = [set(part.obs_names) for part in (inner.train, inner.held_out)]
    assert parts[0] | parts[1] == set(whole.train.obs_names) and not parts[0] & parts[1]
    wanted, found = (cells.obs[LABEL].value_counts() for cells in (whole.train, inner.held_out))
    assert (abs(found.reindex(wanted.index, fill_value=0) - wanted / 4) <= 0.5).all()


@pytest.mark.usefixtures("_small_study")
def test_forms_are_trained_for_a_length_on_parts_of_the_training_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "runs.jsonl"
    common = ["--data", "pbmc68k", "--seeds", "0", "--quick", "--threads", "1", "--output", str(output)]
    readout_units.main([*common, "--variants", "0 units", "32 units"])
    without, with_units = (json.loads(line) for line in output.read_text().splitlines())
    assert (without["variant"], with_units["variant"], without["epochs"]) == ("0 units", "32 units", "2")
    assert 0 < with_units["scores"]["nats per molecule"] != without["scores"]["nats per molecule"] > 0
    assert "| pbmc68k | 32 units | 2 |" in capsys.readouterr().out
