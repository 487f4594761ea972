"""The study of hierarchies: whom it trains on and scores, and what is asked of parents."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks._data import FOLDER, PAUL15, load_split
from benchmarks.studies import hierarchy
from scipy import sparse

needs_cells = pytest.mark.skipif(not (FOLDER / PAUL15).exists(), reason="the data is not there")


@needs_cells
def test_leaves_lie_within_parents_and_cells_have_one_use() -> None:
    train = hierarchy.training_cells("paul15", 0)
    assert set(train.obs_names) <= set(load_split("paul15", 0).train.obs_names)
    assert (train.obs.groupby("leaf")["parent"].nunique() == 1).all()
    for cut in ([], hierarchy.CUT["paul15"]):
        parts = hierarchy.in_parts(train, 0, cut)
        uses = Counter(name for part in parts for name in part.obs_names)
        assert set(uses.values()) == {1}
        if cut:
            n_cells = parts.fit.obs["leaf"].value_counts()
            assert (n_cells[cut] == 10).all() and set(parts.scored.obs["leaf"]) == set(cut)
        else:
            assert len(uses) == train.n_obs


def test_plain_labels_below_a_parent_are_as_frequent_as_in_training() -> None:
    fit = pd.DataFrame({"parent": ["T"] * 10 + ["B"] * 5, "leaf": ["CD4"] * 8 + ["CD8"] * 2 + ["B"] * 5})
    obs = pd.DataFrame({"parent": ["T"] * 2000 + ["B"] * 9, "leaf": "unknown"})
    table = hierarchy.parents_given(obs, fit, "plain labels", 0)
    assert (table["leaf"][:2000] == "CD4").mean() == pytest.approx(0.8, abs=0.03)
    assert set(table["leaf"][2000:]) == {"B"}
    assert list(hierarchy.parents_given(obs, fit, "hierarchy", 0)) == ["parent"]


def test_cells_of_the_leaf_follow_its_change_and_cells_of_its_sibling_do_not() -> None:
    """Two leaves of known means: copies of a leaf score as the leaf, those of its sibling as another one."""
    rng = np.random.default_rng(0)
    rates = {"a": rng.gamma(2.0, size=60), "b": rng.gamma(2.0, size=60)}

    def cells(leaf: str, of: str, n: int = 80) -> AnnData:
        obs = pd.DataFrame({"parent": "p", "leaf": leaf}, index=map(str, range(n)))
        return AnnData(sparse.csr_matrix(rng.poisson(5 * rates[of], (n, 60)).astype(np.float32)), obs)

    known = AnnData(
        sparse.vstack([cells(leaf, leaf).X for leaf in rates], format="csr"),
        pd.DataFrame({"parent": "p", "leaf": np.repeat(list(rates), 80)}, index=map(str, range(160))),
    )
    parts = hierarchy.Cells(known, known, cells("a", "a"))
    same, other = (hierarchy.of_leaves(parts, cells("a", of), ["a"]) for of in ("a", "b"))
    assert same["Pearson of the change"] > 0.9 > -0.9 > other["Pearson of the change"]
    assert same["recognised, real"] == same["recognised, generated"] == 1 and other["recognised, generated"] == 0


@needs_cells
def test_the_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchy, "MOST_CELLS", 400)
    monkeypatch.setattr(hierarchy, "N_TREES", 10)
    monkeypatch.setitem(hierarchy.CUT, "paul15", ["2Ery", "14Mo"])
    output = tmp_path / "runs.jsonl"
    options = ["--data", "paul15", "--seeds", "0", "--quick", "--threads", "1", "--output", str(output)]
    hierarchy.main([*options, "--variants", "hierarchy"])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [run["setting"] for run in runs] == ["all cells", "leaves cut"]
    assert 0 < runs[0]["scores"]["parent AUC, genes"] <= 1 and 0 <= runs[1]["scores"]["recognised, generated"] <= 1
    assert "| paul15 | hierarchy | leaves cut |" in capsys.readouterr().out
