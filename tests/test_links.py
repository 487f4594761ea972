"""Links within the repository lead somewhere; `make linkcheck` asks those that leave it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks/LOG.md"]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
BUILT = {"docs/tutorials": ROOT / "tutorials"}  # notebooks are copied there when the documentation is built


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_points_to_is_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = [target for target in LINK.findall(text) if not re.match(r"\w+:", target)]
    assert [target for target in targets if not there((page.parent / target).resolve())] == []


def there(path: Path) -> bool:
    """Whether a file is there, or will be."""
    copied = [source / path.name for folder, source in BUILT.items() if path.parent == ROOT / folder]
    return path.exists() or any(source.exists() for source in copied)
