"""No file of a model hangs or fills the memory when it is loaded, and none makes cells that no cells are like."""

import json
from pathlib import Path
from typing import Any

import pytest
from own_process import run_script
from small_cells import simulated_cells

pytest.importorskip("resource", reason="limits of memory and time are those of Unix")
import attacked_files

from scdiffgen.model import TokenDiffusion

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of a process is read there")
NAMES = [act.__name__ for act in attacked_files.ATTACKS]


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """How loading ended, and reading the registry alone, by attack."""
    folder = tmp_path_factory.mktemp("attacked")
    printed = run_script(Path(attacked_files.__file__), folder, folder=folder)
    found: dict[str, dict[str, Any]] = {}
    for line in filter(lambda line: line.startswith('{"attack"'), printed.splitlines()):
        ending = json.loads(line)
        found.setdefault(ending["attack"], {})[ending["read"]] = ending
    return found


def test_the_genuine_file_is_read_within_the_limits(endings: dict[str, dict[str, Any]]) -> None:
    assert {ending["ended"] for ending in endings["genuine"].values()} == {"read"}


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_is_refused_before_anything_is_built(name: str, endings: dict[str, dict[str, Any]]) -> None:
    ending = endings[name]["load"]
    assert ending["ended"] == "ValueError", ending
    assert ending["said"].startswith("`dir_path`: ") and "allocate" not in ending["said"]
    assert len(ending["said"]) < 900
    assert ending["grown"] < 200  # MB


@pytest.mark.parametrize("name", NAMES)
def test_reading_the_registry_alone_is_bounded_too(name: str, endings: dict[str, dict[str, Any]]) -> None:
    ending = endings[name]["load_registry"]
    assert ending["ended"] in ("read", "ValueError"), ending
    assert ending["grown"] < 200


def test_every_name_is_there_once() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_a_reference_in_a_folder_is_checked_as_well(tmp_path: Path) -> None:
    attacked_files.ATTACKS[0](tmp_path / "model.pt")
    with pytest.raises(ValueError, match="`dir_path`: .*more layers than weights"):
        TokenDiffusion.load_query_data(simulated_cells(10), tmp_path)
