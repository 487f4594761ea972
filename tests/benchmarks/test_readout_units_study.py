"""The study of units of the read-out: what it trains, and on which cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.studies import readout_units


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
