from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import scdiffgen


def test_version_is_the_one_declared() -> None:
    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert scdiffgen.__version__ == declared["project"]["version"]


@pytest.mark.parametrize("name", sorted(set(scdiffgen.__all__) - {"__version__"}))
def test_every_public_package_loads_and_says_what_it_has(name: str) -> None:
    package = getattr(scdiffgen, name)
    assert all(hasattr(package, public) for public in package.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        scdiffgen.nonsense  # noqa: B018


def test_importing_the_package_loads_no_heavy_library() -> None:
    command = "import sys, scdiffgen; print(sorted({'torch', 'scvi', 'scanpy', 'numpy'} & set(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
