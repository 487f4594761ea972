"""The installation page names every extra, and no other; so does the Makefile every command that it tells of."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/installation.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_extra_is_explained() -> None:
    told = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert sorted(told) == sorted(PROJECT["optional-dependencies"])


def test_the_oldest_versions_are_within_the_requirements() -> None:
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    oldest = dict(line.lower().split("==") for line in lines if "==" in line)
    assert set(oldest) >= {re.split(r"[>=\[]", line)[0].lower() for line in PROJECT["dependencies"]}
    for line in [*PROJECT["dependencies"], *sum(PROJECT["optional-dependencies"].values(), [])]:
        name, _, least = line.lower().partition(">=")
        if name in oldest:
            assert parts(oldest[name]) >= parts(least), f"{name} {oldest[name]} is older than {least}"


def test_commands_that_pages_tell_of_are_there() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    told = {name for page in pages for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert told and told <= targets


def parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
