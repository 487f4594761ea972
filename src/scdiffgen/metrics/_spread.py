"""Variances and covariances within groups, and tables of intervals of generated and other real cells."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ._comparison import CONFIDENCE, Pair, Sample, Settings
from ._input import Matrix
from ._resampling import Weights
from ._samples import OVERALL, pairs

WITHIN = "within"


def variances(points: Matrix, weights: Weights, labels: NDArray | None = None) -> NDArray[np.float64]:
    """Compute unbiased variances of columns under each row of weights, pooled within labels, (rows, columns)."""
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
    """Compute log ratios of the variances of y to x along each dimension, (rows, dimensions)."""
    var_x, var_y = (variances(p, w, c) for p, w, c in ((x, wx, labels[0]), (y, wy, labels[1])))
    return np.log(np.maximum(var_y, 1e-12) / np.maximum(var_x, 1e-12))


def covariances(scores: NDArray, weights: Weights, labels: NDArray) -> NDArray[np.float64]:
    """Compute unbiased covariances of scores ``(cells, programs)`` within labels, one matrix per row of weights."""
    n_rows, n_programs = len(weights), scores.shape[1]
    total, freedom = np.zeros((n_rows, n_programs, n_programs)), np.zeros((n_rows, 1, 1))
    for label in np.unique(labels):
        x, w = scores[labels == label], weights[:, labels == label]
        size, sums = w.sum(axis=1)[:, None, None], w @ x
        total = total + np.einsum("rc,cp,cq->rpq", w, x, x) - sums[:, :, None] * sums[:, None] / np.maximum(size, 1)
        freedom = freedom + np.maximum(size - 1, 0)
    return total / np.maximum(freedom, 1)


def grouped_pairs(
    cells: Mapping[str, Sample], groupby: str | None, sources: Sequence[str], settings: Settings
) -> dict[str, dict[str, Pair]]:
    """Return pairs by group and source: all cells, all cells for statistics within labels, and each label."""
    if any(WITHIN in side.labels for side in cells.values()):
        raise ValueError(f"obs[{groupby!r}] has a group {WITHIN!r}, the name of the rows within labels. Rename it.")
    parts: dict[str, dict[str, Pair]] = {}
    for key, pair in pairs(cells, sources, settings):
        is_all = groupby is not None and key["group"] == OVERALL
        for group in [OVERALL, WITHIN] if is_all else [key["group"]]:
            parts.setdefault(group, {})[key["source"]] = pair
    return parts


def interval_table(
    resampled: Mapping[str, NDArray[np.float64]],
    columns: Mapping[str, tuple[str, str, str]],
    is_ratio: NDArray[np.bool_],
    index: Any,
) -> pd.DataFrame:
    """Tabulate estimates of generated and other real cells with 95 % intervals, from ``(rows, statistics)``."""
    # Ratios are passed as logarithms; the best ratio is 1 and the best difference 0. `apart` marks intervals of
    # generated cells on one side of the best value and of the interval of other real cells. Absent sources are NaN.
    table = pd.DataFrame(np.nan, index, [name for names in columns.values() for name in names])
    for source, rows in resampled.items():
        margin = CONFIDENCE * rows[1:].std(axis=0, ddof=1) if len(rows) > 2 else np.nan
        for name, end in zip(columns[source], (rows[0], rows[0] - margin, rows[0] + margin), strict=True):
            table[name] = np.where(is_ratio, np.exp(end), end)
    (low, high), (other_low, other_high) = (table[list(columns[s][1:])].to_numpy().T for s in columns)
    best = is_ratio.astype(float)
    return table.assign(apart=(high < np.minimum(other_low, best)) | (low > np.maximum(other_high, best)))
