"""Tests of treated against control cells: which genes respond, and how much."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen.metrics._input import EXPRESSION, Matrix, Points, as_features

SIGNIFICANT = 0.05
MIN_CELLS = 2


class GeneTests(NamedTuple):
    """Tests of every gene, treated against control; see `rank_genes`."""

    t: NDArray[np.float64]  # Welch's, positive for genes that go up, (genes,)
    pvalue: NDArray[np.float64]  # of the rank-sum test, adjusted over the genes, (genes,)

    @property
    def significant(self) -> NDArray[np.bool_]:
        """Whether the adjusted p-value is below 0.05, (genes,)."""
        return self.pvalue < SIGNIFICANT


def rank_genes(treated: Points, control: Points) -> GeneTests:
    """Test every gene for a difference between log expression, (cells, genes), of treated and of control cells.

    Genes are called by the Wilcoxon rank-sum test with tie correction, adjusted after Benjamini & Hochberg (1995).
    Welch's t tells how strong the response is. NaN for fewer than two cells on a side.
    """
    x, y = as_features(treated, "treated", EXPRESSION), as_features(control, "control", EXPRESSION)
    if min(x.shape[0], y.shape[0]) < MIN_CELLS:
        return GeneTests(*np.full((2, x.shape[1]), np.nan))
    return GeneTests(_welch_t(x, y), _rank_sum_pvalues(x, y))


def mean_expression(cells: Matrix) -> NDArray[np.float64]:
    """Mean of every gene, (genes,); NaN without cells."""
    if cells.shape[0] == 0:
        return np.full(cells.shape[1], np.nan)
    return np.asarray(cells.astype(np.float64).mean(axis=0)).ravel()


def _welch_t(treated: Matrix, control: Matrix) -> NDArray[np.float64]:
    """Welch's t statistic of every gene, 0 where neither side varies, (genes,)."""
    means, errors = [], []
    for cells in (treated, control):
        matrix = sparse.csr_matrix(cells).astype(np.float64)
        mean = mean_expression(matrix)
        variance = np.clip(mean_expression(matrix.multiply(matrix).tocsr()) - mean**2, 0, None)
        means.append(mean)
        errors.append(variance / (matrix.shape[0] - 1))
    error = np.sqrt(errors[0] + errors[1])
    return np.divide(means[0] - means[1], error, out=np.zeros_like(error), where=error > 1e-12)


def _rank_sum_pvalues(treated: Matrix, control: Matrix) -> NDArray[np.float64]:
    """Adjusted p-values by scanpy, (genes,); 1 for genes that never vary."""
    import scanpy as sc

    cells = AnnData(sparse.vstack([sparse.csr_matrix(treated), sparse.csr_matrix(control)], format="csr"))
    cells.obs["group"] = pd.Categorical(np.repeat(["treated", "control"], [treated.shape[0], control.shape[0]]))
    options = {"groups": ["treated"], "reference": "control", "method": "wilcoxon", "tie_correct": True}
    with np.errstate(divide="ignore", invalid="ignore"):  # genes that never vary
        sc.tl.rank_genes_groups(cells, "group", **options)
    table = sc.get.rank_genes_groups_df(cells, "treated").set_index("names")
    return table["pvals_adj"].loc[cells.var_names].to_numpy()
