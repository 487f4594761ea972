"""Nearest neighbours: whether generated cells lie among real ones, cover them, and differ from training cells."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances_argmin

from scdiffgen.metrics._distances import CHUNK, squared_distances
from scdiffgen.metrics._input import Points, as_point_pair, as_points, enough_cells
from scdiffgen.metrics._resampling import subsample

N_NEIGHBOURS = 5
CLOSEST = 0.01  # "too close" to a training cell: closer than this fraction of held-out real cells
COPY_LIMIT = 0.05  # fraction of generated cells that may be too close before a warning
CELLS_FOR_LIMIT = 100  # held-out cells that it takes to know what too close is


class CopyWarning(UserWarning):
    """Generated cells are closer to training cells than real cells are."""


class ManifoldScores(NamedTuple):
    """Overlap of two clouds of cells; see `manifold_precision_recall`.

    Parameters
    ----------
    precision
        Fraction of generated cells in the ball of some real cell.
    recall
        Fraction of real cells in the ball of some generated cell.
    density
        Mean number of real balls that a generated cell lies in, over the number of neighbours; may exceed 1.
    coverage
        Fraction of real cells whose ball holds a generated cell.
    """

    precision: float
    recall: float
    density: float
    coverage: float


class Novelty(NamedTuple):
    """Distances to the nearest training cell; see `novelty`.

    Parameters
    ----------
    ratio
        Median distance of generated cells over that of held-out cells.
    too_close
        Fraction of generated cells closer to a training cell than 99 % of held-out cells are.
    n_copies
        Number of generated cells on top of a training cell.
    """

    ratio: float
    too_close: float
    n_copies: int


def one_nn_accuracy(real: Points, generated: Points, *, seed: int = 0) -> float:
    """Leave-one-out accuracy of the nearest neighbour at telling generated cells from real ones.

    0.5 is perfect; 1: clouds that do not mix; below 0.5: generated cells that sit on real ones (Lopez-Paz & Oquab
    2017). The larger side is subsampled to the size of the smaller, so that 0.5 is what one population gives. A cell
    whose nearest cells of both sides are equally far counts half.

    Parameters
    ----------
    real
        Real cells, (cells, dimensions).
    generated
        Generated cells, (cells, dimensions).
    seed
        Seed of the subsample.

    Returns
    -------
    The accuracy; NaN, with a warning, for fewer than two cells on a side.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(4.0)[:, None]
    >>> one_nn_accuracy(x, x + 100)
    1.0
    """
    x, y = as_point_pair(real, generated)
    if not enough_cells("one_nn_accuracy", 2, real=len(x), generated=len(y)):
        return float("nan")
    n = min(len(x), len(y))
    hits = one_nn_hits(x[subsample(len(x), n, seed)], y[subsample(len(y), n, seed + 1)])
    return float(np.concatenate(hits).mean())


def manifold_precision_recall(real: Points, generated: Points, *, n_neighbours: int = N_NEIGHBOURS) -> ManifoldScores:
    """Precision, recall, density and coverage by k-nearest-neighbour balls.

    A ball round a cell reaches to its k-th nearest cell of the same side. *Precision*: generated cells in the ball of
    some real cell; *recall*: real cells in the ball of some generated cell (Kynkaanniemi et al. 2019, NeurIPS).
    *Density*: mean number of real balls a generated cell lies in, over k; *coverage*: real cells whose ball holds a
    generated cell (Naeem et al. 2020, ICML). Compare with other real cells at the same number of cells: the values for
    one population depend on it.

    Parameters
    ----------
    real
        Real cells, (cells, dimensions).
    generated
        Generated cells, (cells, dimensions).
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
    balls = ball_counts(x, y, n_neighbours)
    return ManifoldScores(
        float((balls.real_balls > 0).mean()),
        float((balls.generated_balls > 0).mean()),
        float(balls.real_balls.mean() / n_neighbours),
        float(balls.covered.mean()),
    )


def novelty(train: Points, generated: Points, held_out: Points) -> Novelty:
    """Distance of generated cells to their nearest training cell, against that of held-out real cells.

    Parameters
    ----------
    train
        Training cells, (cells, dimensions).
    generated
        Generated cells, (cells, dimensions).
    held_out
        Real cells that were not trained on, of the same composition, (cells, dimensions).

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
    cells, new = as_point_pair(train, generated)
    other = as_points(held_out, "held_out")
    if not enough_cells("novelty", 1, train=len(cells), generated=len(new), held_out=len(other)):
        return Novelty(float("nan"), float("nan"), 0)
    found, expected = nearest_distances(cells, new), nearest_distances(cells, other)
    return compare_novelty(found, expected)


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
    nearest = pairwise_distances_argmin(cells, reference)  # fast and rounded, so the distance itself is computed again
    return np.linalg.norm(cells - reference[nearest], axis=1)


def one_nn_hits(x: NDArray, y: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Whether each cell's nearest other cell is of its own side: 1, 0, or 0.5 in a tie; for x and for y."""
    own_x, own_y = _neighbour_distances(x, 1), _neighbour_distances(y, 1)
    return _hits(own_x, nearest_distances(y, x)), _hits(own_y, nearest_distances(x, y))


class BallCounts(NamedTuple):
    """How the balls of two sides contain each other's cells."""

    real_balls: NDArray[np.int64]  # number of real balls each generated cell lies in, (generated,)
    generated_balls: NDArray[np.int64]  # number of generated balls each real cell lies in, (real,)
    covered: NDArray[np.bool_]  # whether each real ball holds a generated cell, (real,)


def ball_counts(x: NDArray, y: NDArray, k: int) -> BallCounts:
    """Count, for real cells x and generated cells y, who lies in whose k-nearest-neighbour ball."""
    radius_x, radius_y = _neighbour_distances(x, k) ** 2, _neighbour_distances(y, k) ** 2
    real_balls = np.zeros(len(y), dtype=np.int64)
    generated_balls, covered = np.zeros(len(x), dtype=np.int64), np.zeros(len(x), dtype=bool)
    for start in range(0, len(x), CHUNK):
        rows = slice(start, start + CHUNK)
        squared = squared_distances(x[rows], y)
        in_real = squared <= radius_x[rows, None]
        real_balls += in_real.sum(axis=0)
        covered[rows] = in_real.any(axis=1)
        generated_balls[rows] = (squared <= radius_y[None, :]).sum(axis=1)
    return BallCounts(real_balls, generated_balls, covered)


def _hits(own: NDArray, other: NDArray) -> NDArray[np.float64]:
    return (own < other) + 0.5 * (own == other)


def _neighbour_distances(points: NDArray, k: int) -> NDArray[np.float64]:
    """Distance of every cell to its k-th nearest other cell of the same side, (cells,)."""
    nearest = []
    for start in range(0, len(points), CHUNK):
        squared = squared_distances(points[start : start + CHUNK], points)
        np.fill_diagonal(squared[:, start:], np.inf)
        nearest.append(np.partition(squared, k - 1, axis=1)[:, k - 1])
    return np.sqrt(np.concatenate(nearest))
