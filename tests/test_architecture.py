"""Who may import whom: the contracts in pyproject.toml hold, every module has a layer, and type names are unique."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/scdiffgen"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def test_contracts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logging.config.dictConfig", lambda _: None)  # which would silence the loggers of other tests
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == EXIT_STATUS_SUCCESS


def test_a_module_without_a_layer_breaks_the_contract_of_layers() -> None:
    (layers,) = (contract for contract in CONTRACTS if contract["type"] == "layers")
    assert layers["exhaustive"] and layers["containers"] == ["scdiffgen"]
    assert layers["layers"][-1] == "diffusion | normal_scores | _log_normalise"  # what imports nothing of ours


def types_of(tree: ast.Module) -> Iterator[str]:
    """Names of classes, type variables and type aliases at the top of a file: names in capitals are constants."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper():
                yield target.id


def test_no_two_files_name_a_type_alike() -> None:
    files = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for name in types_of(ast.parse(path.read_text())):
            files[name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in files.items() if len(found) > 1} == {}


def own_modules() -> set[str]:
    """Names of the classes of processes and networks: other code asks them for abilities, not for their type."""
    files = [path for room in ("module", "nn") for path in (SOURCE / room).rglob("*.py")]
    classes = [node for path in files for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    bases = {node.name: {ast.unparse(base).partition("[")[0] for base in node.bases} for node in classes}
    found = {"nn.Module", "BaseModuleClass", "Path"}
    while more := {name for name, own in bases.items() if own & found} - found:
        found |= more
    return found - {"Path"}  # as the class of the standard library is called


def test_no_code_asks_for_the_type_of_a_process_or_network() -> None:
    modules, faults = own_modules(), []
    assert {"DiffusionModule", "UrnDenoiser", "ScoreCode", "GaussianPath", "TokenNetwork"} <= modules
    for path in sorted(set(SOURCE.rglob("*.py")) - set((SOURCE / "nn").rglob("*.py"))):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        asserted = {part for node in nodes if isinstance(node, ast.Assert) for part in ast.walk(node)}  # for mypy
        for node in nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and node not in asserted:
                is_fault = bool({ast.unparse(part) for part in ast.walk(node.args[1])} & modules)
            else:
                is_fault = isinstance(node, ast.arg) and ast.unparse(node) == "module: Any"
            faults += [f"{path.name}: {ast.unparse(node)}"] * is_fault
    assert faults == []
