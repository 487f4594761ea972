"""How cells are drawn: halves, subsamples, and the bootstrap by weights, which count how often each cell was drawn.

The first row of weights is all ones, the data as they are, so one pass gives the estimate and its resamples. Copies of
one cell are no pairs of different cells: metrics leave them out, which keeps U-statistics unbiased.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._input import enough_cells

Weights: TypeAlias = NDArray[np.float64]  # (1 + resamples, cells); the first row is ones
Seed: TypeAlias = int | Sequence[int]


def split_halves(labels: ArrayLike, *, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split cells at random into two halves of the same composition: what one scores on the other is the ceiling.

    Parameters
    ----------
    labels
        Label of every cell, (cells,); pass one label for all to split without regard to it.
    seed
        Seed of the split.

    Returns
    -------
    Positions of the first and of the second half, sorted. The odd cell of a label goes to either half in turn.

    Examples
    --------
    >>> first, second = split_halves(["a", "a", "b", "b"])
    >>> len(first), len(second)
    (2, 2)
    """
    names = np.asarray(labels).astype(str)
    order = np.random.default_rng(seed).permutation(len(names))
    order = order[np.argsort(names[order], kind="stable")]  # random within labels, labels side by side
    return np.sort(order[0::2]), np.sort(order[1::2])


def subsample(n: int, max_cells: int, seed: Seed) -> NDArray[np.intp]:
    """Positions of at most ``max_cells`` of n cells, in order, drawn without replacement."""
    if n <= max_cells:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size=max_cells, replace=False))


def unit_weights(n: int) -> Weights:
    """Weigh every cell once: one row of ones."""
    return np.ones((1, n))


def bootstrap_weights(n: int, n_resamples: int, rng: np.random.Generator) -> Weights:
    """Draw n cells with replacement ``n_resamples`` times; the first row is ones."""
    if n == 0:
        return np.ones((1 + n_resamples, 0))
    return np.vstack([np.ones(n), rng.multinomial(n, np.full(n, 1 / n), size=n_resamples)])


def weighted_mean(values: NDArray, weights: Weights) -> NDArray[np.float64]:
    """Mean of one value a cell under each row of weights, (rows,)."""
    return weights @ values / weights.sum(axis=1)


def weight_below(values: NDArray, weights: Weights, at: NDArray, side: Literal["left", "right"]) -> NDArray[np.float64]:
    """Sum of the weights of values below (right: or equal to) each of some numbers, (rows, numbers)."""
    order = np.argsort(values, kind="stable")
    below = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights[:, order], axis=1)], axis=1)
    return below[:, np.searchsorted(values[order], at, side=side)]


def unresampled(metric: str, needed: int, score: Callable[..., NDArray], x: Any, y: Any) -> float:
    """Score two samples as they are; NaN, with a warning, if a side has fewer cells than needed."""
    n_real, n_generated = x.shape[0], y.shape[0]
    if not enough_cells(metric, needed, real=n_real, generated=n_generated):
        return float("nan")
    return float(score(x, y, unit_weights(n_real), unit_weights(n_generated))[0])
