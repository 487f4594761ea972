"""The study of how long draws take: both ways draw the same numbers of molecules by the same law."""

from __future__ import annotations

import pytest
import torch
from benchmarks.studies import draw_time
from scipy import stats

from scdiffgen.diffusion._draws import draw_by_gamma


def test_both_ways_have_the_same_law() -> None:
    cells = draw_time.growing_cells(14, 300)
    counts = [
        torch.bincount(draw(*cells), minlength=cells[0].numel()).view_as(cells[0])
        for draw in (draw_time.by_gamma_variables, draw_by_gamma)
    ]
    for each in counts:
        assert (each.sum(1) == cells[2]).all()
    for gene in range(14):
        assert stats.ks_2samp(counts[0][:, gene], counts[1][:, gene]).pvalue > 1e-4


def test_the_table_has_a_row_for_each_size(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(draw_time, "SIZES", {"14 proteins": (14, 100), "30 genes": (30, 100)})
    draw_time.main(["--turns", "1"])
    rows = capsys.readouterr().out.splitlines()
    assert [row.split(" |")[0] for row in rows[2:]] == ["| 14 proteins", "| 30 genes"]
