"""Comparisons of cells, weights and results, whose errors say what was expected and what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass

Results = dict[str, np.ndarray]


def demand(holds: bool, expected: str, found: str) -> None:
    """Raise an AssertionError that says what was expected and what was found."""
    if not holds:
        raise AssertionError(f"Expected {expected}; found {found}.")


def demand_same(found: Results, expected: Results, when: str, rows: Any = slice(None)) -> None:
    """Raise unless results are those rows of the expected ones, up to the last digits of float32."""
    for name, own in found.items():
        other = expected[name][rows]
        demand(own.shape == other.shape, f"{name} of shape {other.shape} {when}", f"shape {own.shape}")
        n_differing = (~np.isclose(own, other, rtol=1e-4, atol=1e-4)).sum()
        demand(n_differing == 0, f"the same {name} {when}", f"{n_differing} of {own.size} values that differ")


def demand_error(error: type[Exception], what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Raise unless a call raises this error."""
    try:
        call(*arguments)
    except error:
        return
    raise AssertionError(f"Expected {error.__name__} for {what}; found no error.")


def parts_of(cells: AnnData | MuData) -> list[AnnData]:
    return list(cells.mod.values()) if isinstance(cells, MuData) else [cells]


def dense(cells: AnnData | MuData) -> np.ndarray:
    """Counts in memory or on disk, of all modalities side by side."""
    matrices = [part.X[:] for part in parts_of(cells)]
    return np.hstack([matrix.toarray() if sparse.issparse(matrix) else matrix for matrix in matrices])


def fingerprint(value: Any) -> str:
    """Digest names and values, with their types, of cells or of a state dict, less what scvi-tools writes in cells."""
    return sha256(repr(_plain(value)).encode()).hexdigest()


def weights_of(model: BaseModelClass) -> str:
    """Digest all weights of a model."""
    return fingerprint(model.module.state_dict())


def _plain(value: Any) -> Any:
    if isinstance(value, AnnData):
        slots = (value.layers, value.obsm, value.varm, value.obsp, value.uns)
        return [_plain(part) for part in (value.X, value.obs, value.var, *slots)]
    if isinstance(value, MuData):
        return _plain(value.obs), _plain(value.mod)
    if isinstance(value, Mapping):
        return [(key, _plain(value[key])) for key in sorted(value, key=str) if not str(key).startswith("_scvi")]
    if isinstance(value, pd.DataFrame):
        columns = [(name, column) for name, column in value.items() if not str(name).startswith("_scvi")]
        return value.index.tolist(), [(name, str(column.dtype), column.tolist()) for name, column in columns]
    if sparse.issparse(value):
        return value.format, value.shape, _plain(value.data), _plain(value.indices), _plain(value.indptr)
    array = value.numpy(force=True) if isinstance(value, torch.Tensor) else value
    if isinstance(array, np.ndarray) and array.dtype != object:
        return str(array.dtype), array.shape, sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return repr(value)
