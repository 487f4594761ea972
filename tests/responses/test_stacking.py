"""Weights against SciPy's constrained minimisation; response curves against cells that are moved by coupling."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from scdiffgen.diffusion import couple_molecules
from scdiffgen.responses._library_sizes import N_SIZES
from scdiffgen.responses._response_curves import RATIOS, STEPS, response_curves, solved
from scdiffgen.responses._stacking import PRIOR_UNITS, less_noise, shrunk, stacked

NAMES = ["no change", "a", "b", "c"]


@pytest.mark.parametrize("helpful", [True, False])
def test_weights_are_those_of_constrained_least_squares(helpful: bool) -> None:
    """Without "no change" if the others are better than it."""
    rng = np.random.default_rng(0)
    truths = rng.normal(size=(3, 50))
    others = [0.5 * truths, truths + rng.normal(size=(3, 50)), 2 * rng.normal(size=(3, 50))]
    made = np.stack([0 * truths, *(others if helpful else [-other for other in others])], 1)
    made[..., -N_SIZES:], truths[:, -N_SIZES:] = 0, 0  # library sizes stay as they are
    left_out = [(dict(zip(NAMES, one, strict=True)), truth) for one, truth in zip(made, truths, strict=True)]
    found = stacked(left_out[0][0], left_out, "measured")
    size, equal = (made**2).sum() / 3, np.array([0, 1, 1, 1]) / 3

    def loss(weights: np.ndarray) -> float:
        errors = sum(((y - weights @ p) ** 2).sum() for y, p in zip(truths, made, strict=True))
        return errors + PRIOR_UNITS / 3 * size * ((weights - equal) ** 2).sum()

    options = {"bounds": [(0, 0 if helpful else 1), *[(0, 1)] * 3], "tol": 1e-12, "method": "SLSQP"}
    best = minimize(loss, equal, constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1}, **options).x
    assert (best[0] > 0.2) != helpful
    np.testing.assert_allclose(list(found.weights.values()), best, atol=2e-3)
    np.testing.assert_allclose(found.change, best @ made[0], atol=1e-2)


def test_shrinking_lies_between_what_was_measured_and_what_is_predicted() -> None:
    rng = np.random.default_rng(1)
    measured, predicted = rng.normal(size=(2, 200))
    towards = stacked({"other": predicted}, [], "measured")
    np.testing.assert_allclose(shrunk(measured, np.full(200, 1e-12), towards).change, measured, atol=1e-6)
    np.testing.assert_allclose(shrunk(measured, np.full(200, 1e6), towards).change, predicted)
    half = shrunk(measured, np.full(200, 0.5), towards)
    assert 0 < half.weights["own cells"] < 1 and sum(half.weights.values()) == 1


@pytest.mark.parametrize(("chance", "kept"), [(0.0, 1.0), (2.5, 0.9), (12.5, 0.5), (25.0, 0.0), (60.0, 0.0)])
def test_a_prediction_loses_what_chance_makes_of_its_length(chance: float, kept: float) -> None:
    predicted = stacked({"a": np.array([3.0, -4.0])}, [], "measured")
    found = less_noise(predicted, chance)
    np.testing.assert_allclose(found.change, kept * predicted.change, atol=1e-12)
    assert found.weights == pytest.approx({"a": kept, "no change": 1 - kept})


def test_library_sizes_are_changed_by_as_much_as_predicts_those_left_out() -> None:
    rng = np.random.default_rng(3)
    truths = np.column_stack([rng.normal(size=(8, 30)), np.tile([0.3, -0.3], 4), 0.2 + 0.01 * rng.normal(size=8)])
    left_out = []
    for row, truth in enumerate(truths):
        others = np.delete(truths, row, axis=0)
        left_out.append(({"no change": 0 * truth, "mean": np.append(truth[:30], others.mean(0)[30:])}, truth))
    composition, depth = stacked(
        {"no change": 0 * truths[0], "mean": truths[::2].mean(0)}, left_out, "measured"
    ).change[-2:]
    assert composition == pytest.approx(0, abs=1e-9) and depth == pytest.approx(0.2, rel=0.05)


def test_curves_say_what_cells_that_are_moved_have_on_average() -> None:
    """One gene after the other is moved by the package's own coupling, hundreds of times; a large gene balances."""
    rng = np.random.default_rng(2)
    share = np.append(np.geomspace(2e-4, 0.02, 5), 0.0)
    share[-1] = 1 - share.sum()
    n_cells, library = 300, 2000
    counts = torch.from_numpy(rng.multinomial(library, rng.dirichlet(100 * share, n_cells))).float()
    expected = (counts + 500 * torch.from_numpy(share).float()) / (library + 500)
    module = SimpleNamespace(device=torch.device("cpu"), expression=lambda there, given: expected[: len(there)])
    given = SimpleNamespace(take=lambda rows: None)
    curves, _ = response_curves(
        module, [(counts.to_sparse_csr(), given)], np.zeros(n_cells, dtype=int), np.zeros((1, 6))
    )
    log_mean = np.log1p(1e4 * counts.numpy() / library).mean(0)
    np.testing.assert_allclose(curves[0, len(RATIOS)], log_mean, rtol=1e-4)
    generator = torch.Generator().manual_seed(0)
    for step in (0, 3, 8, 12):
        for gene in (0, 2, 4):
            target, root = expected.clone(), expected[:, gene] ** 0.25
            moved = root * (1 + STEPS[step]) if STEPS[step] < 0 else root + STEPS[step]
            target[:, gene] = moved**4
            target[:, -1] += expected[:, gene] - target[:, gene]
            draws = [couple_molecules(counts, expected.log(), target.log(), generator)[:, gene] for _ in range(100)]
            real = torch.stack(draws).mul(1e4 / library).log1p().mean().item()
            assert abs(curves[0, step, gene] - real) < 0.03 + 0.01 * real, (step, gene)
    for step in (1, 5, 6, 9, 14):
        np.testing.assert_allclose(solved(curves[0], curves[0, step] - curves[0, 6])[:5], STEPS[step], atol=0.01)


def test_no_change_moves_nothing_and_too_large_ones_go_to_the_end() -> None:
    curve = np.linspace(0, 2, len(STEPS))[:, None] * np.ones(3)
    np.testing.assert_allclose(solved(curve, np.array([0.0, 9.0, -9.0])), [0, STEPS[-1], STEPS[0]])
