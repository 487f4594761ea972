"""Checks of what users pass, before any work is done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def check_positive_integer(name: str, value: Any) -> None:
    """Raise unless ``value`` is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"`{name}` is {value!r}: pass a whole number of at least 1.")


def check_seed(seed: int | None) -> None:
    """Raise unless ``seed`` is absent or a whole number of at least 0."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0):
        raise ValueError(f"`seed` is {seed!r}: pass a whole number of at least 0.")


def cell_positions(indices: Sequence[int] | np.ndarray | None, n_cells: int) -> np.ndarray:
    """Positions ``(chosen,)``, none negative, of the cells that positions or a mask choose; ``None`` chooses all."""
    if indices is None:
        return np.arange(n_cells)
    chosen = np.asarray(indices)
    if chosen.dtype == bool and chosen.shape == (n_cells,):
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or (len(chosen) and chosen.dtype.kind not in "iu"):
        raise ValueError(
            f"`indices` must be positions of cells or a mask of all {n_cells}; got values of type {chosen.dtype} in "
            f"the shape {chosen.shape}."
        )
    if not len(chosen):
        raise ValueError("`indices` chooses no cell.")
    outside = (chosen < -n_cells) | (chosen >= n_cells)
    if outside.any():
        raise ValueError(f"`indices` holds {chosen[outside][0]}, but there are {n_cells} cells.")
    return chosen % n_cells


def is_finite_number(value: Any) -> bool:
    """Whether ``value`` is a number, and neither infinite nor NaN."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_guidance(scale: float | Mapping[str, float], told: Sequence[str]) -> None:
    """Raise unless every scale is a finite number of at least 0, for a condition that is told."""
    scales = dict(scale) if isinstance(scale, Mapping) else {"": scale}
    for name, value in scales.items():
        if name and name not in told:
            raise ValueError(f"`guidance_scale` names {name!r}, but the conditions told are {list(told)}.")
        if not (is_finite_number(value) and value >= 0):
            raise ValueError(f"`guidance_scale` is {value!r}: pass a number of at least 0; 1 is no guidance.")


def library_sizes(given: ArrayLike, n_cells: int) -> np.ndarray:
    """Molecules of each cell ``(cells,)`` from one number or one a cell."""
    sizes = np.asarray(given)
    if sizes.dtype.kind not in "iuf":
        raise ValueError(f"`library_size` holds values of type {sizes.dtype}: pass numbers of molecules, at least 1.")
    if sizes.ndim > 1 or (sizes.ndim == 1 and len(sizes) != n_cells):
        raise ValueError(
            f"`library_size` has shape {sizes.shape}: pass one number, or one for each of {n_cells} cells."
        )
    bad = ~(np.isfinite(sizes) & (sizes >= 1))
    if bad.any():
        first = sizes[bad].flat[0]
        raise ValueError(f"`library_size` holds {first}: pass numbers of molecules, at least 1.")
    return np.broadcast_to(sizes.round(), n_cells).copy()
