"""What a docstring cites is in the bibliography; building the pages cannot check private modules, which have none."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_cited_work_is_in_the_bibliography() -> None:
    known = set(re.findall(r"@\w+\{([^,\s]+),", (ROOT / "docs/references.bib").read_text()))
    text = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    cited = {key.strip() for keys in re.findall(r":cite:\w+:`([^`]+)`", text) for key in keys.split(",")}
    assert cited - known == set()
