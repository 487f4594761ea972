"""Genes of tokens from cells whose programs are known: what ranks high, and what is found again."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.preprocessing import scale

from scdiffgen._log_normalise import log_normalise
from scdiffgen.module._token_basis import linear_stability, regression_loadings

N_CELLS, N_GENES, OF_EACH = 800, 200, 20


@pytest.fixture(scope="module")
def usage() -> np.ndarray:
    """Three programs of 20 genes each ``(cells, programs)``, each active in a fifth of the cells."""
    return (np.random.default_rng(0).random((N_CELLS, 3)) < 0.2).astype(float)


@pytest.fixture(scope="module")
def expression(usage: np.ndarray) -> sparse.csr_matrix:
    """Log expression of Poisson counts; genes 0 to 19 follow the first program, and half of all are rarely seen."""
    log_rates = np.where(np.arange(N_GENES) % 2, 0.5, -3.0) + np.zeros((N_CELLS, 1))
    for program in range(3):
        log_rates[:, OF_EACH * program : OF_EACH * (program + 1)] += 2 * usage[:, [program]]
    counts = np.random.default_rng(1).poisson(np.exp(log_rates))
    counts[:, -1] = 0
    return sparse.csr_matrix(log_normalise(counts))


def test_loadings_are_those_of_ridge_regression(usage: np.ndarray, expression: sparse.csr_matrix) -> None:
    activation = usage + usage[:, [1, 2, 0]]  # correlated
    model = Ridge(alpha=0.3 * N_CELLS, fit_intercept=False).fit(scale(activation), scale(expression.toarray()))
    found = regression_loadings(activation, expression)
    np.testing.assert_allclose(found, model.coef_, atol=1e-8)
    assert (found[-1] == 0).all()


def test_genes_of_a_program_come_first_and_those_seen_rarely_behind(
    usage: np.ndarray, expression: sparse.csr_matrix
) -> None:
    order = np.argsort(-regression_loadings(usage, expression), axis=0)
    for program in range(3):
        own = set(range(OF_EACH * program, OF_EACH * (program + 1)))
        assert set(order[:10, program]) == {gene for gene in own if gene % 2}
        assert len(set(order[:OF_EACH, program]) & own) >= 17


def test_programs_are_stable_and_noise_and_mixtures_are_less(usage: np.ndarray, expression: sparse.csr_matrix) -> None:
    """Three tokens are programs, one is noise; and one that is two programs is half of what is found again."""
    noise = np.random.default_rng(2).normal(size=(N_CELLS, 1))
    stability = linear_stability(regression_loadings(np.hstack([usage, noise]), expression), expression)
    assert (stability[:3] > 0.9).all() and stability[3] < 0.3
    mixed = np.column_stack([usage[:, 0], usage[:, 1] + usage[:, 2], usage[:, 1] - usage[:, 2]])
    stability = linear_stability(regression_loadings(mixed, expression), expression)
    assert stability[0] > 0.9
    np.testing.assert_allclose(stability[1:], np.sqrt(0.5), atol=0.1)


def test_of_few_or_equal_cells_no_stability_is_known() -> None:
    few, equal = sparse.csr_matrix(np.eye(3)), sparse.csr_matrix(np.ones((50, 8)))
    assert np.isnan(linear_stability(np.ones((3, 2)), few)).all()
    assert not np.nan_to_num(linear_stability(np.ones((8, 2)), equal)).any()
