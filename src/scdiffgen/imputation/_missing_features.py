"""Regression of features that are missing in some cells on the other features of a cell."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from ._count_regression import CountRegression, regression_inputs


def draw_missing(
    counts: np.ndarray,
    missing: np.ndarray,
    others: Sequence[sparse.csr_matrix],
    *,
    fewest: int,
    most: int,
) -> np.ndarray:
    """Draw missing features in counts ``(cells, columns)`` of a modality, given other modalities of the cells.

    Features that are missing in the same cells are regressed together, on the features that no cell misses, in at most
    ``most`` cells; fewer cells than ``fewest`` give their mean, no cell gives zeros.
    """
    complete, rng = counts.copy(), np.random.default_rng(0)
    is_measured = counts.any(axis=1)
    inputs = regression_inputs(
        [sparse.csr_matrix(counts[:, ~missing.any(axis=0)]), *others], np.zeros((len(counts), 0))
    )
    for pattern in np.unique(missing[:, missing.any(axis=0)], axis=1).T:
        columns = np.flatnonzero((missing == pattern[:, None]).all(axis=0))
        known, unknown = np.flatnonzero(is_measured & ~pattern), np.flatnonzero(is_measured & pattern)
        known = rng.permutation(known)[:most]
        if not len(known):
            continue
        if len(known) < fewest:
            complete[np.ix_(unknown, columns)] = counts[np.ix_(known, columns)].mean(axis=0).round()
            continue
        regression = CountRegression.fit(inputs[known], 0, counts[np.ix_(known, columns)])
        complete[np.ix_(unknown, columns)] = regression.draw(regression.log_mean(inputs[unknown]), rng)
    return complete
