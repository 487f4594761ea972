"""meta.yaml has what the registry of scverse asks for, and says of the package what the package says of itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import yaml

ROOT = Path(__file__).parents[1]
ENTRY = yaml.safe_load((ROOT / "meta.yaml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = (
    "name description project_home documentation_home install primary_category tags license language contact category"
).split()


def test_nothing_that_is_asked_for_is_missing() -> None:
    assert [key for key in REQUIRED if not ENTRY.get(key)] == []
    assert ENTRY["category"] == "ecosystem"
    assert all(isinstance(tag, str) for tag in ENTRY["tags"]) and len(set(ENTRY["tags"])) == len(ENTRY["tags"])


def test_addresses_are_addresses() -> None:
    addresses = [urlsplit(value) for key, value in ENTRY.items() if key.endswith("_home") or key == "inventory"]
    assert len(addresses) == 4
    assert all(address.scheme == "https" and address.netloc for address in addresses)


def test_it_says_what_the_package_says() -> None:
    assert ENTRY["name"] == ENTRY["install"]["pypi"] == PROJECT["name"]
    assert ENTRY["version"] == PROJECT["version"]
    assert ENTRY["license"] == PROJECT["license"]
    extra = ENTRY["test_command"].split('"')[1]
    assert extra == ".[test]" and "test" in PROJECT["optional-dependencies"]


def test_citations_are_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    readme = (ROOT / "README.md").read_text()
    assert cited["version"] == PROJECT["version"] == re.search(r"version = \{(.+)\}", readme).group(1)
    assert cited["license"] == PROJECT["license"]
    assert f"title   = {{{cited['title']}}}" in readme
