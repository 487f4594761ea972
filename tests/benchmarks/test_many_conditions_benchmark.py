"""Thousands of perturbations: the simulated screen, the scores, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks import many_conditions, render
from benchmarks._many_conditions_cells import CONTROL, FEATURES, OF_FEATURES, PERTURBATION, simulate_screen
from benchmarks._record import read_result
from scipy import stats
from sklearn.linear_model import LinearRegression


def test_simulated_cells_follow_the_effects_that_are_told() -> None:
    screen = simulate_screen(n_seen=200, n_unseen=20, n_genes=30, cells_each=4)
    given = screen.train.obs[PERTURBATION]
    assert given.value_counts()[["P00000", "P00199", CONTROL]].tolist() == [4, 4, 88]
    assert not set(screen.unseen) & set(given) and set(screen.unseen) <= set(screen.train.uns[FEATURES].index)
    counts = screen.train[given == CONTROL].X.sum(0).A1
    assert stats.chisquare(counts, counts.sum() * screen.control_shares).pvalue > 0.001
    counts = screen.train[given == "P00007"].X.sum(0).A1
    expected = screen.shares(np.array(["P00007"]))[0]
    assert stats.chisquare(counts, counts.sum() * expected).pvalue > 0.001
    assert stats.chisquare(counts, counts.sum() * screen.control_shares).pvalue < 1e-6
    features = screen.train.uns[FEATURES]
    explained = LinearRegression().fit(features, screen.effects).score(features, screen.effects)
    assert explained == pytest.approx(OF_FEATURES, abs=0.05)


def test_the_truth_scores_best_and_weaker_responses_have_that_slope() -> None:
    screen = simulate_screen(n_seen=50, n_unseen=5, n_genes=30, cells_each=4)
    names = list(screen.effects.index[:40])
    scores = {}
    for factor in (0.5, 1.0):
        shares = screen.control_shares * np.exp(factor * screen.effects.loc[names].to_numpy())
        shares /= shares.sum(1, keepdims=True)
        scores[factor] = many_conditions.response_scores(screen, names, shares)
        scores[factor]["nll"] = many_conditions.multinomial(screen, names, shares)
    assert scores[1.0] == pytest.approx({"pearson": 1.0, "slope": 1.0, "nll": scores[1.0]["nll"]})
    assert scores[0.5]["slope"] == pytest.approx(0.5) and scores[0.5]["pearson"] == pytest.approx(1.0)
    assert scores[1.0]["nll"] < scores[0.5]["nll"]


def test_a_short_run_is_written_and_rendered(tmp_path: Path) -> None:
    many_conditions.main(["--quick", "--threads", "1", "--output", str(tmp_path / "results")])
    result = read_result(tmp_path / "results" / "many-conditions.json")
    rows = {row["method"]: row for row in result["rows"]}
    assert list(rows)[4:] == list(many_conditions.EMBEDDINGS)
    assert rows["truth"]["seen"]["pearson"] == rows["truth"]["unseen"]["pearson"] == 1.0
    assert rows["table"]["embedding_parameters"] == 30 * 128
    assert {name for name, row in rows.items() if "unseen" not in row} == {"its own cells", "table", "hashed", "code"}
    assert all(np.isfinite(rows[name]["seen"]["nll"]) and rows[name]["file"] > 0 for name in many_conditions.EMBEDDINGS)
    assert rows["no response"]["seen"]["pearson"] is None
    page = render.render(tmp_path / "results", tmp_path / "docs")[0].read_text()
    assert "| hashed | " in page
