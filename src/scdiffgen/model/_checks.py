"""Checks of what users pass, before any work is done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike

from scdiffgen._arguments import check_share, check_whole_number, is_finite_number

LARGEST_LIBRARY = 2**24
LARGEST_SEED = 2**63 - 1


def check_seed(seed: int | None) -> None:
    """Raise unless ``seed`` is absent or a whole number of at least 0."""
    if seed is None:
        return
    check_whole_number("seed", seed, at_least=0)
    if seed > LARGEST_SEED:
        raise ValueError(f"`seed` is {seed}: pass a whole number of at most {LARGEST_SEED}.")


def check_accelerator(accelerator: str) -> None:
    """Raise if a GPU is asked for and there is none."""
    there = {"gpu": torch.cuda.is_available() or torch.backends.mps.is_available()}
    there |= {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(accelerator, True):
        raise ValueError(
            f"`accelerator` is {accelerator!r}, but PyTorch {torch.__version__} finds none: pass 'cpu', or 'auto' to "
            "take what there is."
        )


def check_split(n_cells: int, train_size: float | None, validation_size: float | None, batch_size: int) -> None:
    """Raise unless the shares of training and validation cells leave some to train on."""
    if train_size is not None and not (is_finite_number(train_size) and 0 < train_size <= 1):
        raise ValueError(f"`train_size` is {train_size!r}: pass a share of the cells in (0, 1].")
    if validation_size is not None:
        check_share("validation_size", validation_size, "a share of the cells")
    if (train_size or 0.9) + (validation_size or 0.0) > 1:
        raise ValueError(
            f"`train_size` ({train_size or 0.9}) and `validation_size` ({validation_size}) make more than all cells: "
            "pass shares that sum to at most 1."
        )
    if train_size is None and math.ceil(0.9 * n_cells) < min(3, batch_size):
        raise ValueError(
            f"`adata` has {n_cells} cell{'s'[: n_cells - 1]}, too few to hold any out: train on all, `train_size=1.0`."
        )


def cell_positions(indices: Sequence[int] | np.ndarray | None, n_cells: int, argument: str = "indices") -> np.ndarray:
    """Positions ``(chosen,)``, none negative, of the cells that positions or a mask choose; ``None`` chooses all."""
    if indices is None:
        return np.arange(n_cells)
    chosen = np.asarray(indices)
    if chosen.dtype == bool and chosen.shape == (n_cells,):
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or (len(chosen) and chosen.dtype.kind not in "iu"):
        raise ValueError(
            f"`{argument}` must be positions of cells or a mask of all {n_cells}; got values of type {chosen.dtype} in "
            f"the shape {chosen.shape}."
        )
    if not len(chosen):
        raise ValueError(f"`{argument}` chooses no cell.")
    outside = (chosen < -n_cells) | (chosen >= n_cells)
    if outside.any():
        raise ValueError(f"`{argument}` holds {chosen[outside][0]}, but there are {n_cells} cells.")
    return chosen % n_cells


def check_guidance(scale: float | Mapping[str, float], given: Sequence[str]) -> None:
    """Raise unless every scale is a finite number of at least 0, for a given condition."""
    scales = dict(scale) if isinstance(scale, Mapping) else {"": scale}
    for name, value in scales.items():
        if name and name not in given:
            raise ValueError(f"`guidance_scale` names {name!r}, but the conditions given are {list(given)}.")
        if not (is_finite_number(value) and value >= 0):
            raise ValueError(f"`guidance_scale` is {value!r}: pass a number of at least 0; 1 is no guidance.")


def library_sizes(given: ArrayLike, n_cells: int) -> np.ndarray:
    """Molecules of each cell ``(cells,)`` from one number or one a cell."""
    one_or_each = f"pass one number, or one for each of {n_cells} cells."
    try:
        sizes = np.asarray(given)
    except ValueError as error:
        raise ValueError(f"`library_size` is {given!r}: {one_or_each}") from error
    if sizes.dtype.kind not in "iuf":
        raise ValueError(f"`library_size` holds values of type {sizes.dtype}: pass numbers of molecules, at least 1.")
    if sizes.shape not in ((), (n_cells,)):
        raise ValueError(f"`library_size` has shape {sizes.shape}: {one_or_each}")
    bad = ~(np.isfinite(sizes) & (sizes >= 1))
    if bad.any():
        raise ValueError(f"`library_size` holds {sizes[bad].flat[0]}: pass numbers of molecules, at least 1.")
    if (sizes > LARGEST_LIBRARY).any():
        raise ValueError(
            f"`library_size` holds {sizes.max():g}: pass at most {LARGEST_LIBRARY:,}, up to which molecules are "
            "counted exactly."
        )
    return np.broadcast_to(sizes.round(), n_cells).copy()
