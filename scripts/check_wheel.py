"""Whether a wheel is small and holds the package, its data and its licence, and nothing else.

``python scripts/check_wheel.py dist/*.whl``
"""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile

LIMIT = 2_000_000  # bytes


def faults(wheel: Path) -> list[str]:
    """What is wrong with a wheel."""
    names = ZipFile(wheel).namelist()
    found = []
    if (size := wheel.stat().st_size) >= LIMIT:
        found.append(f"it has {size:,} bytes, {LIMIT:,} or more")
    if strangers := [name for name in names if not name.startswith(("scdiffgen/", "scdiffgen-"))]:
        found.append(f"it holds {strangers[:3]}, which are no part of the package")
    needed = ("scdiffgen/py.typed", "/licenses/LICENSE", "METADATA")
    found += [f"it has no {name}" for name in needed if not any(held.endswith(name) for held in names)]
    return found


def main(wheels: list[str]) -> None:
    if len(wheels) != 1:
        sys.exit(f"One wheel is wanted, these are {len(wheels)}: {wheels}.")
    (wheel,) = map(Path, wheels)
    if found := faults(wheel):
        sys.exit(f"{wheel}: {'; '.join(found)}.")
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
