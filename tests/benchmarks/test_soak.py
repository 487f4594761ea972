"""Memory over many calls."""

from pathlib import Path

import pytest
from benchmarks import render, soak
from benchmarks._memory import STATUS
from benchmarks._record import read_result


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells the memory of a process")
@pytest.mark.usefixtures("_small_study")
def test_a_short_run_is_written_and_rendered(tmp_path: Path) -> None:
    soak.main(["--quick", "--threads", "1", "--output", str(tmp_path / "results")])
    result = read_result(tmp_path / "results" / "soak.json")
    assert result["generated"] == list(range(0, soak.QUICK_CELLS + 1, soak.QUICK_CELLS_A_CALL))
    assert all(100 < resident < 20_000 for resident in result["resident"])
    page = render.render(tmp_path / "results", tmp_path)["speed.md"].read_text()
    assert soak.soak_table(result) in page
