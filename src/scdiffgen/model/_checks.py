"""Checks of arguments before computation."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from lightning.pytorch.accelerators import AcceleratorRegistry
from numpy.typing import ArrayLike

from scdiffgen._arguments import LARGEST_LIBRARY, check_share, check_whole_number, is_finite_number

SizesOfCells = float | ArrayLike | Callable[[pd.DataFrame, np.random.Generator], ArrayLike]
LibrarySize = SizesOfCells | Mapping[str, SizesOfCells] | None


def check_seed(seed: int | None) -> None:
    """Raise unless ``seed`` is ``None`` or a whole number of at least 0."""
    if seed is None:
        return
    check_whole_number("seed", seed, at_least=0)
    if seed > (largest := 2**63 - 1):
        raise ValueError(f"`seed` is {seed}: pass a whole number of at most {largest}.")


def check_path(name: str, path: object) -> Path:
    """Return a path at which a file or folder can be created; raise otherwise."""
    if not isinstance(path, str | os.PathLike) or not str(path) or "\0" in str(path):
        raise ValueError(f"`{name}` is {path!r}: pass the path of a file or folder.")
    above = next((parent for parent in Path(path).parents if parent.exists()), Path())
    if not above.is_dir():
        raise ValueError(f"`{name}`: {path} lies below {above}, which is a file. Pass another path.")
    return Path(path)


def check_torch(weights: Iterable[torch.Tensor] = ()) -> None:
    """Raise if torch has another default precision, or weights were created in inference mode."""
    if torch.get_default_dtype() != torch.float32:
        raise RuntimeError(
            f"PyTorch's default precision is {torch.get_default_dtype()}, but models need float32: call "
            "`torch.set_default_dtype(torch.float32)` first."
        )
    weights = list(weights)
    if weights and (torch.is_inference_mode_enabled() or any(weight.is_inference() for weight in weights)):
        raise RuntimeError(
            "`torch.inference_mode()` is on, or was on when the model was created, and such weights cannot be trained: "
            "create and train the model outside of it."
        )


def check_devices(accelerator: str, devices: int | list[int] | str, strategy: object) -> None:
    """Raise if Lightning would start copies of the user's script on a CPU without a ``strategy``."""
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available())
    if on_cpu and strategy is None and str(devices).isdecimal() and int(str(devices)) > 1:
        raise ValueError(
            f"`devices` is {devices!r} on a CPU, which would start that many copies of your script: pass `devices=1` "
            "(it uses all cores), or pass a `strategy`, too."
        )


def check_accelerator(accelerator: str) -> None:
    """Raise if an accelerator is unknown, absent from this computer, or lacks required operations."""
    known = ["auto", "gpu", *AcceleratorRegistry.available_accelerators()]
    if isinstance(accelerator, str) and accelerator not in known:
        raise ValueError(f"`accelerator` is {accelerator!r}: choose one of {known}, such as 'cpu'.")
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise ValueError(
            f"`accelerator` is {accelerator!r}, but PyTorch {torch.__version__} finds none: pass 'cpu', or 'auto' to "
            "use the available one."
        )
    if accelerator == "mps":
        raise ValueError(
            "`accelerator` is 'mps', but PyTorch supports neither double precision nor the sparse tensors of counts on "
            "Apple's GPU: pass 'cpu', or 'auto', which uses the CPU."
        )


def check_split(n_cells: int, train_size: float | None, validation_size: float | None, batch_size: int) -> None:
    """Raise unless the shares of training and validation cells are valid and leave cells to train on."""
    if train_size is not None and not (is_finite_number(train_size) and 0 < train_size <= 1):
        raise ValueError(f"`train_size` is {train_size!r}: pass a share of the cells in (0, 1].")
    if validation_size is not None:
        check_share("validation_size", validation_size, "a share of the cells")
    if (train_size or 0.9) + (validation_size or 0.0) > 1:
        raise ValueError(
            f"`train_size` ({train_size or 0.9}) and `validation_size` ({validation_size}) exceed all cells: "
            "pass shares that sum to at most 1."
        )
    if train_size is None and math.ceil(0.9 * n_cells) < min(3, batch_size):
        raise ValueError(
            f"`adata` has {n_cells} cell{'s'[: n_cells - 1]}, too few to hold any out: train on all, `train_size=1.0`."
        )


def external_split(parts: object, n_cells: int) -> list[np.ndarray]:
    """Return positions of training, validation and test cells; parts that are not given are empty."""
    name = "`datasplitter_kwargs['external_indexing']`"
    way_out = "Pass a list of up to three arrays of positions: of training, validation and test cells."
    if not isinstance(parts, list | tuple) or not 1 <= len(parts) <= 3:
        raise ValueError(f"{name} is of type {type(parts).__name__}. {way_out}")
    given = [np.asarray([] if part is None else part) for part in [*parts, None, None][:3]]
    split = [np.asarray(part, dtype=np.int64) for part in given if not part.size or part.dtype.kind in "iu"]
    if len(split) < 3 or any(part.ndim != 1 for part in split):
        raise ValueError(f"{name} holds values that are no positions of cells. {way_out}")
    every = np.concatenate(split)
    outside = every[(every < 0) | (every >= n_cells)]
    if len(outside):
        raise ValueError(f"{name} holds {outside[0]}, but there are {n_cells} cells. {way_out}")
    if len(np.unique(every)) < len(every):
        raise ValueError(f"{name} holds {np.flatnonzero(np.bincount(every) > 1)[0]} twice. Name each cell once.")
    if not len(split[0]):
        raise ValueError(f"{name} names no training cell. {way_out}")
    split[2] = np.append(split[2], np.setdiff1d(np.arange(n_cells), every))  # cells in no part are a test set
    return split


def cell_positions(indices: Sequence[int] | np.ndarray | None, n_cells: int, argument: str = "indices") -> np.ndarray:
    """Convert positions or a mask to nonnegative positions ``(chosen,)``; ``None`` selects all cells."""
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
        raise ValueError(f"`{argument}` selects no cell: pass at least one position, or leave it out for all cells.")
    outside = (chosen < -n_cells) | (chosen >= n_cells)
    if outside.any():
        raise ValueError(f"`{argument}` holds {chosen[outside][0]}, but there are {n_cells} cells: pass lower ones.")
    return chosen % n_cells


def check_guidance(scale: float | Mapping[str, float], given: Sequence[str]) -> None:
    """Raise unless every scale is a number in [0, 1,000,000] for a given condition."""
    scales = dict(scale) if isinstance(scale, Mapping) else {"": scale}
    for name, value in scales.items():
        if name and name not in given:
            raise ValueError(f"`guidance_scale` names {name!r}, but the conditions given are {list(given)}.")
        if not (is_finite_number(value) and 0 <= value <= 1_000_000):
            raise ValueError(
                f"`guidance_scale` is {value!r}: pass a number of at least 0 and at most 1,000,000; 1 is no guidance."
            )


def library_sizes(given: object, n_cells: int) -> np.ndarray:
    """Broadcast one library size, or one per cell, to ``(cells,)``."""
    one_or_each = f"pass one number, or one for each of {n_cells} cells."
    if isinstance(given, pd.Series) and not given.index.equals(pd.RangeIndex(len(given))):
        raise ValueError(
            "`library_size` is a Series whose index is not 0, 1, 2, ...: sort it in the order of the cells, and pass "
            "`library_size.to_numpy()`."
        )
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
            f"`library_size` holds {sizes.max():g}: pass at most {LARGEST_LIBRARY:,}, the largest number of molecules "
            "that is counted exactly."
        )
    return np.broadcast_to(sizes.round(), n_cells).copy()
