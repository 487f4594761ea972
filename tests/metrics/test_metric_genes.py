"""Gene-wise statistics against numpy and scipy."""

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import ks_2samp

from scdiffgen import metrics
from scdiffgen.metrics._genes import correlation_error_resampled, gene_moments, ks_resampled, mean_distance_resampled
from scdiffgen.metrics._resampling import bootstrap_weights


@pytest.fixture
def pair() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    rates = 0.3 + rng.gamma(1.0, size=25)
    return rng.poisson(rates, size=(60, 25)).astype(float), rng.poisson(1.5 * rates, size=(50, 25)).astype(float)


def test_gene_correlation_error_is_that_of_numpy(pair) -> None:
    x, y = pair
    genes = [1, 4, 7, 9]
    upper = np.triu_indices(4, 1)
    expected = np.abs(np.corrcoef(x[:, genes].T)[upper] - np.corrcoef(y[:, genes].T)[upper]).mean()
    assert metrics.gene_correlation_error(x, y, genes=genes) == pytest.approx(expected)
    assert metrics.gene_correlation_error(sparse.csr_matrix(x), sparse.csr_matrix(y), genes=genes) == pytest.approx(
        expected
    )


def test_a_constant_gene_correlates_with_none(pair) -> None:
    x, y = pair
    x[:, 0] = y[:, 0] = 3.0
    upper = np.triu_indices(24, 1)
    rest = np.abs(np.corrcoef(x[:, 1:].T)[upper] - np.corrcoef(y[:, 1:].T)[upper]).sum()
    assert metrics.gene_correlation_error(x, y) == pytest.approx(rest / (25 * 24 / 2))


def test_distance_of_means_is_unbiased_for_few_cells() -> None:
    shifts, spread = np.array([0.0, 1.0, 0.5, 0.0]), np.array([0.5, 2.0, 1.0, 3.0])
    found = []
    for seed in range(300):
        x, y = np.random.default_rng(seed).normal(size=(2, 20, 4)) * spread
        found.append(mean_distance_resampled(x, y + shifts, np.ones((1, 20)), np.ones((1, 20)))[0])
    expected = (shifts**2 / spread**2).sum()
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / 300**0.5 + 0.05 * expected)


def test_weights_are_repeats(pair) -> None:
    x, y = pair
    rng = np.random.default_rng(1)
    wx, wy = bootstrap_weights(60, 4, rng), bootstrap_weights(50, 4, rng)
    moments = gene_moments(x, wx)
    ks, error = ks_resampled(x.sum(1), y.sum(1), wx, wy), correlation_error_resampled(x, y, wx, wy)
    for row in range(5):
        a, b = x[np.repeat(np.arange(60), wx[row].astype(int))], y[np.repeat(np.arange(50), wy[row].astype(int))]
        np.testing.assert_allclose(moments["mean"][row], a.mean(0))
        np.testing.assert_allclose(moments["variance"][row], a.var(0), atol=1e-12)
        np.testing.assert_allclose(moments["zero_fraction"][row], (a == 0).mean(0), atol=1e-12)
        assert ks[row] == pytest.approx(ks_2samp(a.sum(1), b.sum(1)).statistic)
        assert error[row] == pytest.approx(metrics.gene_correlation_error(a, b))


def test_moments_leave_unsorted_indices_alone(pair) -> None:
    matrix = sparse.csr_matrix(pair[0].astype(np.float32))[:, ::-1]
    kept = matrix.toarray()
    for _ in range(2):
        np.testing.assert_allclose(gene_moments(matrix, np.ones((1, 60)))["variance"][0], kept.var(0), rtol=1e-5)
        np.testing.assert_array_equal(matrix.toarray(), kept)


def test_too_few_cells_are_nan_with_a_warning(pair) -> None:
    x, _ = pair
    with pytest.warns(metrics.FewCellsWarning, match="gene_correlation_error needs 3 cells, `generated` has 2"):
        assert np.isnan(metrics.gene_correlation_error(x, x[:2]))
