"""Weights against SciPy's constrained minimisation; shrinkage and intervals against formulas and simulated risk."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from scdiffgen.responses import Prediction
from scdiffgen.responses._predictors import (
    NO_CHANGE,
    OWN,
    PRIOR_UNITS,
    adaptive_shrinkage,
    interval,
    james_stein,
    shrink_towards,
    stack,
)

NAMES = ["a", "b", "c"]


def named(changes: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(NAMES, changes, strict=False))


def prediction(change: np.ndarray) -> Prediction:
    return stack({"a": change}, [], "transferred")


def constrained(made: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """Least squares on the simplex, shrunk towards equal weights, by sequential quadratic programming."""
    n_units, n_predictors, _ = made.shape
    equal, size = np.full(n_predictors, 1 / n_predictors), (made**2).sum() / n_predictors

    def loss(weights: np.ndarray) -> float:
        errors = sum(((truth - weights @ each) ** 2).sum() for each, truth in zip(made, truths, strict=True))
        return float(errors + PRIOR_UNITS / n_units * size * ((weights - equal) ** 2).sum())

    options = {"bounds": [(0, 1)] * n_predictors, "tol": 1e-12, "method": "SLSQP"}
    return minimize(loss, equal, constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1}, **options).x


@pytest.mark.parametrize("seed", range(6))
def test_weights_are_those_of_constrained_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truths = rng.normal(size=(rng.integers(1, 6), 50))
    noise = rng.uniform(0.2, 2, 3)
    made = np.stack([truths * rng.uniform(0.7, 1.2) + sd * rng.normal(size=truths.shape) for sd in noise], 1)
    found = stack(named(made[0]), [(named(each), truth) for each, truth in zip(made, truths, strict=True)], "parts")
    best = constrained(made, truths)
    kept = 1 - found.weights.get(NO_CHANGE, 0.0)
    np.testing.assert_allclose([found.weights[name] / kept for name in NAMES], best, atol=2e-3)
    np.testing.assert_allclose(found.change, kept * best @ made[0], atol=1e-2)
    assert sum(found.weights.values()) == pytest.approx(1) and found.source == "parts"


def test_predictors_weigh_the_same_if_nothing_was_left_out() -> None:
    changes = np.random.default_rng(0).normal(size=(3, 40))
    found = stack(named(changes), [], "transferred")
    np.testing.assert_allclose(found.change, changes.mean(0))
    assert found.weights == pytest.approx(dict.fromkeys(NAMES, 1 / 3))
    assert np.isnan(found.half_width).all() and np.isnan(found.gain) and not len(found.pearson)


def test_no_change_is_predicted_as_far_as_predictors_fail() -> None:
    rng = np.random.default_rng(1)
    made, truths = rng.normal(size=(2, 30, 1, 60))
    left_out = [(named(each), truth[0]) for each, truth in zip(made, truths, strict=True)]
    failing = stack(named(made[0]), left_out, "features")
    assert failing.weights[NO_CHANGE] > 0.9 and (failing.change**2).sum() < 0.01 * (made[0] ** 2).sum()
    for slope in (0.3, 0.7):
        scaled = [(each, slope * each["a"]) for each, _ in left_out]
        found = stack(named(made[0]), scaled, "features", shrinks=slope > 0.5)
        np.testing.assert_allclose(found.change, slope * made[0, 0])
        assert found.weights == pytest.approx({"a": slope, NO_CHANGE: 1 - slope})
        np.testing.assert_allclose(found.half_width, 0, atol=1e-6)


def test_left_out_responses_give_correlations_and_gain() -> None:
    rng = np.random.default_rng(2)
    truths, mean = rng.normal(size=(5, 40)), 0.1 * rng.normal(size=(5, 40))
    good = truths + 0.3 * rng.normal(size=truths.shape)
    made = np.stack([mean, good], 1)
    left_out = [(named(each), truth) for each, truth in zip(made, truths, strict=True)]
    found = stack(named(made[0]), left_out, "transferred")
    weights = np.array([found.weights["a"], found.weights["b"]])
    expected = [np.corrcoef(weights @ each, truth)[0, 1] for each, truth in zip(made, truths, strict=True)]
    np.testing.assert_allclose(found.pearson, expected)
    errors = sum(((truth - weights @ each) ** 2).sum() for each, truth in zip(made, truths, strict=True))
    assert found.gain == pytest.approx(1 - errors / ((truths - mean) ** 2).sum()) and found.gain > 0.7


@pytest.mark.parametrize(("signal", "ahead"), [(1.0, True), (0.0, False)])
def test_a_prediction_is_ahead_beyond_the_noise_of_left_out_responses_alone(signal: float, ahead: bool) -> None:
    rng = np.random.default_rng(3)
    truths = rng.normal(size=(6, 40))
    made = np.stack([0 * truths, signal * truths + 0.5 * rng.normal(size=truths.shape)], 1)
    left_out = [(named(each), truth) for each, truth in zip(made, truths, strict=True)]
    assert stack(named(made[0]), left_out, "transferred").is_ahead is ahead
    same = [(named(each[[0, 0]]), truth) for each, truth in zip(made, truths, strict=True)]
    assert stack(named(made[0][[0, 0]]), same, "transferred").is_ahead is False
    for n_left_out in (0, 1):  # no interval
        left_out = [(named(each), truth) for each, truth in zip(made[:n_left_out], truths, strict=False)]
        assert stack(named(made[0]), left_out, "transferred").is_ahead is None


def test_the_james_stein_factor_is_that_of_the_formula() -> None:
    squares = np.array([0.0, 1.0, 4.0, 100.0])
    np.testing.assert_allclose(james_stein(2.0, squares), [0, 0, 0.5, 0.98])
    np.testing.assert_allclose(james_stein(np.zeros(4), squares), 1)


@pytest.mark.parametrize("signal", [0.0, 0.5, 1.0, 3.0])
def test_shrinkage_lowers_the_risk(signal: float) -> None:
    """Of 200 normal means, at any distance from 0, and most of all at small ones."""
    rng = np.random.default_rng(3)
    truth, risks = signal * rng.normal(size=200), []
    for _ in range(50):
        raw = truth + rng.normal(size=200)
        found = shrink_towards(raw, np.ones(200), 1.0, [])
        risks.append([((each - truth) ** 2).sum() for each in (raw, found.change)])
        assert found.weights[OWN] + found.weights[NO_CHANGE] == pytest.approx(1)
    of_raw, of_shrunk = np.mean(risks, axis=0)
    best = signal**2 / (1 + signal**2)  # the factor of the Bayes estimator, whose risk this is too
    assert of_shrunk < of_raw and of_shrunk / of_raw == pytest.approx(best, abs=0.08)


def test_a_measured_change_lies_between_itself_and_the_prediction() -> None:
    rng = np.random.default_rng(4)
    own, others = rng.normal(size=(2, 200))
    exact = shrink_towards(own, np.full(200, 1e-12), 1.0, [prediction(others)])
    np.testing.assert_allclose(exact.change, own, atol=1e-6)
    assert exact.weights[OWN] == pytest.approx(1) and exact.half_width.max() < 1e-4 and exact.source == "own"
    noise = shrink_towards(own, np.full(200, 1e6), 1.0, [prediction(others)])
    np.testing.assert_allclose(noise.change, others, atol=0.1)
    assert noise.weights == pytest.approx({OWN: 0.0, "a": 1.0}, abs=0.03)
    between = shrink_towards(own, np.full(200, 0.5), 1.0, [prediction(others)])
    assert ((between.change - own) * (between.change - others) <= 1e-12).all()
    assert 0 < between.weights[OWN] < 1 and sum(between.weights.values()) == pytest.approx(1)


def posterior_by_quadrature(z: float, scales: np.ndarray, weights: np.ndarray) -> float:
    """Mean of a normal mean under a mixture of normal priors, by numerical integration."""
    grid = np.linspace(-60, 60, 200_001)
    prior = sum(weight * norm.pdf(grid, scale=scale) for weight, scale in zip(weights, scales, strict=True))
    density = prior * norm.pdf(z, loc=grid)
    return float((grid * density).sum() / density.sum())


def test_posterior_means_are_those_of_the_fitted_mixture() -> None:
    """Of normal priors of standard deviations .5 and 6, which a fit of many genes finds."""
    rng, weights, scales = np.random.default_rng(5), np.array([0.9, 0.1]), np.array([0.5, 6.0])
    truth = rng.normal(size=50_000) * rng.choice(scales, 50_000, p=weights)
    raw = truth + rng.normal(size=truth.size)
    asked = np.array([0.0, 1.0, 2.5, 4.0, 10.0, -15.0])
    shrunk, variance = adaptive_shrinkage(np.append(raw, asked), np.ones(raw.size + asked.size))
    expected = [posterior_by_quadrature(z, scales, weights) for z in asked]
    np.testing.assert_allclose(shrunk[raw.size :], expected, atol=0.15)
    assert ((shrunk[: raw.size] - truth) ** 2).mean() == pytest.approx(variance.mean(), rel=0.05)


@pytest.mark.parametrize("n_genes", [200, 1_000, 10_000])
def test_one_response_among_thousands_of_genes_survives(n_genes: int) -> None:
    rng = np.random.default_rng(n_genes)
    change, variance = rng.normal(0, 0.1, n_genes), np.full(n_genes, 0.01)
    change[0] = -2.7
    shrunk, _ = adaptive_shrinkage(change, variance)
    assert shrunk[0] < -2.65 and (shrunk[1:] ** 2).sum() < 0.1 * (change[1:] ** 2).sum()
    none, certain = adaptive_shrinkage(np.zeros(4), np.zeros(4))
    assert not none.any() and not certain.any()


@pytest.mark.parametrize("n_units", [3, 5, 10, 30])
@pytest.mark.parametrize("heavy", [False, True])
def test_an_interval_holds_four_fifths_of_exchangeable_residuals(n_units: int, heavy: bool) -> None:
    """The residual that is held or not has not been seen; genes differ by a factor of 20, and few change much."""
    rng = np.random.default_rng(n_units)
    scale, inside = rng.permutation(np.geomspace(0.05, 1, 600)), []
    predicted = np.where(np.arange(600) < 30, 5.0, 0.0)
    for _ in range(20):
        drawn = rng.standard_t(4, (n_units + 1, 600)) if heavy else rng.normal(size=(n_units + 1, 600))
        truth = predicted + scale * drawn
        width = interval(np.tile(predicted, (n_units, 1)), truth[:-1], predicted)
        inside.append(np.abs(truth[-1] - predicted) <= width)
    assert 0.75 < np.mean(inside) < 0.85
    if n_units >= 5:  # also in genes that hardly vary and in those that vary most
        by_gene = np.mean(inside, axis=0)
        assert 0.65 < by_gene[scale < 0.1].mean() < 0.95 and 0.65 < by_gene[scale > 0.5].mean() < 0.95


def test_an_interval_holds_the_largest_changes_if_their_errors_are_large() -> None:
    """Errors are proportional to the change, so genes alike in all else need intervals of other widths."""
    rng, inside, largest = np.random.default_rng(0), [], []
    for _ in range(40):
        response = rng.standard_t(2, 1000) / 10
        truth = response * rng.normal(1, 0.5, (8, 1000)) + rng.normal(0, 0.02, (8, 1000))
        width = interval(np.tile(response, (7, 1)), truth[:-1], response)
        held = np.abs(truth[-1] - response) <= width
        inside.append(held.mean())
        largest.append(held[np.argsort(-np.abs(truth[-1]))[:30]].mean())
    assert 0.75 < np.mean(inside) < 0.87 and 0.7 < np.mean(largest) < 0.95


def test_fewer_than_two_residuals_have_no_interval() -> None:
    for n_units in (0, 1):
        assert np.isnan(interval(np.ones((n_units, 4)), np.zeros((n_units, 4)), np.ones(4))).all()
    np.testing.assert_allclose(interval(np.ones((3, 4)), np.ones((3, 4)), np.ones(4)), 0, atol=1e-12)
