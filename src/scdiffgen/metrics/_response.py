"""Scores of a predicted response, one number a gene: the change against control, or a test statistic; and the tests."""

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
MIN_CELLS = 2  # of a condition
MIN_RESPONDING = 10  # genes, for an order or a slope over them: fewer are sampling noise
ROUNDING = 1e-9  # changes of log expression below are rounding errors
Vector = NDArray[np.float64]  # (genes,)
Called = NDArray[np.bool_]  # whether each gene responds, (genes,)


def pearson_delta(real: ArrayLike, predicted: ArrayLike) -> float:
    """Pearson correlation over genes of the real and the predicted change.

    Parameters
    ----------
    real, predicted
        Mean expression minus one and the same reference, (genes,).

    Returns
    -------
    The correlation; NaN if one of the two is constant, as "no change" is.

    Examples
    --------
    >>> round(pearson_delta([0, 1, 2], [0, 10, 20]), 6)
    1.0
    """
    x, y = (as_numbers(v, name, RESPONSE).astype(float) for v, name in ((real, "real"), (predicted, "predicted")))
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"`real` and `predicted` must be one number a gene, got shapes {x.shape} and {y.shape}.")
    x, y = x - x.mean(), y - y.mean()
    if min(np.ptp(x), np.ptp(y)) < ROUNDING:
        return float("nan")
    return float((x @ y) / np.sqrt((x @ x) * (y @ y)))


def weighted_mse(real: Vector, predicted: Vector, statistic: Vector) -> float:
    """Compute the mean squared error over genes, weighted by how much each gene responds (Mejia et al. 2025)."""
    size = np.abs(statistic)  # without weights, a prediction of no change does well: most genes do not respond
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
    # ranked by change: a test of predicted cells would reward cells that vary too little
    x, y = np.abs(real), np.abs(predicted)
    if len(x) <= n_top:
        return float("nan")
    first, second = (np.argsort(-v, kind="stable")[:n_top] for v in (x, y))
    return float(np.isin(first, second[y[second] > 0]).mean())


def de_pr_auc(significant: Called, predicted: Vector) -> float:
    """Average precision of finding the responding genes by the absolute predicted change; NaN if none, or all, do."""
    size = np.abs(predicted)
    if significant.all() or not significant.any() or not np.isfinite(size).all():
        return float("nan")
    return float(average_precision_score(significant, size))


def sign_agreement(real: Vector, predicted: Vector, significant: Called) -> float:
    """Fraction of the responding genes predicted to change in the right direction; 0 is no direction, never right."""
    x, y = real[significant], predicted[significant]
    return float((np.sign(x) == np.sign(y)).mean()) if len(x) else float("nan")


def fold_change_spearman(real: Vector, predicted: Vector, significant: Called) -> float:
    """Spearman correlation of real and predicted changes over ten responding genes or more; NaN if not defined."""
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
    """Tests of every gene, treated against control; see `rank_genes`."""

    t: Vector  # Welch's, positive for genes that go up
    pvalue: Vector  # of the rank-sum test, adjusted over the genes

    @property
    def significant(self) -> Called:
        """Whether the adjusted p-value is below 0.05, (genes,)."""
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
    """Test every gene by scanpy's ``rank_genes_groups``: a field of its result (genes,) for each label."""
    import scanpy as sc

    cells = AnnData(sparse.csr_matrix(expression))
    cells.obs["label"] = pd.Categorical(labels)
    with np.errstate(divide="ignore", invalid="ignore"):  # genes that never vary
        sc.tl.rank_genes_groups(cells, "label", **options)
    found = cells.uns["rank_genes_groups"]
    of_label = {name: pd.Series(found[field][name], found["names"][name]) for name in found["names"].dtype.names}
    return {name: values[cells.var_names].to_numpy(dtype=np.float64) for name, values in of_label.items()}


def mean_expression(cells: Matrix) -> Vector:
    """Mean of every gene, (genes,); NaN without cells."""
    if cells.shape[0] == 0:
        return np.full(cells.shape[1], np.nan)
    return np.asarray(cells.astype(np.float64).mean(axis=0)).ravel()
