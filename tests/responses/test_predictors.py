"""Predictors of responses: each is exact where its assumption holds, and none turns a trace's loss into a marker's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from scdiffgen.responses._predictors import (
    StateMoments,
    context_predictions,
    dose_predictions,
    feature_predictions,
    part_predictions,
    similarity_weights,
    state_prediction,
)

N_GENES = 40


def levels(rng: np.random.Generator, n: int = 5) -> np.ndarray:
    """Mean log expression ``(contexts, genes)``."""
    return rng.uniform(0.1, 4, N_GENES) + 0.05 * rng.normal(size=(n, N_GENES)) + 0.2


@given(seed=st.integers(0, 2**32 - 1), n_contexts=st.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_a_response_that_like_contexts_share_is_found(seed: int, n_contexts: int) -> None:
    rng = np.random.default_rng(seed)
    before = np.tile(levels(rng, 1), (n_contexts, 1))
    change = np.maximum(rng.normal(0, 0.5, N_GENES), -before[0])
    for name, found in context_predictions(before, np.tile(change, (n_contexts, 1)), before[0]).items():
        np.testing.assert_allclose(found, change, atol=1e-6, err_msg=name)


def test_each_context_weighs_by_how_like_it_is() -> None:
    rng = np.random.default_rng(1)
    kinds = rng.uniform(0.5, 4, (2, N_GENES))
    before = kinds[[0, 1, 0, 1, 0]] + 0.02 * rng.normal(size=(5, N_GENES))
    weights = similarity_weights(before, kinds[0])
    assert weights.sum() == pytest.approx(1) and weights[[0, 2, 4]].sum() > 0.99
    np.testing.assert_allclose(weights[[3, 0, 1, 2, 4]], similarity_weights(before[[3, 0, 1, 2, 4]], kinds[0]))
    shifts = np.where(np.arange(5) % 2, -0.4, 0.4)[:, None] * np.ones(N_GENES)
    made = context_predictions(np.tile(3.0, (5, N_GENES)) + before / 10, shifts, 3 + kinds[0] / 10)
    assert made["similar contexts"].mean() > 0.35 > made["mean response"].mean() > -0.4


@pytest.mark.parametrize("n_contexts", [2, 3, 7])
@pytest.mark.parametrize("trace", [0.02, 0.1, 0.4])
def test_the_loss_of_a_trace_is_no_loss_of_a_marker(n_contexts: int, trace: float) -> None:
    """Sources lose half of a trace; the target, at a level of 3, loses at most twice that difference."""
    rng = np.random.default_rng(2)
    before = levels(rng, n_contexts + 1)
    before[:, 0] = [*np.full(n_contexts, trace), 3.0]
    changes = np.zeros((n_contexts, N_GENES))
    changes[:, 0] = np.log1p(0.5 * np.expm1(trace)) - trace
    for name, found in context_predictions(before[:-1], changes, before[-1]).items():
        assert found[0] >= 2 * changes[0, 0] - 1e-9, name


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_ratios_are_transferred_between_comparable_levels(factor: float) -> None:
    """Expression halves or doubles in all contexts, at levels that differ by up to a factor of 1.5."""
    rng = np.random.default_rng(3)
    before = rng.uniform(2.5, 4, N_GENES) + rng.uniform(-0.2, 0.2, (6, N_GENES))
    changes = np.log1p(factor * np.expm1(before)) - before
    for name, found in context_predictions(before[:-1], changes[:-1], before[-1]).items():
        np.testing.assert_allclose(found, changes[-1], atol=0.12, err_msg=name)


def test_no_gene_falls_below_zero() -> None:
    rng = np.random.default_rng(4)
    before, target = rng.uniform(0, 3, (4, N_GENES)), rng.uniform(0, 3, N_GENES)
    for found in context_predictions(before, -before, target).values():
        assert (target + found > -1e-9).all()


def moments(states: np.ndarray, expression: np.ndarray) -> StateMoments:
    square, product = states.T @ states / len(states), states.T @ expression / len(states)
    return StateMoments(states.mean(0), square, product, expression.mean(0))


def test_regressions_on_cell_states_are_ridge_regressions() -> None:
    rng = np.random.default_rng(5)
    states = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3)) + 1
    expression, at = states @ rng.normal(size=(3, N_GENES)) + rng.normal(size=(500, N_GENES)), rng.normal(size=3)
    penalty = len(states) * states.var(0).mean()
    fitted = Ridge(penalty).fit(states, expression).predict(at[None])[0]
    np.testing.assert_allclose(moments(states, expression).regress(at), fitted, rtol=1e-6)
    halves = [moments(states[half], expression[half]) for half in (slice(0, 250), slice(250, 500))]
    np.testing.assert_allclose(StateMoments.mean_of(halves).regress(at), fitted, rtol=1e-6)


def test_latent_arithmetic_adds_the_difference_at_equal_cell_state() -> None:
    rng = np.random.default_rng(6)
    states, shift = 3 * rng.normal(size=(800, 2)), np.linspace(0, 1, N_GENES)
    expression = 5 + states @ rng.normal(size=(2, N_GENES))
    found = state_prediction(
        moments(states, expression + shift),
        moments(states, expression),
        np.full((1, N_GENES), 5.0),
        np.full(N_GENES, 5.0),
        np.array([2.0, -1.0]),
    )
    np.testing.assert_allclose(found, shift, atol=1e-6)
    down = state_prediction(
        moments(states, np.full((800, N_GENES), 1.0)),
        moments(states, np.full((800, N_GENES), 2.0)),
        np.full((1, N_GENES), 2.0),
        np.linspace(0, 2, N_GENES),
        np.zeros(2),
    )
    np.testing.assert_allclose(down, -0.5 * np.linspace(0, 2, N_GENES))


@pytest.mark.parametrize("dose", [0.0, 0.05, 0.1, 0.4, 1.0, 3.0, 10.0, 1e4])
def test_doses_are_interpolated_on_a_logarithmic_scale(dose: float) -> None:
    """Linear in log(1 + dose / smallest dose), from no change at dose 0, constant beyond the largest."""
    rng = np.random.default_rng(7)
    doses, own, pooled = np.array([1.0, 0.1, 10.0]), *rng.normal(size=(2, 3, N_GENES))
    exact = {x: (change, np.zeros(N_GENES)) for x, change in zip(doses, own, strict=True)}
    made = dose_predictions(dose, exact, dict(zip(doses, pooled, strict=True)))
    if dose >= 0.1:  # below the lowest dose, the mean would be too large
        np.testing.assert_allclose(made.pop("mean of doses"), pooled.mean(0))
    scale = np.append(0, np.log1p(np.sort(doses) / 0.1))
    for found, changes in zip(made.values(), (own, pooled), strict=True):
        rows = np.vstack([np.zeros(N_GENES), changes[np.argsort(doses)]])
        expected = [np.interp(np.log1p(dose / 0.1), scale, gene) for gene in rows.T]
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_parts_of_a_combination_are_added() -> None:
    parts, measured, mean = np.random.default_rng(8).normal(size=(3, 2, N_GENES))
    shrunk, raw, around = part_predictions(parts, measured, mean[0]).values()
    np.testing.assert_allclose(shrunk, parts[0] + parts[1])
    np.testing.assert_allclose(raw, measured[0] + measured[1])
    np.testing.assert_allclose(around, parts[0] + parts[1] - mean[0])


def test_ridge_regression_finds_a_linear_map_and_else_the_mean() -> None:
    rng = np.random.default_rng(9)
    features = rng.normal(size=(40, 5))
    linear = 0.3 + features @ rng.normal(size=(5, N_GENES))
    found = feature_predictions(linear[:-1], features[:-1], features[-1])
    np.testing.assert_allclose(found["mean of perturbations"], linear[:-1].mean(0))
    error = ((found["ridge on features"] - linear[-1]) ** 2).sum()
    assert error < 0.02 * ((linear[-1] - linear[:-1].mean(0)) ** 2).sum()
    errors = []
    for _ in range(20):
        noise = rng.normal(size=(40, N_GENES))
        found = feature_predictions(noise[:-1], features[:-1], features[-1])
        errors.append([((made - noise[-1]) ** 2).sum() for made in found.values()])
    of_mean, of_ridge = np.mean(errors, axis=0)
    assert of_ridge < 1.1 * of_mean
    same = feature_predictions(linear, np.ones((40, 2)), np.ones(2))
    np.testing.assert_allclose(same["ridge on features"], linear.mean(0))
