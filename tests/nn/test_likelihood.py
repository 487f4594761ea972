"""Likelihoods against SciPy's distributions, and draws against their moments."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from scdiffgen.nn._autoencoder import CountLikelihood

COUNTS = np.array([[0, 3, 40.0], [7, 0, 1]])
MEAN = np.array([[0.5, 2.0, 30.0], [10.0, 0.01, 1.0]])
DISPERSION = np.array([0.3, 4.0, 50.0])
ZERO_LOGITS = np.array([[-2.0, 0.0, 1.0], [0.5, -1.0, 3.0]])


def likelihood(kind: str) -> CountLikelihood:
    made = CountLikelihood(3, kind)
    if made.log_dispersion is not None:
        with torch.no_grad():
            made.log_dispersion.copy_(torch.tensor(DISPERSION).log())
    return made.double()


def log_prob(kind: str) -> np.ndarray:
    zeros = torch.tensor(ZERO_LOGITS) if kind == "zinb" else None
    return likelihood(kind).log_prob(torch.tensor(COUNTS), torch.tensor(MEAN), zeros).detach().numpy()


def test_log_probabilities_are_scipys() -> None:
    binomial = stats.nbinom(DISPERSION, DISPERSION / (DISPERSION + MEAN))
    np.testing.assert_allclose(log_prob("poisson"), stats.poisson(MEAN).logpmf(COUNTS), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(log_prob("nb"), binomial.logpmf(COUNTS), rtol=1e-5, atol=1e-5)
    extra = 1 / (1 + np.exp(-ZERO_LOGITS))
    inflated = np.log(extra * (COUNTS == 0) + (1 - extra) * binomial.pmf(COUNTS))
    np.testing.assert_allclose(log_prob("zinb"), inflated, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["poisson", "nb", "zinb"])
def test_draws_have_the_moments_of_the_distribution_and_follow_the_generator(kind: str) -> None:
    mean = torch.tensor([2.0, 5.0, 30.0], dtype=torch.float64).expand(20_000, 3)
    zeros = torch.full_like(mean, -1.0) if kind == "zinb" else None
    state = torch.get_rng_state()
    drawn, again = (likelihood(kind).sample(mean, zeros, torch.Generator().manual_seed(0)).numpy() for _ in range(2))
    np.testing.assert_array_equal(drawn, again)
    assert torch.equal(state, torch.get_rng_state())
    variance = mean[0].numpy() + (0 if kind == "poisson" else mean[0].numpy() ** 2 / DISPERSION)
    there = 1 / (1 + np.exp(-1)) if kind == "zinb" else 1.0
    expected = there * mean[0].numpy()
    total = there * (variance + mean[0].numpy() ** 2) - expected**2
    np.testing.assert_allclose(drawn.mean(0), expected, atol=5 * np.sqrt(total.max() / 20_000))
    np.testing.assert_allclose(drawn.var(0), total, rtol=0.15)
