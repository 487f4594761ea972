"""Writing a folder so that it is whole or not there: a kill at any moment leaves what was there before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

PARTIAL = ".partial"


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder; what is written there appears in ``folder`` when all of it is on the disk.

    A folder that is new appears at once, and those above it are made. In one that exists, each file replaces its
    namesake at once, in the order in which they were written, and other files stay. When the block raises, nothing
    appears. After a kill, what was written so far lies in a hidden folder whose name ends with ``.partial``, and may be
    removed.
    """
    folder = folder.resolve()
    exists = folder.is_dir()
    above = folder if exists else folder.parent  # on the same disk, so that a rename moves no data
    above.mkdir(parents=True, exist_ok=True)
    partial = above / f".{folder.name}-{uuid4().hex[:8]}{PARTIAL}"
    partial.mkdir()
    try:
        yield partial
        files = sorted(partial.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        for file in files:
            reach_the_disk(file)
        reach_the_disk(partial)
        if exists:
            for file in files:
                file.replace(folder / file.name)
            reach_the_disk(folder)
        else:
            partial.rename(folder)
            reach_the_disk(above)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def reach_the_disk(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, would survive a power cut."""
    if path.is_dir():
        if os.name == "nt":  # Windows has no such call for folders
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    else:
        with path.open("rb+") as file:
            os.fsync(file.fileno())
