"""Planted responses: the ranking spends cells where they teach most, whatever the order or rounding of its input."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from simulated_responses import draw
from small_cells import trained_model

from scdiffgen import datasets, tl
from scdiffgen.responses import ResponseEstimator
from scdiffgen.tl._planner import _choose_greedily, _treatment_kernel

N_GENES, CONTEXTS = 200, [*"abcdefgh"]


def screen(measured: str, *treatments: str) -> ResponseEstimator:
    """Types, of which g and h are alike; a treatment changes the same genes in all types, or other genes in each."""
    rng = np.random.default_rng(0)
    base = dict(zip(CONTEXTS, rng.lognormal(0, 0.7, (len(CONTEXTS), N_GENES)), strict=True))
    base["h"] = base["g"]
    counts, labels = [], []
    for row, context in enumerate(CONTEXTS):
        first = {"common": 0, "specific": 10 * row}
        for treatment in ("control", *(treatments if context in measured else ())):
            own = np.arange(N_GENES) - first.get(treatment, N_GENES)
            counts.append(draw(rng, base[context] * np.where((own >= 0) & (own < 10), 4.0, 1.0), 60))
            labels += [(context, treatment)] * 60
    context, treatment = zip(*labels, strict=True)
    return ResponseEstimator.fit(np.vstack(counts), context, None, treatment)


def candidates(contexts: str, *treatments: str) -> pd.DataFrame:
    pairs = pd.MultiIndex.from_product([[*contexts], treatments], names=["context", "treatment"])
    return pairs.to_frame(index=False)


def test_a_response_common_to_all_types_needs_fewer_experiments() -> None:
    estimator = screen("abcd", "common", "specific")
    ranked = tl.rank_experiments(estimator, candidates("efgh", "common", "specific"))
    assert ranked["gain"].gt(0).all() and ranked["error_left"].is_monotonic_decreasing
    needed = ranked[ranked["error_left"].shift(fill_value=1.0) > 0.25]["treatment"].tolist()
    assert needed == ["specific"] * 3  # of four types, of which two are alike
    gains = ranked.groupby("treatment")["gain"].sum()
    assert gains["specific"] > 3 * gains["common"]


def test_a_pair_like_a_measured_one_has_little_value() -> None:
    estimator = screen("abg", "specific")
    ranked = tl.rank_experiments(estimator, candidates("cdefh", "specific"))
    assert ranked["context"].iloc[-1] == "h" and ranked["gain"].iloc[-1] < 0.2 * ranked["gain"].iloc[-2]


def test_twins_are_not_both_measured_first_and_the_cheaper_one_is_chosen() -> None:
    estimator = screen("ab", "specific")
    ranked = tl.rank_experiments(estimator, candidates("cdefgh", "specific"))
    assert {*ranked["context"].iloc[[0, -1]]} == {"g", "h"}  # the first answers for both
    costs = candidates("gh", "specific").assign(cost=[2.0, 1.9])
    assert tl.rank_experiments(estimator, costs)["context"].tolist() == ["h", "g"]
    fewer = candidates("gh", "specific").assign(n_cells=[200, 100])
    assert tl.rank_experiments(estimator, fewer)["context"].tolist() == ["h", "g"]


def test_near_doses_parts_and_similar_features_say_more() -> None:
    rng, base = np.random.default_rng(0), np.ones(N_GENES)
    arms = [("control", 1.0), ("x", 1.0), ("y", 1.0)]
    counts = np.vstack([draw(rng, base * rng.lognormal(0, 0.5, N_GENES) ** (arm != "control"), 60) for arm, _ in arms])
    treatment, dose = (np.repeat(column, 60) for column in zip(*arms, strict=True))
    vectors = {"x": [1, 0], "y": [0, 1], "near": [1, 0.1], "far": [-3, -3]}
    plain, featured = (ResponseEstimator.fit(counts, None, None, treatment, dose, x) for x in (None, vectors))
    doses = pd.DataFrame({"treatment": "x", "dose": [2.0, 50.0]})
    assert tl.rank_experiments(plain, doses)["dose"].tolist() == [50.0, 2.0]
    names = pd.DataFrame({"treatment": ["near", "far"]})
    assert tl.rank_experiments(featured, names)["treatment"].tolist() == ["far", "near"]
    kernel = _treatment_kernel([frozenset({(0, 1.0)}), frozenset({(0, 1.0), (1, np.inf)}), frozenset({(0, 4.0)})], None)
    np.testing.assert_allclose(kernel, [[1, 2**-0.5, 0.5], [2**-0.5, 1, 0.5 * 2**-0.5], [0.5, 0.5 * 2**-0.5, 1]])


def test_gains_are_those_of_gaussian_regression() -> None:
    rng = np.random.default_rng(0)
    covariance, noise = np.cov(rng.normal(size=(6, 20))), rng.uniform(0.1, 1, 6)
    chosen, gains = _choose_greedily(covariance, noise, np.ones(6))
    for n in range(1, 7):
        rows = chosen[:n]
        inverse = np.linalg.inv(covariance[np.ix_(rows, rows)] + np.diag(noise[rows]))
        explained = np.trace(covariance[:, rows] @ inverse @ covariance[rows])
        assert gains[:n].sum() == pytest.approx(explained)
    first = [np.square(covariance[i]).sum() / (covariance[i, i] + noise[i]) for i in range(6)]
    assert chosen[0] == np.argmax(first) and sorted(chosen) == list(range(6))


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_and_rounding_change_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    estimator = screen("ab", "common", "specific")
    pairs = candidates("cdefgh", "common", "specific").assign(n_cells=100)
    ranked = tl.rank_experiments(estimator, pairs)
    pd.testing.assert_frame_equal(ranked, tl.rank_experiments(estimator, pairs.iloc[rng.permutation(len(pairs))]))
    bulks = estimator.predictor.bulks
    bulks.log_mean[:] = bulks.log_mean * (1 + 3e-7 * rng.choice([-1, 1], bulks.log_mean.shape))  # the last digit
    estimator.predictor.comparisons._known.clear()
    rounded = tl.rank_experiments(estimator, pairs)
    assert rounded.index.tolist() == ranked.index.tolist()
    np.testing.assert_allclose(rounded["gain"], ranked["gain"], rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_cells": 0}, "`n_cells` is 0: pass a whole number of at least 1"),
        ({"cost": [1.0, -2.0]}, r"`cost` is -2.0: pass positive numbers"),
        ({"context": ["a", "e"]}, r"row {'context': 'a', 'treatment': 'common'}, which was already measured"),
        ({"context": "z"}, "`context` is 'z': choose from"),
        ({"treatment": "unknown"}, "`treatment` has 'unknown': choose from"),
    ],
)
def test_errors_name_the_fault_and_the_way_out(changes: dict[str, Any], match: str) -> None:
    estimator = screen("ab", "common")
    with pytest.raises(ValueError, match=match):
        tl.rank_experiments(estimator, candidates("ce", "common").assign(**changes))
    with pytest.raises(TypeError, match="no argument 'cell_type'"):
        tl.rank_experiments(estimator, candidates("ce", "common").assign(cell_type="a"))
    for wrong in (None, candidates("", "common")):
        with pytest.raises(ValueError, match="`candidates` is no data frame with rows"):
            tl.rank_experiments(estimator, wrong)


def test_a_model_ranks_as_its_estimator() -> None:
    cells = datasets.simulate(900, 40, n_types=3, n_batches=1, doses=(3.0,))
    kept = cells.obs["perturbation"].isin(["control", "A"]) | (cells.obs["cell_type"] == "type_0")
    cells = cells[kept].copy()
    keys = {"labels_key": "cell_type", "batch_key": "batch", "perturbation_key": "perturbation"}
    model = trained_model(cells, 1, layer="counts", **keys)
    labels = (cells.obs[key].astype(str) for key in keys.values())
    estimator = ResponseEstimator.fit(cells.layers["counts"], *labels)
    asked = pd.DataFrame({"context": ["type_1", "type_2", "type_1"], "treatment": ["B", "B", "A+B"]})
    own = asked.rename(columns={"context": "cell_type", "treatment": "perturbation"})
    expected, found = tl.rank_experiments(estimator, asked), tl.rank_experiments(model, own)
    np.testing.assert_allclose(found["gain"], expected["gain"], rtol=1e-5)
    assert found.index.tolist() == expected.index.tolist()
    for changes, match in (
        ({"perturbation": "control"}, "which is a control: leave it out"),
        ({"cell_type": ["type_1", None, "type_2"]}, "gives a condition in some rows only"),
        ({"cell_type": "type_9"}, "type_9"),
    ):
        with pytest.raises(ValueError, match=match):
            tl.rank_experiments(model, own.assign(**changes))
    with pytest.raises(ValueError, match="no measured responses: register treated cells"):
        tl.rank_experiments(trained_model(cells.copy(), 1, layer="counts", labels_key="cell_type"), own)
