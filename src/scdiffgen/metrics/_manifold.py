"""Nearest neighbours: whether generated cells lie among real ones, cover them, and differ from training cells."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances_argmin
from sklearn.neighbors import KDTree

from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics._input import Points, as_point_pair, as_points, enough_cells
from scdiffgen.metrics._resampling import Weights, unit_weights, weighted_mean

N_NEIGHBOURS = 5
CLOSEST = 0.01  # "too close" to a training cell: closer than this fraction of held-out real cells
COPY_LIMIT = 0.05  # fraction of generated cells that may be too close before a warning
CELLS_FOR_LIMIT = 100  # held-out cells that it takes to know what too close is


class CopyWarning(UserWarning):
    """Generated cells are closer to training cells than real cells are."""


class ManifoldScores(NamedTuple):
    """Overlap of two clouds of cells; see `manifold_precision_recall`."""

    precision: float
    recall: float
    density: float
    coverage: float


class Novelty(NamedTuple):
    """Distances to the nearest training cell; see `novelty`."""

    ratio: float
    too_close: float
    n_copies: int


@shared_docs
def manifold_precision_recall(real: Points, generated: Points, *, n_neighbours: int = N_NEIGHBOURS) -> ManifoldScores:
    """Precision, recall, density and coverage by k-nearest-neighbour balls.

    A ball round a cell reaches to its k-th nearest cell of the same side. *Precision*: generated cells in the ball of
    some real cell; *recall*: real cells in the ball of some generated cell (Kynkaanniemi et al. 2019, NeurIPS).
    *Density*: mean number of real balls a generated cell lies in, over k, which may exceed 1; *coverage*: real cells
    whose ball holds a generated cell (Naeem et al. 2020, ICML). The values for one population depend on the number of
    cells: compare with as many other real cells.

    Parameters
    ----------
    {points}
    n_neighbours
        The k of the balls.

    Returns
    -------
    The four scores; NaN, with a warning, unless both sides have more than k cells.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.random.default_rng(0).normal(size=(2, 200, 2))
    >>> manifold_precision_recall(x, y + 100.0)
    ManifoldScores(precision=0.0, recall=0.0, density=0.0, coverage=0.0)
    """
    x, y = as_point_pair(real, generated)
    if not enough_cells("manifold_precision_recall", n_neighbours + 1, real=len(x), generated=len(y)):
        return ManifoldScores(*[float("nan")] * 4)
    scores = overlap_resampled(x, y, unit_weights(len(x)), unit_weights(len(y)), n_neighbours)
    return ManifoldScores(**{name: float(rows[0]) for name, rows in scores.items()})


@shared_docs
def novelty(real: Points, generated: Points, train: Points) -> Novelty:
    """Distance of generated cells to their nearest training cell, against that of held-out real cells.

    Parameters
    ----------
    {points}
    train
        Training cells, over the same dimensions; ``real`` are cells that were not trained on.

    Returns
    -------
    ratio
        Median distance of generated over median distance of held-out cells; about 1, clearly below 1 is memorising.
    too_close
        Fraction of generated cells closer to a training cell than 99 % of held-out cells are; about 0.01.
    n_copies
        Generated cells on top of a training cell.

    Warns
    -----
    CopyWarning
        If more than 5 % of the generated cells are too close, by at least 100 held-out cells, or copies are more
        frequent than among held-out cells.

    Examples
    --------
    >>> import numpy as np
    >>> x, y, z = np.random.default_rng(0).normal(size=(3, 200, 2))
    >>> novelty(x, y, z).n_copies
    0
    """
    held_out, new = as_point_pair(real, generated)
    cells = as_points(train, "train")
    if not enough_cells("novelty", 1, train=len(cells), generated=len(new), real=len(held_out)):
        return Novelty(float("nan"), float("nan"), 0)
    return compare_novelty(nearest_distances(cells, new), nearest_distances(cells, held_out))


def compare_novelty(found: NDArray, expected: NDArray) -> Novelty:
    """Compare nearest-neighbour distances of generated cells with those of held-out cells; warns of copies."""
    median = float(np.median(expected))
    ratio = float(np.median(found)) / median if median > 0 else float("nan")
    too_close = float(is_too_close(found, expected).mean())
    copies, by_chance = (int((side <= 1e-6 * median).sum()) for side in (found, expected))
    crowded = too_close > COPY_LIMIT and len(expected) >= CELLS_FOR_LIMIT
    if crowded or copies / len(found) > by_chance / len(expected):
        warnings.warn(
            f"Generated cells resemble training cells more than new real cells do: {copies} of {len(found)} are copies,"
            f" and {too_close:.0%} are closer to a training cell than 99 % of held-out cells are (1 % expected). The "
            "generator may have memorised: train it for less long, on more cells, or with fewer parameters.",
            CopyWarning,
            stacklevel=3,
        )
    return Novelty(ratio, too_close, copies)


def is_too_close(found: NDArray, expected: NDArray) -> NDArray[np.bool_]:
    """Whether a distance to the nearest training cell is below that of 99 % of the held-out cells, (cells,)."""
    return found < np.quantile(expected, CLOSEST)


def nearest_distances(reference: NDArray, cells: NDArray) -> NDArray[np.float64]:
    """Distance of every cell to the nearest reference cell, (cells,)."""
    if len(cells) == 0:
        return np.empty(0)
    nearest = pairwise_distances_argmin(cells, reference)  # fast and rounded, so the distance itself is computed again
    return np.linalg.norm(cells - reference[nearest], axis=1)


def one_nn_hits(x: NDArray, y: NDArray) -> NDArray[np.float64]:
    """Whether each cell's nearest other cell is of its own side: 1, 0, or 0.5 in a tie; for x, then for y.

    The mean is the leave-one-out accuracy of the nearest neighbour (Lopez-Paz & Oquab 2017): 0.5 is perfect; 1: clouds
    that do not mix; below 0.5: generated cells that sit on real ones.
    """
    own = np.concatenate([_neighbour_distances(KDTree(side), 1) for side in (x, y)])
    other = np.concatenate([nearest_distances(y, x), nearest_distances(x, y)])
    return (own < other) + 0.5 * (own == other)


def overlap_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights, k: int) -> dict[str, NDArray[np.float64]]:
    """`manifold_precision_recall` of real cells x and generated cells y under each row of weights, (rows,) each."""
    real, generated = KDTree(x), KDTree(y)  # its distances are exact, so that copies are at 0
    in_real = generated.query_radius(x, _neighbour_distances(real, k))  # generated cells in the ball of each real cell
    in_generated = real.query_radius(y, _neighbour_distances(generated, k))
    real_balls = np.bincount(np.concatenate(in_real), minlength=len(y))
    return {
        "precision": weighted_mean(real_balls > 0, wy),
        "recall": weighted_mean(np.bincount(np.concatenate(in_generated), minlength=len(x)) > 0, wx),
        "density": weighted_mean(real_balls / k, wy),
        "coverage": weighted_mean(np.array([len(inside) > 0 for inside in in_real]), wx),
    }


def _neighbour_distances(cells: KDTree, k: int) -> NDArray[np.float64]:
    """Distance of every cell to its k-th nearest other cell of the same side, (cells,)."""
    return cells.query(cells.data, k + 1)[0][:, -1]
