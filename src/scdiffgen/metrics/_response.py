"""Changes of expression: tests, scores, equal depth, heterogeneity between cells, and contrasts of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from scdiffgen._log_normalise import library_sizes, log_normalise

from ._input import FEWEST_CELLS, RESPONSE, Matrix, as_numbers, enough_cells, label_sums
from ._resampling import Weights

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


def de_overlap(real: Vector, predicted: Vector, *, n_top: int = 100) -> float:
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


def mean_depth(counts: sparse.csr_matrix) -> float:
    """Compute the mean library size of counts (cells, genes); infinite without cells."""
    return float(library_sizes(counts).mean()) if counts.shape[0] else np.inf


def thin(counts: sparse.csr_matrix, depth: float, seed: Sequence[int], *, tolerance: float = 1.05) -> sparse.csr_matrix:
    """Thin counts (cells, genes) to a mean library size; cells at most 5 % deeper stay, so that no noise is added."""
    own = mean_depth(counts)
    if not tolerance * depth < own < np.inf:
        return counts
    kept = counts.sorted_indices()  # so that draws do not depend on the former order of the genes
    rng = np.random.default_rng([*seed, int(kept.data.sum())])  # thinning again draws anew
    kept.data = rng.binomial(kept.data.astype(np.int64), depth / own).astype(counts.dtype)
    kept.eliminate_zeros()
    return kept


def mean_change(treated: sparse.csr_matrix, control: sparse.csr_matrix, before: Vector, seed: int) -> Vector:
    """Compute the change (genes,) of mean log expression at equal depth; ``before`` is the mean of the controls."""
    depth = min(mean_depth(treated), mean_depth(control))
    after = mean_expression(log_normalise(thin(treated, depth, [seed, 1]), dtype=np.float32))
    thinned = thin(control, depth, [seed, 0])
    return after - (before if thinned is control else mean_expression(log_normalise(thinned, dtype=np.float32)))


class ResponseHeterogeneity(NamedTuple):
    """Heterogeneity of the single-cell responses of predicted and real treated cells; NaN if undefined."""

    spread: float  # ratio of the standard deviations of scores, without sampling noise
    non_responders: float  # fractions of cells with scores below those of 95 % of the untreated cells
    non_responders_real: float

    @property
    def non_responders_error(self) -> float:
        """Return the absolute difference of the predicted and real fractions of non-responders."""
        return abs(self.non_responders - self.non_responders_real)


UNDEFINED = ResponseHeterogeneity(*[float("nan")] * 3)


@dataclass(frozen=True)
class RealResponse:
    r"""Response of real treated against untreated cells, counts ``(cells, genes)``, along which cells are scored.

    The score of a cell x (log(1 + counts per 10,000)) is its projection on the mean change :math:`\Delta` from
    untreated (mean :math:`\mu`) to real treated cells, over the responding genes,
    :math:`s = (x - \mu) \cdot \Delta / |\Delta|^2`: 0 for the mean untreated, and 1 for the mean real treated cell.
    """

    treated: sparse.csr_matrix
    control: sparse.csr_matrix
    responding: Called
    seed: int

    def compare(self, counts: sparse.csr_matrix | None, shift: Vector | None = None) -> ResponseHeterogeneity:
        """Compare predicted cells, with a ``shift`` added to their log expression; NaN without counts."""
        if counts is None or not self.responding.any():
            return UNDEFINED
        scores = self._scores(counts) + (0.0 if shift is None else shift @ self._direction)
        low, real = self._threshold, self._variance
        spread = np.sqrt(max(self.noiseless_variance(counts), 0.0) / real) if real > 0 else float("nan")
        missing = (self._scores(self.treated) < low).mean()
        return ResponseHeterogeneity(*map(float, (spread, (scores < low).mean(), missing)))

    @cached_property
    def _direction(self) -> Vector:
        after, before = (mean_expression(_expression(cells)) for cells in (self.treated, self.control))
        change = np.where(self.responding, after - before, 0.0)
        return change / (change @ change)

    @cached_property
    def _origin(self) -> float:
        return float(mean_expression(_expression(self.control)) @ self._direction)

    @cached_property
    def _threshold(self) -> float:
        return float(np.quantile(self._scores(self.control), 0.95))

    @cached_property
    def _variance(self) -> float:
        return self.noiseless_variance(self.treated)

    def _scores(self, counts: sparse.csr_matrix) -> NDArray[np.float64]:
        return np.asarray(_expression(counts) @ self._direction, dtype=np.float64).ravel() - self._origin

    def noiseless_variance(self, counts: sparse.csr_matrix) -> float:
        """Estimate the variance of scores without sampling noise, by molecular cross-validation."""
        # The molecules of each cell are split at random into halves, five times. The covariance of their scores, after
        # regression on a parabola in log library size, is the variance without noise.
        size = np.log(np.maximum(library_sizes(counts), 1))
        basis = np.linalg.svd(np.vander(size - size.mean(), 3), full_matrices=False)
        curves = basis.U[:, basis.S > 1e-8 * basis.S.max()]
        rng, estimates = np.random.default_rng(self.seed), []
        for _ in range(5):
            first = counts.copy()
            first.data = rng.binomial(counts.data.astype(np.int64), 0.5).astype(counts.dtype)
            one, other = (score - curves @ (curves.T @ score) for score in map(self._scores, (first, counts - first)))
            estimates.append(one @ other / max(len(size) - curves.shape[1], 1))
        return float(np.mean(estimates))


def _expression(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    return log_normalise(counts, dtype=np.float32)


class LabelContrasts(NamedTuple):
    """Label contrasts of the cells on which the space is fitted, to select genes and as instruments of slopes."""

    labels: NDArray[np.str_]
    means: NDArray[np.float64]  # mean log expression, (labels, genes)
    n_cells: NDArray[np.int64]  # (labels,)
    significant: NDArray[np.bool_]  # test of the label against the rest, (labels, genes)


NO_LABELS = LabelContrasts(np.empty(0, dtype=str), np.empty((0, 0)), np.arange(0), np.empty((0, 0), dtype=bool))


def label_contrasts(expression: Matrix, labels: NDArray) -> LabelContrasts:
    """Compute means of labels with enough cells, and genes that are significant by scanpy's Welch t-test."""
    names, n_cells = np.unique(labels.astype(str), return_counts=True)
    kept = np.isin(labels.astype(str), names[n_cells >= FEWEST_CELLS])
    cells, labels = sparse.csr_matrix(expression[kept]), labels[kept].astype(str)
    if len(np.unique(labels)) < 2:
        return NO_LABELS
    known, sums, n_cells = label_sums(cells, labels, "labels")
    pvalues = scanpy_tests(cells, labels, "pvals_adj", method="t-test")
    significant = np.array([pvalues[name] for name in known]) < SIGNIFICANT
    return LabelContrasts(known, sums / n_cells[:, None], n_cells, significant)


def contrast_slope(
    fitted: LabelContrasts, x: Matrix, y: Matrix, wx: Weights, wy: Weights, labels: tuple[NDArray, NDArray]
) -> NDArray[np.float64]:
    """Regress fold changes y of generated on x of real cells, with z of fitted cells as instrument, (rows,)."""
    # sum(z y) / sum(z x) over significant pairs of label and gene. Unlike sum(x y) / sum(x^2), the slope is not
    # attenuated by the noise of x, which is independent of z and of the choice of pairs.
    n_cells = [[(side == label).sum() for side in labels] for label in fitted.labels]
    enough = np.array([min(sides) >= FEWEST_CELLS for sides in n_cells], dtype=bool)
    if enough.sum() < 2 or not fitted.significant[enough].any():
        return np.full(len(wx), np.nan)
    compared, share = fitted.labels[enough], fitted.n_cells[enough]
    pairs = fitted.significant[enough]
    z = _changes(fitted.means[enough], share)[pairs]
    products = []
    for points, weights, names in ((y, wy, labels[1]), (x, wx, labels[0])):
        means = [_mean(points[names == label], weights[:, names == label]) for label in compared]
        products.append(_changes(np.stack(means, axis=1), share)[:, pairs] @ z)
    return products[0] / products[1]


def _mean(expression: Matrix, weights: Weights) -> NDArray[np.float64]:
    return weights @ expression.astype(np.float64) / np.maximum(weights.sum(axis=1, keepdims=True), 1)


def _changes(means: NDArray[np.float64], n_cells: NDArray[np.int64]) -> NDArray[np.float64]:
    """Subtract the mean of all other labels from each label, (..., labels, genes)."""
    sums = means * n_cells[:, None]
    return means - (sums.sum(axis=-2, keepdims=True) - sums) / (n_cells.sum() - n_cells)[:, None]
