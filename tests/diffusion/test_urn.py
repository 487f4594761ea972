"""The urn's predictive rule, the likelihood bound and growing against SciPy's Dirichlet-multinomial."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from csr import csr
from scipy import stats
from torch import Tensor

from scdiffgen.diffusion import (
    MoleculePredictor,
    Thinned,
    UrnPrediction,
    grow_molecules,
    likelihood_bound,
    molecule_loss,
    thin_to,
)

ALPHA = np.array([0.4, 2.0, 1.1, 0.7])


def polya_urn(alpha: np.ndarray, weight: float = 1.0) -> MoleculePredictor:
    """Predictive rule of bags of genes whose shares are Dirichlet (weight 1) or fixed (weight 0)."""

    def predict(state: Tensor, library: Tensor) -> UrnPrediction:
        log_rates = torch.tensor(np.log(alpha)).float().expand(state.shape)
        return UrnPrediction(log_rates, torch.full((len(alpha),), weight))

    return predict


def bags(n: int, n_genes: int) -> Iterator[tuple[int, ...]]:
    return (bag for bag in product(range(n + 1), repeat=n_genes) if sum(bag) == n)


def expected_loss(cell: np.ndarray, predictor: MoleculePredictor) -> float:
    """Loss over all ways to thin a cell, the number of molecules left being uniform on 0 to library - 1."""
    states = np.array([s for s in product(*(range(count + 1) for count in cell)) if sum(s) < cell.sum()])
    probability = [stats.multivariate_hypergeom.pmf(state, cell, sum(state)) / cell.sum() for state in states]
    left, whole = csr(states, stored_zeros=True), csr(np.tile(cell, (len(states), 1)), stored_zeros=True)
    thinned = Thinned(left, whole.values() - left.values(), left.to_dense().sum(1), whole.to_dense().sum(1))
    return float(molecule_loss(predictor(left, thinned.library), thinned) @ torch.tensor(probability).float())


@pytest.mark.parametrize("cell", [[2, 0, 3, 1], [1, 0, 0, 0], [0, 4, 1, 0]])
def test_the_bound_is_exact_for_a_dirichlet_multinomial(cell: list[int]) -> None:
    loss = expected_loss(np.array(cell), polya_urn(ALPHA))
    bound = likelihood_bound(torch.tensor([loss]), csr([cell]))
    exact = -stats.dirichlet_multinomial.logpmf(cell, ALPHA, sum(cell))
    np.testing.assert_allclose(bound, exact, rtol=2e-6)


@pytest.mark.parametrize("cell", [[2, 0, 3, 1], [0, 4, 1, 0]])
def test_the_bound_is_exact_for_a_multinomial(cell: list[int]) -> None:
    loss = expected_loss(np.array(cell), polya_urn(ALPHA, weight=0.0))
    bound = likelihood_bound(torch.tensor([loss]), csr([cell]))
    exact = -stats.multinomial.logpmf(cell, sum(cell), ALPHA / ALPHA.sum())
    np.testing.assert_allclose(bound, exact, rtol=2e-6)


def test_the_bound_lies_above_for_a_predictor_that_depends_on_the_order() -> None:
    """Weights that differ between genes make no urn; over all cells the bound still is one."""

    def predict(state: Tensor, library: Tensor) -> UrnPrediction:
        return UrnPrediction(torch.tensor(np.log(ALPHA[:2])).float().expand(state.shape), torch.tensor([6.0, 0.1]))

    total = 0.0
    for bag in bags(3, 2):
        total += float(likelihood_bound(torch.tensor([expected_loss(np.array(bag), predict)]), csr([bag])).neg().exp())
    assert 0.5 < total < 0.999  # exp(-bound) <= p, and p sums to 1


def test_draws_of_the_bound_are_unbiased() -> None:
    cell, n_draws, generator = np.array([2, 0, 3, 1]), 20_000, torch.Generator().manual_seed(0)
    counts = csr(np.tile(cell, (n_draws, 1)))
    left = torch.randint(0, int(cell.sum()), (n_draws,), generator=generator)
    thinned = thin_to(counts, left, generator)
    draws = likelihood_bound(molecule_loss(polya_urn(ALPHA)(thinned.state, thinned.library), thinned), counts).numpy()
    exact = -stats.dirichlet_multinomial.logpmf(cell, ALPHA, cell.sum())
    assert abs(draws.mean() - exact) < 4 * draws.std() / np.sqrt(n_draws)


def test_the_bound_keeps_its_digits_for_deep_cells() -> None:
    cell = np.random.default_rng(0).multinomial(60_000, np.full(200, 1 / 200))
    loss = np.log(200)  # of the uniform multinomial, whatever is left of the cell
    exact = -stats.multinomial.logpmf(cell, cell.sum(), np.full(200, 1 / 200))
    np.testing.assert_allclose(
        likelihood_bound(torch.tensor([loss], dtype=torch.float64), csr([cell])), exact, rtol=1e-10
    )


def test_growing_by_single_molecules_draws_from_the_dirichlet_multinomial() -> None:
    alpha, n, n_cells = ALPHA[:3], 6, 20_000
    grown = grow_molecules(
        polya_urn(alpha),
        torch.full((n_cells,), float(n)),
        torch.zeros(n_cells, 3),
        n_steps=n,
        generator=torch.Generator().manual_seed(0),
    ).numpy()
    cells = np.array(list(bags(n, 3)))
    expected = n_cells * stats.dirichlet_multinomial.pmf(cells, alpha, n)
    observed = [(grown == cell).all(1).sum() for cell in cells]
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.fixture
def prediction() -> tuple[UrnPrediction, np.ndarray]:
    random = np.random.default_rng(0)
    log_rates, weights = random.normal(size=(20, 7)), random.gamma(1.0, size=7)
    return UrnPrediction(torch.tensor(log_rates), torch.tensor(weights)), random.poisson(0.8, (20, 7))


def test_probabilities_are_rates_over_their_sum(prediction: tuple[UrnPrediction, np.ndarray]) -> None:
    urn, state = prediction
    rates = np.exp(urn.log_rates.numpy()) + urn.weights.numpy() * state
    np.testing.assert_allclose(urn.log_prob(torch.tensor(state)).exp(), rates / rates.sum(1, keepdims=True))


@pytest.mark.parametrize("stored_zeros", [False, True])
def test_probabilities_at_stored_positions_are_the_same(
    prediction: tuple[UrnPrediction, np.ndarray], stored_zeros: bool
) -> None:
    urn, state = prediction
    stored = csr(state, stored_zeros=stored_zeros).double()
    rows = np.repeat(np.arange(len(state)), np.diff(stored.crow_indices()))
    at_stored = urn.log_prob(torch.tensor(state))[rows, stored.col_indices()]
    torch.testing.assert_close(urn.log_prob_at(stored), at_stored)


def test_a_whole_cell_has_no_loss_and_finite_gradients() -> None:
    counts = csr([[1, 0, 2, 0], [0, 3, 0, 1]], stored_zeros=True)
    log_rates = torch.zeros(2, 4, requires_grad=True)
    weights = torch.ones(4, requires_grad=True)
    whole = thin_to(counts, torch.tensor([3, 1]))
    loss = molecule_loss(UrnPrediction(log_rates, weights), whole)
    loss.sum().backward()
    assert loss[0] == 0 and loss[1] > 0
    assert torch.isfinite(log_rates.grad).all() and torch.isfinite(weights.grad).all()
    assert not log_rates.grad[0].any()
