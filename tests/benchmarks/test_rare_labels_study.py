"""The study of rare labels: whom it judges by, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from anndata import AnnData
from benchmarks._data import DATASETS, FOLDER, LABEL, PAUL15, load_split
from benchmarks.studies import rare_labels
from scipy import sparse

needs_cells = pytest.mark.skipif(not (FOLDER / PAUL15).exists(), reason="the data is not there")


@needs_cells
def test_the_judge_sees_neither_cells_of_the_training_nor_those_that_are_held_out() -> None:
    split = load_split("paul700", 0)
    others = rare_labels.other_training_cells("paul700", 0, split.train)
    used = split.train.n_obs + split.held_out.n_obs + split.other.n_obs
    assert others.n_obs == DATASETS["paul15"].load().n_obs - used
    for part in (split.train, split.held_out, split.other):
        assert not set(others.obs_names) & set(part.obs_names)


def test_labels_that_nothing_tells_apart_are_recognised_by_chance() -> None:
    """Two labels of the same distribution, one of them rare: the judge is right for about half of real cells."""
    random = np.random.default_rng(0)

    def cells(n_common: int, n_rare: int) -> AnnData:
        adata = AnnData(sparse.csr_matrix(random.poisson(2.0, (n_common + n_rare, 60)), dtype=np.float32))
        adata.obs[LABEL] = ["common"] * n_common + ["rare"] * n_rare
        return adata

    scores = rare_labels.measure(cells(100, 10), cells(200, 200), seed=0, max_epochs=1)
    real = (scores["real, fewer than 20"] + scores["real, 70 and more"]) / 2
    assert 0.4 < real < 0.6 and np.isnan(scores["real, 20 to 69"])


@needs_cells
def test_runs_are_added_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    output = tmp_path / "study.jsonl"
    options = ["--data", "paul700", "--seeds", "0", "--quick", "--threads", "1", "--output", str(output)]
    rare_labels.main([*options, "--variants", "default"])
    (run,) = [json.loads(line) for line in output.read_text().splitlines()]
    assert run["variant"] == "default" and 0 <= run["scores"]["generated, fewer than 20"] <= 1
    assert "| paul700 | default |" in capsys.readouterr().out
