"""Differential expression of treated against control cells: which genes respond, and in which order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import false_discovery_control, mannwhitneyu

from scdiffgen.metrics._classifiers import as_features
from scdiffgen.metrics._input import EXPRESSION, Points, enough_cells

GENES_AT_A_TIME = 200
SIGNIFICANT = 0.05


class GeneTests(NamedTuple):
    """Tests of every gene, treated against control; see `rank_genes`.

    Parameters
    ----------
    t
        Welch's t, positive for genes that go up, (genes,).
    pvalue
        P-values of the Wilcoxon rank-sum test, adjusted over the genes after Benjamini & Hochberg (1995), (genes,).
    """

    t: NDArray[np.float64]
    pvalue: NDArray[np.float64]

    @property
    def significant(self) -> NDArray[np.bool_]:
        """Whether the adjusted p-value is below 0.05, (genes,)."""
        return self.pvalue < SIGNIFICANT


def rank_genes(treated: Points, control: Points) -> GeneTests:
    """Test every gene for a difference between treated and control cells.

    Genes are called by the Wilcoxon rank-sum test with tie correction, adjusted after Benjamini & Hochberg (1995), as
    ``scanpy.tl.rank_genes_groups(method="wilcoxon", tie_correct=True)`` does. Welch's t tells how strong the response
    is.

    Parameters
    ----------
    treated
        Expression of treated cells, (cells, genes).
    control
        Expression of control cells, (cells, genes).

    Returns
    -------
    t
        Welch's t, positive for genes that go up, (genes,).
    pvalue
        Adjusted p-values of the rank-sum test, (genes,). NaN, with a warning, for fewer than two cells on a side.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> rank_genes(x[:25] + [5, 0, 0], x[25:]).significant
    array([ True, False, False])
    """
    x, y = as_features(treated, "treated", EXPRESSION), as_features(control, "control", EXPRESSION)
    if not enough_cells("rank_genes", 2, treated=x.shape[0], control=y.shape[0]):
        return GeneTests(*np.full((2, x.shape[1]), np.nan))
    return GeneTests(_welch_t(x, y), _rank_sum_pvalues(x, y))


def mean_expression(cells: NDArray | sparse.csr_matrix) -> NDArray[np.float64]:
    """Mean of every gene, (genes,); NaN without cells."""
    if cells.shape[0] == 0:
        return np.full(cells.shape[1], np.nan)
    return np.asarray(cells.astype(np.float64).mean(axis=0)).ravel()


def _welch_t(treated: NDArray | sparse.csr_matrix, control: NDArray | sparse.csr_matrix) -> NDArray[np.float64]:
    """Welch's t statistic of every gene, 0 where neither side varies, (genes,)."""
    means, errors = [], []
    for cells in (treated, control):
        matrix = sparse.csr_matrix(cells).astype(np.float64)
        n, mean = matrix.shape[0], mean_expression(matrix)
        means.append(mean)
        errors.append(np.clip(mean_expression(matrix.multiply(matrix).tocsr()) - mean**2, 0, None) / (n - 1))
    error = np.sqrt(errors[0] + errors[1])
    return np.divide(means[0] - means[1], error, out=np.zeros_like(error), where=error > 1e-12)


def _rank_sum_pvalues(treated: Points, control: Points) -> NDArray[np.float64]:
    x, y = sparse.csc_matrix(treated), sparse.csc_matrix(control)
    pvalues = []
    for start in range(0, x.shape[1], GENES_AT_A_TIME):
        a, b = (m[:, start : start + GENES_AT_A_TIME].toarray() for m in (x, y))
        with np.errstate(divide="ignore", invalid="ignore"):  # genes that never vary have no p-value
            test = mannwhitneyu(a, b, axis=0, method="asymptotic", use_continuity=False)
        pvalues.append(np.nan_to_num(test.pvalue, nan=1.0))
    return false_discovery_control(np.concatenate(pvalues))
