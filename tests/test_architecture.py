"""Who may import whom: the contracts in pyproject.toml hold, and every module is in a layer."""

import tomllib
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def test_contracts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logging.config.dictConfig", lambda _: None)  # which would silence the loggers of other tests
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == EXIT_STATUS_SUCCESS


def test_a_module_without_a_layer_breaks_the_contract_of_layers() -> None:
    (layers,) = (contract for contract in CONTRACTS if contract["type"] == "layers")
    assert layers["exhaustive"] and layers["containers"] == ["scdiffgen"]
    assert layers["layers"][-1] == "diffusion | normal_scores | _log_normalise"  # what imports nothing of ours
