"""Scores of predicted responses (changes per gene), and differential expression tests."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from ._input import RESPONSE, Matrix, as_numbers, enough_cells

N_TOP_GENES = 100
SIGNIFICANT = 0.05
MIN_CELLS = 2  # minimum number of cells of a condition
MIN_RESPONDING = 10  # minimum number of responding genes for rank correlations and slopes
ROUNDING = 1e-9  # smaller changes of log expression are rounding errors
Vector = NDArray[np.float64]  # (genes,)
Called = NDArray[np.bool_]  # whether each gene responds, (genes,)


def pearson_delta(real: ArrayLike, predicted: ArrayLike) -> float:
    """Compute the Pearson correlation over genes of real and predicted changes.

    Parameters
    ----------
    real, predicted
        Mean expression minus the mean of control cells, ``(genes,)``. Subtract means of disjoint halves of the control
        cells: if both changes share a mean, its noise correlates them.

    Returns
    -------
    The correlation; NaN if a change is constant over genes, such as "no change".

    Examples
    --------
    >>> round(pearson_delta([0, 1, 2], [0, 10, 20]), 6)
    1.0
    """
    x, y = (as_numbers(v, name, RESPONSE).astype(float) for v, name in ((real, "real"), (predicted, "predicted")))
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"`real` and `predicted` have shapes {x.shape} and {y.shape}: pass one number per gene.")
    x, y = x - x.mean(), y - y.mean()
    if min(np.ptp(x), np.ptp(y)) < ROUNDING:
        return float("nan")
    return float((x @ y) / np.sqrt((x @ x) * (y @ y)))


def weighted_mse(real: Vector, predicted: Vector, statistic: Vector) -> float:
    """Compute the mean squared error over genes, weighted by test statistics (Mejia et al. 2025)."""
    size = np.abs(statistic)  # without weights, "no change" scores well because most genes do not respond
    weights = (size - size.min()) ** 2
    weights = weights if weights.sum() > 0 else np.ones_like(weights)
    return float(weights @ (real - predicted) ** 2 / weights.sum())


def discrimination_score(real: NDArray[np.float64], predicted: Vector, own: int) -> float:
    """Compute the perturbation discrimination score, by cosine, among all (treatments, genes); 0.5 is random."""
    if len(real) < 2 or not predicted.any():
        return float("nan")
    norms = np.linalg.norm(real, axis=1)
    cosine = np.divide(real @ predicted, norms, out=np.zeros(len(norms)), where=norms > 0)
    others = np.delete(cosine, own)
    nearer = (others > cosine[own]).sum() + 0.5 * (others == cosine[own]).sum()
    return float(1 - nearer / len(others))


def de_overlap(real: Vector, predicted: Vector, *, n_top: int = N_TOP_GENES) -> float:
    """Compute the fraction of the ``n_top`` genes of largest change that are also predicted; NaN for fewer genes."""
    # ranked by change, because a test of predicted cells would reward cells with too little variance
    x, y = np.abs(real), np.abs(predicted)
    if len(x) <= n_top:
        return float("nan")
    first, second = (np.argsort(-v, kind="stable")[:n_top] for v in (x, y))
    return float(np.isin(first, second[y[second] > 0]).mean())


def de_pr_auc(significant: Called, predicted: Vector) -> float:
    """Compute the average precision of absolute predicted changes for responding genes; NaN if none or all respond."""
    size = np.abs(predicted)
    if significant.all() or not significant.any() or not np.isfinite(size).all():
        return float("nan")
    return float(average_precision_score(significant, size))


def sign_agreement(real: Vector, predicted: Vector, significant: Called) -> float:
    """Compute the fraction of responding genes with the right sign of predicted change; no change counts as wrong."""
    x, y = real[significant], predicted[significant]
    return float((np.sign(x) == np.sign(y)).mean()) if len(x) else float("nan")


def fold_change_spearman(real: Vector, predicted: Vector, significant: Called) -> float:
    """Compute the Spearman correlation of changes over at least ten responding genes; NaN if undefined."""
    x, y = real[significant], predicted[significant]
    if len(x) < MIN_RESPONDING or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(spearmanr(x, y).statistic)


def fold_change_slope(real: Vector, predicted: Vector, significant: Called) -> float:
    """Regress predicted on real log fold changes of responding genes, with intercept; NaN for fewer than ten genes."""
    x, y = real[significant], predicted[significant]
    if len(x) < MIN_RESPONDING or np.ptp(x) == 0:
        return float("nan")
    centred = x - x.mean()
    return float((centred @ (y - y.mean())) / (centred @ centred))


class GeneTests(NamedTuple):
    """Tests of all genes, treated against control; see `rank_genes`."""

    t: Vector  # Welch's t, positive for up-regulated genes
    pvalue: Vector  # p-value of the rank-sum test, adjusted over genes

    @property
    def significant(self) -> Called:
        """Whether each gene has an adjusted p-value below 0.05, (genes,)."""
        return self.pvalue < SIGNIFICANT


def rank_genes(treated: Matrix, control: Matrix) -> GeneTests:
    """Test log expression (cells, genes) of treated against control cells: rank-sum test (BH-adjusted), Welch's t."""
    if treated.shape[0] < MIN_CELLS or not enough_cells("rank_genes", MIN_CELLS, control=control.shape[0]):
        return GeneTests(*np.full((2, treated.shape[1]), np.nan))
    cells = sparse.vstack([sparse.csr_matrix(treated), sparse.csr_matrix(control)], format="csr")
    labels = np.repeat(["treated", "control"], [treated.shape[0], control.shape[0]])
    t = scanpy_tests(cells, labels, "scores", method="t-test", reference="control")
    pvalues = scanpy_tests(cells, labels, "pvals_adj", method="wilcoxon", reference="control", tie_correct=True)
    return GeneTests(t["treated"], pvalues["treated"])


def scanpy_tests(expression: Matrix, labels: NDArray, field: str, **options: Any) -> dict[str, Vector]:
    """Test every gene by scanpy's ``rank_genes_groups``, and return a field of the result (genes,) by label."""
    import scanpy as sc

    cells = AnnData(sparse.csr_matrix(expression))
    cells.obs["label"] = pd.Categorical(labels)
    with np.errstate(divide="ignore", invalid="ignore"):  # constant genes
        sc.tl.rank_genes_groups(cells, "label", **options)
    result = cells.uns["rank_genes_groups"]
    by_label = {name: pd.Series(result[field][name], result["names"][name]) for name in result["names"].dtype.names}
    return {name: values[cells.var_names].to_numpy(dtype=np.float64) for name, values in by_label.items()}


def mean_expression(cells: Matrix) -> Vector:
    """Compute the mean of each gene, (genes,); NaN without cells."""
    if cells.shape[0] == 0:
        return np.full(cells.shape[1], np.nan)
    return np.asarray(cells.astype(np.float64).mean(axis=0)).ravel()
