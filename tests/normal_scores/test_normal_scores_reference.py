"""Intervals of normal scores and their inverse against scipy's negative binomial."""

import numpy as np
import pytest
from scipy import sparse, stats

from scdiffgen.normal_scores import Intervals, ReferenceDistribution

SHARES = np.array([0.5, 0.3, 0.15, 0.049, 0.001])
THETA = np.array([0.3, 1.0, 7.3, 1e4, 0.5])
REFERENCE = ReferenceDistribution(SHARES, THETA)


def negative_binomial(library: np.ndarray):
    means = library[:, None] * SHARES
    return stats.nbinom(THETA, THETA / (THETA + means))


def test_ends_are_the_scores_of_scipys_distribution_function() -> None:
    counts, library = np.random.default_rng(0).integers(0, 60, (200, 5)), np.geomspace(1.0, 3e3, 200)
    lower, upper = REFERENCE.interval(sparse.csr_matrix(counts), library)
    reference = negative_binomial(library)
    for end, count in ((lower, counts - 1), (upper, counts)):
        below, above = reference.cdf(count), reference.sf(count)
        expected = np.where(below < 0.5, stats.norm.ppf(below), stats.norm.isf(above))
        precise = np.abs(expected) < 30
        np.testing.assert_allclose(end[precise], expected[precise], rtol=1e-8, atol=1e-10)
    assert (lower[counts == 0] == -np.inf).all() and (upper > lower).all()


def test_scores_become_scipys_quantiles() -> None:
    library, scores = np.geomspace(1.0, 3e4, 400), np.random.default_rng(1).normal(0, 2, (400, 5))
    counts = REFERENCE.to_counts(scores, library).toarray()
    expected = negative_binomial(library).ppf(stats.norm.cdf(scores))
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("where", [0.0, 0.3, 0.999])
def test_a_score_within_its_interval_gives_the_count_back(where: float) -> None:
    rng = np.random.default_rng(2)
    library = np.geomspace(1.0, 3e4, 500)
    usual = negative_binomial(library).rvs(random_state=rng)
    unusual = rng.integers(0, 400, usual.shape)  # far in either tail
    for counts in (usual, unusual):
        lower, upper = REFERENCE.interval(sparse.csr_matrix(counts), library)
        inside = (upper < 37) & (lower < upper)
        start = np.maximum(lower, -40.0)
        scores = start + where * (upper - start)
        back = REFERENCE.to_counts(scores, library).toarray()
        np.testing.assert_array_equal(back[inside], counts[inside])
    assert (lower[inside] > 8).any() and (upper[inside] < -8).any()


def test_extreme_counts_and_empty_cells_have_finite_scores() -> None:
    counts, library = sparse.csr_matrix([[100_000, 0, 0, 3, 0], [0, 0, 0, 0, 0]]), np.array([10.0, 0.0])
    lower, upper = REFERENCE.interval(counts, library)
    assert np.isfinite(upper).all() and np.isfinite(lower[counts.toarray() > 0]).all()
    assert REFERENCE.to_counts(np.full((2, 5), 100.0), library).toarray()[1].sum() == 0
    assert np.isfinite(REFERENCE.to_counts(np.full((2, 5), np.inf), library).data).all()


def test_a_tally_of_few_cells_has_the_interval_of_every_count() -> None:
    counts = sparse.csr_matrix(np.random.default_rng(0).poisson([3.0, 0.0, 1.0, 0.1, 40.0], (16, 5)))
    library, genes = counts.sum(axis=1).A1, slice(1, 5)
    tally = Intervals.tally(REFERENCE, counts.tocsc()[:, genes], library, genes)
    for ends, expected in zip((tally.lower, tally.upper), REFERENCE.interval(counts, library), strict=True):
        for gene in range(4):
            of_cells = np.repeat(ends[tally.gene == gene], tally.n_cells[tally.gene == gene])
            np.testing.assert_allclose(np.sort(of_cells), np.sort(expected[:, genes][:, gene]))


def test_shares_and_dispersions_of_simulated_counts_are_recovered() -> None:
    rng = np.random.default_rng(3)
    groups, library = np.repeat([0, 1], 5000), rng.gamma(5.0, 400.0, 10_000)
    shares = rng.dirichlet(np.full(400, 5.0), 2)
    theta = np.geomspace(0.5, 5.0, 400)
    means = library[:, None] * shares[groups]
    counts = sparse.csr_matrix(rng.poisson(rng.gamma(theta, means / theta)))
    fitted = ReferenceDistribution.fit(counts, groups)
    np.testing.assert_allclose(fitted.shares, shares.mean(axis=0), rtol=0.1)
    ratio = fitted.inverse_dispersions / theta
    assert np.median(ratio) == pytest.approx(1.0, rel=0.05) and np.abs(np.log(ratio)).mean() < 0.1


def test_genes_without_molecules_keep_a_share_and_a_dispersion() -> None:
    fitted = ReferenceDistribution.fit(sparse.csr_matrix([[5, 0], [7, 0]]), np.zeros(2, dtype=int))
    assert (fitted.shares > 0).all() and (fitted.inverse_dispersions >= 0.3).all()
    assert fitted.shares.sum() == pytest.approx(1.0)
