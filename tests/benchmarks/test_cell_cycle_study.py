"""The study of the cell cycle: genes by any spelling, and a table of the bundled cells."""

from __future__ import annotations

import pandas as pd
import pytest
from benchmarks.studies import cell_cycle


def test_genes_of_human_and_mouse_are_found() -> None:
    assert cell_cycle.programs_in(pd.Index(["MCM5", "TOP2A", "ACTB"])) == {"S": ["MCM5"], "G2M": ["TOP2A"]}
    assert cell_cycle.programs_in(pd.Index(["Pcna", "Mki67", "Ung"])) == {"S": ["Pcna", "Ung"], "G2M": ["Mki67"]}


def test_a_table_has_all_sides(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(cell_cycle, "DATA", ("pbmc68k",))
    cell_cycle.main(["--data", "pbmc68k", "--seeds", "0", "--max-epochs", "1", "--threads", "1"])
    header, _, *rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert all(name in header for name in cell_cycle.COLUMNS)
    assert len(rows) == 2 * 3  # groups by spread of each phase and their correlation
