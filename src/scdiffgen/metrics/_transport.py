"""Exact optimal transport between two samples of cells."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from scdiffgen._names import as_names
from scdiffgen.metrics._distances import squared_distances
from scdiffgen.metrics._input import Points, as_point_pair, enough_cells
from scdiffgen.metrics._resampling import Weights, subsample, unit_weights

MAX_CELLS = 2000
MAX_ITERATIONS = 2_000_000
NAME = "wasserstein"  # as a metric
INSTALL = "pip install 'scdiffgen[eval]'"


def wasserstein(real: Points, generated: Points, *, max_cells: int = MAX_CELLS, seed: int = 0) -> float:
    """2-Wasserstein distance: the square root of the exact optimal transport cost under squared Euclidean distance.

    Positive even for two samples of one population, more so the fewer cells and the more dimensions: compare with the
    distance of other real cells at the same number of cells.

    Parameters
    ----------
    real
        Reference cells, (cells, dimensions).
    generated
        Cells to judge, (cells, dimensions).
    max_cells
        Cells used of each side; more are subsampled without replacement.
    seed
        Seed of the subsamples.

    Returns
    -------
    The distance, in units of the coordinates; NaN, with a warning, for an empty side.

    Raises
    ------
    ImportError
        If POT is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> round(wasserstein(x, x + [3.0, 4.0]), 6)
    5.0
    """
    x, y = as_point_pair(real, generated)
    if not enough_cells("wasserstein", 1, real=len(x), generated=len(y)):
        return float("nan")
    x, y = x[subsample(len(x), max_cells, seed)], y[subsample(len(y), max_cells, seed + 1)]
    return float(wasserstein_resampled(x, y, unit_weights(len(x)), unit_weights(len(y)))[0])


def wasserstein_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """`wasserstein` under each row of weights, (rows,): exact for the first row, of ones, and linearised after.

    The transport problem is solved once. To first order, weights change its cost by the weighted means of the dual
    potentials, which are also what the central limit theorem of the cost is made of (del Barrio & Loubes 2019,
    Annals of Probability 47).
    """
    _, log = _pot().emd2([], [], squared_distances(x, y), numItermax=MAX_ITERATIONS, log=True)
    cost = wx @ log["u"] / wx.sum(axis=1) + wy @ log["v"] / wy.sum(axis=1)
    return np.sqrt(np.clip(cost, 0, None))


def metrics_to_compute(asked: Sequence[str] | None, every: Sequence[str]) -> tuple[str, ...]:
    """Names of the metrics that are asked for; ``None`` asks for all, but for transport where POT is not installed.

    Raises before anything is computed if transport is asked for by name and POT is not installed.
    """
    if asked is not None:
        names = as_names(asked)
        if NAME in names:
            _pot()
        return tuple(names)
    if find_spec("ot") is not None:
        return tuple(every)
    warnings.warn(f"`{NAME}` is left out, as POT is not installed. Install it with: {INSTALL}", stacklevel=3)
    return tuple(name for name in every if name != NAME)


def _pot() -> ModuleType:
    try:
        import ot
    except ImportError as error:
        raise ImportError(f"{NAME} needs POT. Install it with: {INSTALL}") from error
    return ot
