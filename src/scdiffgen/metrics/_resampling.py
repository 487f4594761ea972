"""Random halves, subsamples, and bootstrap weights (numbers of draws of each cell).

The first row of weights is all ones, so one pass computes the estimate and its resamples. Metrics exclude pairs of
copies of one cell, which keeps U-statistics unbiased.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._input import Matrix, enough_cells

Weights: TypeAlias = NDArray[np.float64]  # (1 + resamples, cells); the first row is ones
Seed: TypeAlias = int | Sequence[int]


def split_halves(labels: ArrayLike, *, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split cells at random into two halves of equal composition, for example for a real-versus-real ceiling.

    Parameters
    ----------
    labels
        Label of each cell, ``(cells,)``; pass one label for all cells to split without labels.
    seed
        Random seed of the split.

    Returns
    -------
    Sorted positions of the first and the second half. Odd cells of labels go to the halves in turn.

    Examples
    --------
    >>> first, second = split_halves(["a", "a", "b", "b"])
    >>> len(first), len(second)
    (2, 2)
    """
    names = np.asarray(labels).astype(str)
    order = np.random.default_rng(seed).permutation(len(names))
    order = order[np.argsort(names[order], kind="stable")]  # sorted by label, random within labels
    return np.sort(order[0::2]), np.sort(order[1::2])


def subsample(n: int, max_cells: int, seed: Seed) -> NDArray[np.intp]:
    """Draw positions of at most ``max_cells`` of n cells without replacement, in order."""
    if n <= max_cells:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size=max_cells, replace=False))


def unit_weights(n: int) -> Weights:
    return np.ones((1, n))


def bootstrap_weights(n: int, n_resamples: int, rng: np.random.Generator) -> Weights:
    """Draw n cells with replacement ``n_resamples`` times; the first row is ones."""
    if n == 0:
        return np.ones((1 + n_resamples, 0))
    return np.vstack([np.ones(n), rng.multinomial(n, np.full(n, 1 / n), size=n_resamples)])


def weighted_mean(values: NDArray, weights: Weights) -> NDArray[np.float64]:
    """Compute the mean of one value per cell under each row of weights, (rows,)."""
    return weights @ values / weights.sum(axis=1)


def weight_below(values: NDArray, weights: Weights, at: NDArray, side: Literal["left", "right"]) -> NDArray[np.float64]:
    """Sum the weights of values below (right: or equal to) each number, (rows, numbers)."""
    order = np.argsort(values, kind="stable")
    below = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights[:, order], axis=1)], axis=1)
    return below[:, np.searchsorted(values[order], at, side=side)]


def unresampled(metric: str, needed: int, score: Callable[..., NDArray], x: Matrix, y: Matrix) -> float:
    """Score two samples without resampling; NaN, with a warning, if a side has fewer cells than needed."""
    n_real, n_generated = x.shape[0], y.shape[0]
    if not enough_cells(metric, needed, real=n_real, generated=n_generated):
        return float("nan")
    return float(score(x, y, unit_weights(n_real), unit_weights(n_generated))[0])
