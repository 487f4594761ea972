import numpy as np
import pytest
from benchmarks._dose_truth import expected_log_expression, true_mean
from scipy import stats

from scdiffgen.datasets import simulate


def test_expectation_is_that_of_scipys_beta_binomial() -> None:
    shares = np.array([[0.2, 0.7, 0.1], [0.001, 0.5, 0.499]])
    library = np.array([40.0, 7.0])
    expected = [
        [
            stats.betabinom(int(total), 30 * share, 30 * (1 - share)).expect(lambda k, n=total: np.log1p(1e4 * k / n))
            for share in row
        ]
        for row, total in zip(shares, library, strict=True)
    ]
    np.testing.assert_allclose(expected_log_expression(shares, library, 30.0), expected, rtol=1e-9)


@pytest.mark.parametrize("perturbation", ["A", "B"])
def test_true_mean_is_that_of_many_simulated_cells(perturbation: str) -> None:
    adata = simulate(n_cells=20_000, n_genes=10, n_types=1, n_batches=1, doses=[2.0], seed=1)
    treated = adata[adata.obs["perturbation"] == perturbation]
    spread = treated.X.toarray().std(0) / np.sqrt(len(treated))
    difference = true_mean(adata, treated[:500], perturbation, 2.0) - np.asarray(treated.X.mean(0)).ravel()
    assert np.abs(difference / np.hypot(spread, 0.02)).max() < 4
    assert (
        np.abs(true_mean(adata, treated[:500], perturbation, 0.0) - np.asarray(treated.X.mean(0)).ravel()).max() > 0.3
    )
