import tomllib
from pathlib import Path

import pytest

import scdiffgen


def test_version_is_the_one_declared() -> None:
    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert scdiffgen.__version__ == declared["project"]["version"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        scdiffgen.nonsense  # noqa: B018
