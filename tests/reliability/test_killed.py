"""Whatever the moment at which a process is killed, the last model that was whole loads, and nothing half-written."""

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from own_process import run_script

from scdiffgen.model import TokenDiffusion

HERE = Path(__file__).parent
OLD, NEW = 1.0, 2.0

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")


@pytest.fixture(scope="module")
def deaths(tiny: TokenDiffusion, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What was found after each death, by how it came."""
    folder = tmp_path_factory.mktemp("killed")
    tiny.save(folder / "trained", save_anndata=True)
    printed = run_script(HERE / "killed.py", folder / "work", folder / "trained", folder=folder)
    found = defaultdict(list)
    for line in printed.splitlines():
        if line.startswith('{"how"'):
            death = json.loads(line)
            found[death.pop("how")].append(death)
    return found


def marks(deaths: list[dict[str, Any]]) -> list[float | None]:
    return [death["mark"] for death in deaths]


def test_a_new_model_is_there_as_a_whole_or_not_at_all(deaths: dict[str, list[dict[str, Any]]]) -> None:
    found = deaths["new"]
    assert set(marks(found)) == {None, NEW}
    assert found[-1]["whole"] and not any(death["whole"] for death in found[:-1])


def test_a_model_that_is_replaced_is_the_old_one_or_the_new_one(deaths: dict[str, list[dict[str, Any]]]) -> None:
    found = marks(deaths["over"])
    assert set(found) == {OLD, NEW}
    assert found == sorted(found)  # first the deaths before the moment of replacement, then those after it
    assert set(marks(deaths["often"])) <= {OLD, NEW}
    assert len(deaths["often"]) == 4


def test_what_loads_has_its_cells_and_generates(deaths: dict[str, list[dict[str, Any]]]) -> None:
    there = [death for how in ("new", "over", "often") for death in deaths[how] if death["mark"] is not None]
    assert {death["cells"] for death in there} == {60}
    assert {death["generated"] for death in there} == {2}


def test_every_checkpoint_of_a_training_that_was_killed_loads_and_generates(
    deaths: dict[str, list[dict[str, Any]]],
) -> None:
    assert len(deaths["training"]) >= 3
    assert all(death == {"generated": 2, "known": 120} for death in deaths["training"])
