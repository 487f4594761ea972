"""Distances between two samples of cells, given as points (cells, dimensions), usually principal components."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics._input import Points, as_point_pair
from scdiffgen.metrics._resampling import Weights, subsample, unresampled

MMD_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
CHUNK = 1000  # rows of a distance matrix in memory at a time
MEDIAN_CELLS = 2000  # the median squared distance is taken over all pairs of at most this many cells
MAX_ITERATIONS = 2_000_000
INSTALL = "pip install 'scdiffgen[eval]'"

squared_distances = partial(cdist, metric="sqeuclidean")  # exact zeros for equal points
Kernel = Callable[[NDArray, NDArray], NDArray]


@shared_docs
def mmd(real: Points, generated: Points, *, median: float | None = None, seed: int = 0) -> float:
    r"""Squared maximum mean discrepancy, unbiased.

    The U-statistic of Gretton et al. (2012, JMLR 13, Lemma 6) with the mean of the kernels
    :math:`\exp(-d^2 / (s\,m))`, s in {1/4, 1/2, 1, 2, 4}. It is zero on average for two samples of one population, so
    it may be negative.

    Parameters
    ----------
    {points}
    median
        The scale m; by default the median squared distance between different *real* cells, so that it does not depend
        on what is judged.
    seed
        Seed of the 2,000 real cells that give the median, when there are more.

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
    x, y = as_point_pair(real, generated)

    def score(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
        return mmd_resampled(x, y, wx, wy, median_squared_distance(x, seed=seed) if median is None else median)

    return unresampled("mmd", 2, score, x, y)


@shared_docs
def energy_distance(real: Points, generated: Points) -> float:
    r"""Energy distance, unbiased: :math:`2 E|X-Y| - E|X-X'| - E|Y-Y'|` with Euclidean norms and different cells.

    Szekely & Rizzo (2013, J. Stat. Plan. Inference 143). With *squared* norms it would be twice the squared distance
    of the means and see nothing else.

    Parameters
    ----------
    {points}

    Returns
    -------
    The distance, zero on average for one population; NaN, with a warning, for fewer than two cells on a side.

    Examples
    --------
    >>> energy_distance([[0.0], [1.0]], [[3.0], [4.0]])
    4.0
    """
    return unresampled("energy_distance", 2, energy_resampled, *as_point_pair(real, generated))


@shared_docs
def wasserstein(real: Points, generated: Points, *, max_cells: int = 2000, seed: int = 0) -> float:
    """2-Wasserstein distance: the square root of the exact optimal transport cost under squared Euclidean distance.

    Positive even for two samples of one population, more so the fewer cells and the more dimensions: compare with the
    distance of other real cells at the same number of cells.

    Parameters
    ----------
    {points}
    {max_cells}
    {draws}

    Returns
    -------
    The distance, in units of the coordinates; NaN, with a warning, for an empty side.

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


def mmd_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights, median: float) -> NDArray[np.float64]:
    """`mmd` under each row of weights, (rows,)."""

    def kernel(a: NDArray, b: NDArray) -> NDArray:
        squared = squared_distances(a, b)
        return np.mean([np.exp(squared * (-1 / (s * median))) for s in MMD_SCALES], axis=0)

    within = mean_of_pairs(kernel, x, wx, diagonal=1.0) + mean_of_pairs(kernel, y, wy, diagonal=1.0)
    return within - 2 * mean_across(kernel, x, y, wx, wy)


def energy_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """`energy_distance` under each row of weights, (rows,)."""
    within = mean_of_pairs(cdist, x, wx, diagonal=0.0) + mean_of_pairs(cdist, y, wy, diagonal=0.0)
    return 2 * mean_across(cdist, x, y, wx, wy) - within


def frechet_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    r"""Frechet distance of the Gaussians with the samples' means and covariances, squared, under each row of weights.

    :math:`|m_1 - m_2|^2 + \mathrm{tr}(C_1 + C_2 - 2 (C_1^{1/2} C_2 C_1^{1/2})^{1/2})`: the squared 2-Wasserstein
    distance of two Gaussians (Dowson & Landau 1982), the "FID" of images (Heusel et al. 2017). Biased upwards in small
    samples: compare at equal numbers of cells.
    """
    distances = []
    for a, b in zip(wx, wy, strict=True):
        (mean_x, cov_x), (mean_y, cov_y) = _moments(x, a), _moments(y, b)
        values, vectors = np.linalg.eigh(cov_x)
        root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
        cross = np.sqrt(np.clip(np.linalg.eigvalsh(root @ cov_y @ root), 0, None)).sum()
        distances.append(((mean_x - mean_y) ** 2).sum() + np.trace(cov_x) + np.trace(cov_y) - 2 * cross)
    return np.array(distances)


def wasserstein_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """`wasserstein` under each row of weights, (rows,): exact for the first row, of ones, and linearised after.

    The transport problem is solved once. To first order, weights change its cost by the weighted means of the dual
    potentials, which are also what the central limit theorem of the cost is made of (del Barrio & Loubes 2019,
    Annals of Probability 47).
    """
    _, log = pot().emd2([], [], squared_distances(x, y), numItermax=MAX_ITERATIONS, log=True)
    cost = wx @ log["u"] / wx.sum(axis=1) + wy @ log["v"] / wy.sum(axis=1)
    return np.sqrt(np.clip(cost, 0, None))


def pot() -> ModuleType:
    """The library of optimal transport, or how to install it."""
    try:
        import ot
    except ImportError as error:
        raise ImportError(f"wasserstein needs POT. Install it with: {INSTALL}") from error
    return ot


def median_squared_distance(points: NDArray, *, seed: int = 0) -> float:
    """Median squared distance of different cells, over at most 2,000 of them; 1 if all cells are equal."""
    chosen = points[subsample(len(points), MEDIAN_CELLS, seed)]
    squared = squared_distances(chosen, chosen)[np.triu_indices(len(chosen), k=1)]
    median = float(np.median(squared))
    return median if median > 0 else float(squared.mean()) or 1.0


def mean_of_pairs(kernel: Kernel, x: NDArray, weights: Weights, *, diagonal: float) -> NDArray[np.float64]:
    """Mean of a kernel over pairs of different cells of one sample, under each row of weights, (rows,)."""
    total = _bilinear(kernel, x, x, weights, weights) - diagonal * (weights**2).sum(axis=1)
    pairs = weights.sum(axis=1) ** 2 - (weights**2).sum(axis=1)
    # a resample may hold one cell only
    return np.divide(total, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)


def mean_across(kernel: Kernel, x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Mean of a kernel over pairs of one cell of each sample, under each row of weights, (rows,)."""
    return _bilinear(kernel, x, y, wx, wy) / (wx.sum(axis=1) * wy.sum(axis=1))


def _bilinear(kernel: Kernel, x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    total = np.zeros(len(wx))
    for start in range(0, len(x), CHUNK):
        rows = slice(start, start + CHUNK)
        total += np.einsum("rj,rj->r", wx[:, rows] @ kernel(x[rows], y), wy)
    return total


def _moments(points: NDArray, weights: NDArray) -> tuple[NDArray, NDArray]:
    mean = weights @ points / weights.sum()
    centred = points - mean
    return mean, (centred * weights[:, None]).T @ centred / (weights.sum() - 1)
