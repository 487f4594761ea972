"""What is wrong with a wheel is found."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import pytest
from scripts.check_wheel import LIMIT, faults, main

GOOD = {"scdiffgen/py.typed": 0, "scdiffgen-1.dist-info/licenses/LICENSE": 9, "scdiffgen-1.dist-info/METADATA": 9}


def wheel(folder: Path, files: dict[str, int]) -> Path:
    path = folder / "a.whl"
    with ZipFile(path, "w", ZIP_STORED) as archive:
        for name, size in files.items():
            archive.writestr(name, b" " * size)
    return path


def test_a_good_wheel_passes(tmp_path: Path) -> None:
    main([str(wheel(tmp_path, GOOD))])


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (GOOD | {"scdiffgen/big": LIMIT}, f"bytes, {LIMIT:,} or more"),
        (GOOD | {"tests/test_a.py": 1}, "holds ['tests/test_a.py']"),
        ({name: 0 for name in GOOD if "LICENSE" not in name}, "no /licenses/LICENSE"),
        ({name: 0 for name in GOOD if "typed" not in name}, "no scdiffgen/py.typed"),
    ],
    ids=["large", "more than the package", "no licence", "no types"],
)
def test_a_bad_one_is_named_with_its_fault(files: dict[str, int], fault: str, tmp_path: Path) -> None:
    path = wheel(tmp_path, files)
    (found,) = faults(path)
    assert fault in found
    with pytest.raises(SystemExit, match="a.whl: it "):
        main([str(path)])
