"""The likelihood against SciPy's distribution, and draws against its moments."""

import numpy as np
import torch
from scipy import stats

from scdiffgen.nn._network import CountLikelihood

COUNTS = np.array([[0, 3, 40.0], [7, 0, 1]])
MEAN = np.array([[0.5, 2.0, 30.0], [10.0, 0.01, 1.0]])
DISPERSION = np.array([0.3, 4.0, 50.0])


def likelihood() -> CountLikelihood:
    made = CountLikelihood(3)
    with torch.no_grad():
        made.log_dispersion.copy_(torch.tensor(DISPERSION).log())
    return made.double()


def test_log_probabilities_are_scipys() -> None:
    expected = stats.nbinom(DISPERSION, DISPERSION / (DISPERSION + MEAN)).logpmf(COUNTS)
    found = likelihood().log_prob(torch.tensor(COUNTS), torch.tensor(MEAN)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_draws_have_the_moments_of_the_distribution_and_follow_the_generator() -> None:
    mean = torch.tensor([2.0, 5.0, 30.0], dtype=torch.float64).expand(20_000, 3)
    state = torch.get_rng_state()
    drawn, again = (likelihood().sample(mean, torch.Generator().manual_seed(0)).numpy() for _ in range(2))
    np.testing.assert_array_equal(drawn, again)
    assert torch.equal(state, torch.get_rng_state())
    expected = mean[0].numpy()
    variance = expected + expected**2 / DISPERSION
    np.testing.assert_allclose(drawn.mean(0), expected, atol=5 * np.sqrt(variance.max() / 20_000))
    np.testing.assert_allclose(drawn.var(0), variance, rtol=0.15)
