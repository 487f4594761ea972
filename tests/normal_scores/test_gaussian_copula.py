"""The Gaussian copula against scipy's truncated normal and simulated truth."""

import numpy as np
import pytest
from scipy import optimize, sparse, stats

from scdiffgen.normal_scores import (
    Frame,
    GaussianCopula,
    ReferenceDistribution,
    draw_truncated,
    fit_groups,
    fit_loadings,
    truncated_moments,
)

ENDS = np.array(
    [[-np.inf, 0.3], [-np.inf, -12.0], [-np.inf, 9.0], [-1.0, 2.0], [5.0, 5.5], [10.0, 13.0], [-14.0, -13.0], [0, 0.01]]
)


def test_moments_are_those_of_scipys_truncated_normal() -> None:
    mean, variance = truncated_moments(*ENDS.T)
    expected = np.array([stats.truncnorm.stats(*ends, moments="mv") for ends in ENDS])
    np.testing.assert_allclose(mean, expected[:, 0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(variance, expected[:, 1], rtol=1e-4, atol=1e-7)


def test_moments_beyond_all_probability_are_those_of_the_nearer_end() -> None:
    mean, variance = truncated_moments(np.array([60.0, -np.inf]), np.array([61.0, -60.0]))
    np.testing.assert_array_equal(mean, [60.0, -60.0])
    assert np.isfinite(variance).all()


def test_draws_follow_scipys_truncated_normal() -> None:
    drawn = draw_truncated(*np.repeat(ENDS[:, :, None], 4000, axis=2).transpose(1, 0, 2), np.random.default_rng(0))  # type: ignore[call-arg]
    for ends, sample in zip(ENDS, drawn, strict=True):
        assert ends[0] <= sample.min() and sample.max() < ends[1]
        assert stats.kstest(sample, stats.truncnorm(*ends).cdf).pvalue > 1e-3, ends


def simulate(n_cells: int = 4000, seed: int = 0) -> tuple[GaussianCopula, np.ndarray, sparse.csr_matrix]:
    """Counts of known means, deviations and one factor; a last gene holds the rest of the library size."""
    rng, n_genes = np.random.default_rng(seed), 40
    reference = ReferenceDistribution(np.full(n_genes, 0.5 / n_genes), np.linspace(0.5, 5.0, n_genes))
    means, deviations = rng.normal(0, 0.4, (2, n_genes)), rng.uniform(0.8, 1.2, (2, n_genes))
    loadings = np.where(np.arange(n_genes) < 20, 0.6, 0.0)[None] * rng.choice([-1, 1], n_genes)
    truth = GaussianCopula(reference, loadings, Frame(means, deviations))
    groups, library = rng.integers(0, 2, n_cells), rng.gamma(10.0, 16.0, n_cells)  # two molecules a gene
    counts = truth.draw(groups, library, rng)
    rest = np.maximum(library - counts.sum(axis=1).A1, 0).round()
    return truth, groups, sparse.hstack([counts, rest[:, None]], format="csr")


def test_means_and_deviations_of_groups_are_recovered() -> None:
    truth, groups, counts = simulate()
    shares, theta = truth.reference.shares, truth.reference.inverse_dispersions
    reference = ReferenceDistribution(np.append(shares, 0.5), np.append(theta, 1.0))
    means, deviations = fit_groups(reference, counts, groups)
    np.testing.assert_allclose(means[:, :-1], truth.groups.means, atol=0.15)
    np.testing.assert_allclose(deviations[:, :-1], truth.groups.deviations, atol=0.15)


@pytest.mark.parametrize(("mean", "spread"), [(0.03, 0.0), (0.3, 0.0), (3.0, 0.0), (0.3, 0.6), (3.0, 0.6)])
def test_moments_of_sparse_and_dense_genes_are_most_likely(mean: float, spread: float) -> None:
    n_cells, rng = 4000, np.random.default_rng(0)
    reference = ReferenceDistribution(np.array([mean / 1000, 1 - mean / 1000]), np.array([1.0, 1e4]))
    library = np.round(1000 * np.exp(spread * rng.standard_normal(n_cells)))
    scores = rng.normal([-0.7, 0.0], [0.8, 1.0], (n_cells, 2))
    counts = reference.to_counts(scores, library)
    ends = np.array(reference.interval(counts, library))[:, :, 0]
    (lower, upper), n_alike = np.unique(ends, axis=1, return_counts=True)

    def surprise(moments: np.ndarray) -> float:
        bounds = [stats.norm.cdf(end, moments[0], np.exp(moments[1])) for end in (upper, lower)]
        return -n_alike @ np.log(bounds[0] - bounds[1])

    best = optimize.minimize(surprise, [0.0, 0.0], method="Nelder-Mead").x
    fitted = fit_groups(reference, counts, np.zeros(n_cells, dtype=int))
    found = fitted.means[0, 0], np.log(fitted.deviations[0, 0])
    assert surprise(np.array(found)) - surprise(best) < 1.0, (found, best)  # two parameters take 1


def test_correlations_of_simulated_scores_are_recovered() -> None:
    truth, groups, counts = simulate()
    pairs = np.triu_indices(40, 1)
    several, single = (GaussianCopula.fit(counts, groups, n_rounds=n, seed=1) for n in (10, 1))
    expected, found, hidden = ((c.loadings.T @ c.loadings)[pairs] for c in (truth, several, single))
    assert np.corrcoef(expected, found)[0, 1] > 0.95
    slope, slope_of_single = (values @ expected / (expected @ expected) for values in (found, hidden))
    assert slope_of_single < 0.8 < 0.9 < slope < 1.1
    np.testing.assert_allclose((several.loadings**2).sum(axis=0) + several.noise**2, 1.0)


def test_noise_has_no_factors_and_spikes_have_their_variance() -> None:
    rng, axis = np.random.default_rng(4), np.full(1000, 1 / np.sqrt(1000))
    noise = rng.standard_normal((2000, 1000))
    assert len(fit_loadings(noise, 50)) == 0
    spiked = noise + np.sqrt(1.5) * rng.standard_normal((2000, 1)) * axis
    (loadings,) = fit_loadings(spiked, 50)
    assert loadings @ loadings == pytest.approx(1.5, rel=0.2)  # the sample variance exceeds that of noise by 2.3
    assert len(fit_loadings(spiked, 0)) == 0


def test_one_cell_has_no_factors() -> None:
    copula = GaussianCopula.fit(sparse.csr_matrix([[4, 0, 2]]), np.zeros(1, dtype=int))
    assert copula.loadings.shape == (0, 3)
    assert np.isfinite(copula.groups.means).all() and (copula.groups.deviations > 0).all()
