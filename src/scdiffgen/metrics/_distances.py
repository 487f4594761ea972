"""Distances and nearest-neighbour statistics of two samples of points (cells, dimensions)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances_argmin
from sklearn.neighbors import KDTree

from scdiffgen._messages import warn_user
from scdiffgen._shared_docs import shared_docs

from ._input import POINTS, Points, as_features, as_point_pair, enough_cells, to_dense
from ._resampling import Weights, subsample, unresampled, weighted_mean

MMD_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
CHUNK = 1000  # number of dense cells, or rows of a distance matrix, in memory at a time
INSTALL = "pip install 'scdiffgen[eval]'"
N_NEIGHBOURS = 5

squared_distances = partial(cdist, metric="sqeuclidean")  # exact zeros for equal points
Kernel = Callable[[NDArray, NDArray], NDArray]


class CopyWarning(UserWarning):
    """Generated cells are closer to training cells than real cells are."""


class Novelty(NamedTuple):
    """Distances to the nearest training cell; see `novelty`."""

    ratio: float
    too_close: float
    n_copies: int


@shared_docs
def mmd(real: Points, generated: Points, *, median: float | None = None, seed: int = 0) -> float:
    r"""Compute the unbiased squared maximum mean discrepancy (MMD).

    The U-statistic of Gretton et al. (2012, JMLR 13, Lemma 6) uses the mean of the kernels
    :math:`\exp(-d^2 / (s\,m))`, s in {1/4, 1/2, 1, 2, 4}. For two samples of one population its expectation is zero, so
    it may be negative.

    Parameters
    ----------
    {points}
    median
        Scale m of the kernels; by default the median squared distance between different *real* cells, which does not
        depend on the generated cells.
    seed
        Random seed of the subsample of 2,000 real cells for the median, if there are more.

    Returns
    -------
    MMD^2; NaN, with a warning, for fewer than two cells on a side.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.random.default_rng(0).normal(size=(2, 300, 2))
    >>> mmd(x, y) < 0.01 < mmd(x, y + 1)
    True
    """
    return unresampled("mmd", 2, partial(mmd_resampled, median=median, seed=seed), *as_point_pair(real, generated))


@shared_docs
def energy_distance(real: Points, generated: Points) -> float:
    r"""Compute the unbiased energy distance :math:`2 E|X-Y| - E|X-X'| - E|Y-Y'|` with Euclidean norms.

    Source: Szekely & Rizzo (2013, J. Stat. Plan. Inference 143). Expectations are over pairs of different cells. With
    *squared* norms, it would measure only the squared distance of the means.

    Parameters
    ----------
    {points}

    Returns
    -------
    The distance, with expectation zero for one population; NaN, with a warning, for fewer than two cells on a side.

    Examples
    --------
    >>> energy_distance([[0.0], [1.0]], [[3.0], [4.0]])
    4.0
    """
    return unresampled("energy_distance", 2, energy_resampled, *as_point_pair(real, generated))


@shared_docs
def wasserstein(real: Points, generated: Points, *, max_cells: int = 2000, seed: int = 0) -> float:
    """Compute the exact 2-Wasserstein distance (optimal transport with squared Euclidean cost).

    It is positive even for two samples of one population: compare it with the distance of as many other real cells.

    Parameters
    ----------
    {points}
    {draws}

    Returns
    -------
    The distance in units of the coordinates; NaN, with a warning, for an empty side.

    Raises
    ------
    ImportError
        If POT is not installed.

    Examples
    --------
    >>> round(wasserstein([[0.0, 0.0], [1.0, 0.0]], [[3.0, 4.0], [4.0, 4.0]]), 6)
    5.0
    """
    x, y = as_point_pair(real, generated)
    x, y = x[subsample(len(x), max_cells, seed)], y[subsample(len(y), max_cells, seed + 1)]
    return unresampled("wasserstein", 1, wasserstein_resampled, x, y)


@shared_docs
def novelty(real: Points, generated: Points, train: Points) -> Novelty:
    """Test memorisation: compare nearest-training-cell distances of generated and held-out real cells.

    Parameters
    ----------
    {points}
    train
        Training cells, ``(cells, dimensions)``, over the same dimensions; ``real`` are held-out cells.

    Returns
    -------
    ratio
        Median distance of generated over that of held-out cells; about 1 is best, clearly lower is memorisation.
    too_close
        Fraction of generated cells closer to a training cell than 99 % of held-out cells; about 0.01 is best.
    n_copies
        Number of generated cells at distance zero from a training cell.

    Warns
    -----
    CopyWarning
        If over 5 % of the cells are too close (given 100 held-out cells), or more copies than in held-out cells exist.

    Examples
    --------
    >>> import numpy as np
    >>> x, y, z = np.random.default_rng(0).normal(size=(3, 200, 2))
    >>> novelty(x, y, z).n_copies
    0
    """
    held_out, new = as_point_pair(real, generated)
    cells = as_features(to_dense(train), "train", POINTS, dtype=np.float64)
    if not enough_cells("novelty", 1, train=len(cells), generated=len(new), real=len(held_out)):
        return Novelty(float("nan"), float("nan"), 0)
    return compare_novelty(nearest_distances(cells, new), nearest_distances(cells, held_out))


def mmd_resampled(
    x: NDArray, y: NDArray, wx: Weights, wy: Weights, median: float | None = None, seed: int = 0
) -> NDArray[np.float64]:
    """Compute `mmd` under each row of weights, (rows,)."""
    scale = median_squared_distance(x, seed=seed) if median is None else median

    def kernel(a: NDArray, b: NDArray) -> NDArray:
        squared = squared_distances(a, b)
        return np.mean([np.exp(squared * (-1 / (s * scale))) for s in MMD_SCALES], axis=0)

    within, across = _kernel_means(kernel, x, y, wx, wy, diagonal=1.0)
    return within - 2 * across


def energy_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Compute `energy_distance` under each row of weights, (rows,)."""
    within, across = _kernel_means(cdist, x, y, wx, wy, diagonal=0.0)
    return 2 * across - within


def wasserstein_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Compute `wasserstein` under each row of weights, (rows,): exact for the first row, linearised for resamples."""
    _, log = pot().emd2([], [], squared_distances(x, y), numItermax=2_000_000, log=True)
    # to first order in the weights, by the dual potentials: del Barrio & Loubes 2019, Annals of Probability 47
    return np.sqrt(np.clip(wx @ log["u"] / wx.sum(axis=1) + wy @ log["v"] / wy.sum(axis=1), 0, None))


def pot() -> ModuleType:
    """Import the optimal transport library POT; raise if it is not installed."""
    try:
        import ot
    except ImportError as error:
        raise ImportError(f"wasserstein needs POT. Install it with: {INSTALL}") from error
    return ot


def median_squared_distance(points: NDArray, *, seed: int = 0) -> float:
    """Compute the median squared distance of different cells, over at most 2,000 cells; 1 if all cells are equal."""
    chosen = points[subsample(len(points), 2000, seed)]
    squared = squared_distances(chosen, chosen)[np.triu_indices(len(chosen), k=1)]
    median = float(np.median(squared))
    return median if median > 0 else float(squared.mean()) or 1.0


def _kernel_means(
    kernel: Kernel, x: NDArray, y: NDArray, wx: Weights, wy: Weights, *, diagonal: float
) -> tuple[Weights, Weights]:
    """Compute kernel means within sides (summed) and across sides, by row of weights, (rows,)."""
    within = np.zeros(len(wx))
    for points, weights in ((x, wx), (y, wy)):
        squares = (weights**2).sum(axis=1)
        pairs = weights.sum(axis=1) ** 2 - squares
        total = _bilinear(kernel, points, points, weights, weights) - diagonal * squares
        # a resample may contain only one distinct cell
        within += np.divide(total, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
    return within, _bilinear(kernel, x, y, wx, wy) / (wx.sum(axis=1) * wy.sum(axis=1))


def _bilinear(kernel: Kernel, x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    total = np.zeros(len(wx))
    for start in range(0, len(x), CHUNK):
        rows = slice(start, start + CHUNK)
        total += np.einsum("rj,rj->r", wx[:, rows] @ kernel(x[rows], y), wy)
    return total


def compare_novelty(new: NDArray, expected: NDArray) -> Novelty:
    """Compare nearest-neighbour distances of generated and held-out cells; warn of copies."""
    median = float(np.median(expected))
    ratio = float(np.median(new)) / median if median > 0 else float("nan")
    too_close = float((new < np.quantile(expected, 0.01)).mean())
    copies, by_chance = (int((side <= 1e-6 * median).sum()) for side in (new, expected))
    crowded = too_close > 0.05 and len(expected) >= 100  # fewer held-out cells do not calibrate "too close"
    if crowded or copies / len(new) > by_chance / len(expected):
        warn_user(
            f"Generated cells are closer to training cells than held-out cells: {copies} of {len(new)} are copies, "
            f"and {too_close:.0%} are closer to a training cell than 99 % of held-out cells (1 % expected). The "
            "generator may have memorised: train for fewer epochs, on more cells, or with fewer parameters.",
            CopyWarning,
        )
    return Novelty(ratio, too_close, copies)


def nearest_distances(reference: NDArray, cells: NDArray) -> NDArray[np.float64]:
    """Compute the distance of each cell to the nearest reference cell, (cells,)."""
    if len(cells) == 0:
        return np.empty(0)
    nearest = pairwise_distances_argmin(cells, reference)  # rounded, so the distance is recomputed
    return np.linalg.norm(cells - reference[nearest], axis=1)


def overlap_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> dict[str, NDArray[np.float64]]:
    """Compute precision, recall (Kynkaanniemi et al. 2019) and coverage (Naeem et al. 2020) by row of weights."""
    k = N_NEIGHBOURS
    real, generated = KDTree(x), KDTree(y)  # KD-tree distances are exact, so copies have distance 0
    in_real = generated.query_radius(x, _neighbour_distances(real, k))  # generated cells in the ball of each real cell
    in_generated = real.query_radius(y, _neighbour_distances(generated, k))
    return {
        "precision": weighted_mean(np.bincount(np.concatenate(in_real), minlength=len(y)) > 0, wy),
        "recall": weighted_mean(np.bincount(np.concatenate(in_generated), minlength=len(x)) > 0, wx),
        "coverage": weighted_mean(np.array([len(inside) > 0 for inside in in_real]), wx),
    }


def _neighbour_distances(cells: KDTree, k: int) -> NDArray[np.float64]:
    """Compute the distance of each cell to its k-th nearest other cell of the same side, (cells,)."""
    return cells.query(cells.data, k + 1)[0][:, -1]
