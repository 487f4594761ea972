"""Rates against the posterior of a gamma-Poisson model, by quadrature, and what outliers add."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from csr import csr
from scipy import integrate, stats
from torch import Tensor

from scdiffgen.nn import GeneScores, Overdispersion

SIZES, CONDITIONING = (2, 3), 7
EXPECTED = np.array([[0.02, 2.98, 0.5, 39.5, 2000.0], [5.0, 1.0, 90.0, 0.1, 11.9]])  # of each kind, the next included
DISPERSIONS = np.array([0.25, 1.4, 0.25, 1.4, 0.1])
COUNTS = np.array([[1, 0, 2, 90, 1500], [7, 0, 31, 2, 0]])
N_THERE = np.stack([EXPECTED[:, :2].sum(1), EXPECTED[:, 2:].sum(1)], axis=1) - 1


@pytest.fixture
def overdispersion() -> Overdispersion:
    """Without outliers, and nothing mixed in."""
    module = Overdispersion(SIZES, CONDITIONING).double()
    module.set_dispersions(torch.tensor(DISPERSIONS))
    with torch.no_grad():
        module.least_logits.fill_(-torch.inf)
        module.slopes.fill_(-torch.inf)
    return module


def rates(module: Overdispersion, counts: np.ndarray = COUNTS, conditioning: Tensor | None = None) -> np.ndarray:
    """Of expectations that are larger in the second kind by a factor, which changes nothing."""
    conditioning = torch.zeros(2, CONDITIONING).double() if conditioning is None else conditioning
    scores = GeneScores(torch.tensor(EXPECTED * [1, 1, 9, 9, 9]).log(), conditioning)
    log_rates, weights = module(scores, torch.tensor(N_THERE), torch.tensor(counts).double())
    return (log_rates.exp() + weights * torch.tensor(counts)).detach().numpy()


def test_rates_are_posterior_means_of_a_gamma_poisson_model(overdispersion: Overdispersion) -> None:
    """Molecules of a gene are Poisson, their mean gamma with what is expected as mean."""
    found = rates(overdispersion)
    for cell, gene in np.ndindex(EXPECTED.shape):
        prior = stats.gamma(1 / DISPERSIONS[gene], scale=EXPECTED[cell, gene] * DISPERSIONS[gene])
        count = COUNTS[cell, gene]
        width = 12 * np.sqrt(count + 1)
        low, high = max(count - width, 0.0), max(count + width, prior.ppf(1 - 1e-12))

        def joint(mean: float, power: int, prior=prior, count=count) -> float:
            return mean**power * prior.pdf(mean) * stats.poisson.pmf(count, mean)

        points = np.unique(np.clip([1e-4, count / 2, count, prior.mean()], low, high))
        above, below = (integrate.quad(joint, low, high, (power,), points=points, limit=500)[0] for power in (1, 0))
        np.testing.assert_allclose(found[cell, gene], above / below, rtol=1e-4)


def test_a_shift_multiplies_the_dispersions(overdispersion: Overdispersion) -> None:
    with torch.no_grad():
        overdispersion.shift.bias.copy_(torch.tensor([0.0, np.log(3.0)]))
    shifted = rates(overdispersion)
    with torch.no_grad():
        overdispersion.shift.bias.zero_()
    overdispersion.set_dispersions(torch.tensor(DISPERSIONS * [1, 1, 3, 3, 3]))
    np.testing.assert_allclose(shifted, rates(overdispersion))


def test_what_is_conditioned_on_shifts_each_kind(overdispersion: Overdispersion) -> None:
    torch.nn.init.normal_(overdispersion.shift.weight)
    conditioning = torch.randn(2, CONDITIONING, generator=torch.Generator().manual_seed(0)).double()
    changed = rates(overdispersion, conditioning=conditioning) != rates(overdispersion)
    assert changed.all()


def test_a_share_of_own_molecules_is_mixed_in(overdispersion: Overdispersion) -> None:
    before = rates(overdispersion)
    with torch.no_grad():
        overdispersion.least_logits.fill_(float(np.log(0.2 / 0.8)))
    np.testing.assert_allclose(rates(overdispersion), 0.8 * before + 0.2 * COUNTS)


def test_a_gene_far_beyond_what_is_expected_goes_on_as_it_is(overdispersion: Overdispersion) -> None:
    few, many = rates(overdispersion, np.zeros_like(COUNTS)), rates(overdispersion, np.full_like(COUNTS, 20_000))
    with torch.no_grad():
        overdispersion.slopes.fill_(0.1)
    np.testing.assert_allclose(rates(overdispersion, np.zeros_like(COUNTS)), few)
    raised = rates(overdispersion, np.full_like(COUNTS, 20_000))
    assert (raised >= many).all() and (raised > 0.999 * 20_000).all() and (many[:, 0] < 0.7 * 20_000).all()


def test_sparse_and_dense_cells_have_the_same_rates() -> None:
    module = Overdispersion(SIZES, CONDITIONING)
    scores = GeneScores(torch.tensor(EXPECTED).float().log(), torch.zeros(2, CONDITIONING))
    there = torch.tensor(N_THERE).float()
    for counts in (COUNTS, 50 * COUNTS):
        stored = csr(counts)
        for one, other in zip(module(scores, there, stored), module(scores, there, stored.to_dense()), strict=True):
            torch.testing.assert_close(one, other)


def test_gradients_are_finite_at_any_expectation(overdispersion: Overdispersion) -> None:
    logits = torch.linspace(-400, 400, 10).double().reshape(2, 5).requires_grad_()
    scores = GeneScores(logits, torch.zeros(2, CONDITIONING).double())
    module = Overdispersion(SIZES, CONDITIONING).double()
    log_rates, weights = module(scores, torch.tensor(N_THERE), torch.tensor(COUNTS).double())
    (log_rates.sum() + weights.sum()).backward()
    assert logits.grad.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in module.parameters())
    assert (weights >= 0).all() and (weights <= 1).all()
