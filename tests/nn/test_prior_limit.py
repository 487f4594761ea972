"""Limited priors against the posterior of a gamma-Poisson model, and the urn where nothing is limited."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from scdiffgen.nn import PriorLimit

SIZES = (2, 3)
EXPECTED = np.array([[0.02, 3.0, 0.5, 40.0, 2000.0], [5.0, 1.0, 90.0, 0.1, 12.0]])
LIMITS = np.array([4.0, 0.7, 4.0, 0.7, 9.0])
COUNTS = np.array([[1, 0, 2, 90, 1500], [7, 0, 31, 2, 0]])


@pytest.fixture
def limit() -> PriorLimit:
    limit = PriorLimit(SIZES)
    with torch.no_grad():
        limit.log_limits.copy_(torch.tensor(LIMITS).log())
    return limit.double()


def rates(limit: PriorLimit, weights: float) -> np.ndarray:
    log_rates, weights_now = limit(torch.tensor(EXPECTED).log(), torch.full((5,), weights).double())
    return (log_rates.exp() + weights_now * torch.tensor(COUNTS)).detach().numpy()


def test_modalities_are_not_limited_at_first(limit: PriorLimit) -> None:
    np.testing.assert_allclose(rates(limit, 0.3), EXPECTED + 0.3 * COUNTS)


def test_limited_rates_are_posterior_means_of_a_gamma_poisson_model(limit: PriorLimit) -> None:
    """Molecules of a gene are Poisson, their mean gamma with the limit as shape and what is expected as mean."""
    limit.limited[:] = True
    found = rates(limit, 0.0)
    for cell, gene in np.ndindex(EXPECTED.shape):
        prior = stats.gamma(LIMITS[gene], scale=EXPECTED[cell, gene] / LIMITS[gene])
        count = COUNTS[cell, gene]
        width = 12 * np.sqrt(count + 1)
        low, high = max(count - width, 0.0), max(count + width, prior.ppf(1 - 1e-12))

        def joint(mean: float, power: int, prior=prior, count=count) -> float:
            return mean**power * prior.pdf(mean) * stats.poisson.pmf(count, mean)

        points = np.unique(np.clip([1e-4, count / 2, count, prior.mean()], low, high))
        above, below = (integrate.quad(joint, low, high, (power,), points=points, limit=500)[0] for power in (1, 0))
        np.testing.assert_allclose(found[cell, gene], above / below, rtol=1e-4)


def test_only_the_modalities_that_are_said_are_limited(limit: PriorLimit) -> None:
    limit.limited[1] = True
    found = rates(limit, 0.3)
    np.testing.assert_allclose(found[:, :2], (EXPECTED + 0.3 * COUNTS)[:, :2])
    assert (found[:, 2:] != (EXPECTED + 0.3 * COUNTS)[:, 2:]).all()


def test_gradients_are_finite_at_any_expectation(limit: PriorLimit) -> None:
    limit.limited[1] = True
    log_expected = torch.linspace(-80, 80, 10).double().reshape(2, 5).requires_grad_()
    log_rates, weights = limit(log_expected, torch.full((5,), 0.1).double())
    (log_rates.sum() + weights.sum()).backward()
    assert log_expected.grad.isfinite().all() and limit.log_limits.grad.isfinite().all()
    assert (log_rates[:, 2:] <= torch.tensor(LIMITS).log()[2:] + 1e-6).all()
