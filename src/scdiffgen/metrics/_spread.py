"""How much cells vary along principal components."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen.metrics._input import Matrix
from scdiffgen.metrics._resampling import Weights

FEWEST_CELLS = 10  # of which a variance says something
SMALLEST = 1e-12  # variance


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
