"""Slope of log fold changes between labels, generated against real cells."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ._input import FEWEST_CELLS, Matrix, label_sums
from ._resampling import Weights
from ._response import SIGNIFICANT, scanpy_tests


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
