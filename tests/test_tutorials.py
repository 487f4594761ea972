"""Tutorials are committed without outputs, and the documentation, which runs them, shows every one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_holds_no_output_of_an_earlier_run(notebook: Path) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    ran = [cell["id"] for cell in cells if cell["cell_type"] == "code" and (cell["outputs"] or cell["execution_count"])]
    assert not ran


def test_the_documentation_shows_every_tutorial() -> None:
    index = (ROOT / "docs/tutorials/index.md").read_text()
    shown = index.split("```{toctree}")[1].split("```")[0].split()[2:]
    assert sorted(shown) == [notebook.stem for notebook in NOTEBOOKS]
