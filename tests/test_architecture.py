"""Who may import whom: the contracts in pyproject.toml hold, and no package goes without one."""

from __future__ import annotations

import tomllib
from pathlib import Path

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]


def test_contracts_hold() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == EXIT_STATUS_SUCCESS


def test_every_package_has_a_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    bound = {package for contract in settings["contracts"] for package in contract["source_modules"]}
    packages = {f"scdiffgen.{found.parent.name}" for found in (ROOT / "src/scdiffgen").glob("*/__init__.py")}
    assert packages - bound == set()
