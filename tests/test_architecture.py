"""Who may import whom: the contracts in pyproject.toml hold, and no package goes without one."""

import tomllib
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PACKAGES = {f"scdiffgen.{found.parent.name}" for found in (ROOT / "src/scdiffgen").glob("*/__init__.py")}
MODULES = {f"scdiffgen.{found.stem}" for found in (ROOT / "src/scdiffgen").glob("*.py")} - {"scdiffgen.__init__"}


def test_contracts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logging.config.dictConfig", lambda _: None)  # which would silence the loggers of other tests
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == EXIT_STATUS_SUCCESS


def test_every_package_has_a_contract() -> None:
    assert PACKAGES - {package for contract in CONTRACTS for package in contract["source_modules"]} == set()


@pytest.mark.parametrize(
    ("alone", "allowed"), [("scdiffgen.datasets", {"scdiffgen._log_normalise"}), ("scdiffgen.diffusion", set())]
)
def test_what_stands_alone_sees_nothing_else_of_ours(alone: str, allowed: set[str]) -> None:
    (forbidden,) = (contract["forbidden_modules"] for contract in CONTRACTS if contract["source_modules"] == [alone])
    assert (PACKAGES | MODULES) - {alone} - set(forbidden) == allowed
