"""How much cells vary: along principal components, and in the genes that they show for their molecules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen.metrics._genes import library_sizes
from scdiffgen.metrics._input import Matrix
from scdiffgen.metrics._resampling import Weights, split_halves

FEWEST_CELLS = 10  # of which a variance says something
SMALLEST = 1e-12  # variance
N_SPLITS = 10  # into halves: to choose a dimension, and to score it


def variances(points: Matrix, weights: Weights, labels: NDArray | None = None) -> NDArray[np.float64]:
    """Unbiased variance of every column under each row of weights, pooled within labels, (rows, columns)."""
    squares, freedom = np.zeros((len(weights), points.shape[1])), np.zeros((len(weights), 1))
    labels = np.zeros(points.shape[0]) if labels is None else labels
    for label in np.unique(labels):
        x, w = points[labels == label].astype(np.float64), weights[:, labels == label]
        total = w.sum(axis=1, keepdims=True)
        squared = x.multiply(x).tocsr() if sparse.issparse(x) else x * x
        squares += w @ squared - (w @ x) ** 2 / np.maximum(total, 1)
        freedom += np.maximum(total - 1, 0)
    return np.clip(squares, 0, None) / np.maximum(freedom, 1)


def log_variance_ratios(
    x: NDArray, y: NDArray, wx: Weights, wy: Weights, labels: tuple[NDArray | None, NDArray | None] = (None, None)
) -> NDArray[np.float64]:
    """Natural log of the variance of y over that of x along every dimension, (rows, dimensions)."""
    of_x, of_y = (variances(p, w, c) for p, w, c in ((x, wx, labels[0]), (y, wy, labels[1])))
    return np.log(np.maximum(of_y, SMALLEST) / np.maximum(of_x, SMALLEST))


def least_variance_ratio(
    x: NDArray, y: NDArray, wx: Weights, wy: Weights, labels: tuple[NDArray, NDArray], seed: int
) -> NDArray[np.float64]:
    """Variance ratio along the dimension that lacks most, (rows,).

    The dimension is chosen on one half of the cells and its ratio taken from the other, both ways and for several
    halves, and the geometric mean returned: the least of many noisy ratios lies far below 1 for real cells, too.
    """
    rows, found = np.arange(len(wx)), []
    for split in range(N_SPLITS):
        halves = zip(*(split_halves(of_side, seed=seed + split) for of_side in labels), strict=True)
        first, second = (log_variance_ratios(x[a], y[b], wx[:, a], wy[:, b]) for a, b in halves)
        found += [second[rows, first.argmin(axis=1)], first[rows, second.argmin(axis=1)]]
    return np.exp(np.mean(found, axis=0))


def detected_residuals(fitted: sparse.csr_matrix, *samples: sparse.csr_matrix) -> list[NDArray[np.float64]]:
    """Log genes detected minus what cells of as many molecules show, of the cells of each sample.

    That is a parabola in log molecules which is fitted to the first cells, and goes no further than they do.
    """
    size, genes = _sizes_and_genes(fitted)
    middle, scale = size.mean(), size.std() or 1.0

    def terms(of: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.vander((np.clip(of, size.min(), size.max()) - middle) / scale, 3)

    curve = np.linalg.lstsq(terms(size), genes, rcond=None)[0]
    return [found - terms(of) @ curve for of, found in map(_sizes_and_genes, samples)]


def spread_ratio(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Standard deviation of y over that of x, two samples of numbers, under each row of weights, (rows,)."""
    return np.exp(log_variance_ratios(x[:, None], y[:, None], wx, wy)[:, 0] / 2)


def _sizes_and_genes(counts: sparse.csr_matrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms of molecules and of genes detected; of a cell without any, those of one."""
    detected = np.asarray((counts > 0).sum(axis=1), dtype=np.float64).ravel()
    return np.log(np.maximum(library_sizes(counts), 1)), np.log(np.maximum(detected, 1))
