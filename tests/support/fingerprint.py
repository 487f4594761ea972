"""Comparisons of cells, weights and results, with errors that state expected and found values."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse
from scvi.model.base import BaseModelClass

from scdiffgen._messages import listed

Results = dict[str, np.ndarray]
Digests = dict[str, str]  # digests of slots of cells, or of weights, by name


def demand(holds: bool, expected: str, found: str) -> None:
    """Raise an AssertionError with the expected and found values unless ``holds``."""
    if not holds:
        raise AssertionError(f"Expected {expected}; found {found}.")


def demand_same(found: Results, expected: Results, when: str, rows: Any = slice(None)) -> None:
    """Raise unless results equal the given rows of expected results, within float32 tolerance."""
    for name, values in found.items():
        wanted = expected[name][rows]
        demand(values.shape == wanted.shape, f"{name} of shape {wanted.shape} {when}", f"shape {values.shape}")
        n_differing = (~np.isclose(values, wanted, rtol=1e-4, atol=1e-4)).sum()
        demand(n_differing == 0, f"the same {name} {when}", f"{n_differing} of {values.size} values that differ")


def demand_unchanged(found: Digests, before: Digests, what: str) -> None:
    """Raise if a slot of cells, or a weight, has changed."""
    changed = [name for name in {**before, **found} if found.get(name) != before.get(name)]
    demand(not changed, f"{what} to stay the same", f"changes of {listed(changed)}")


def demand_error(error: type[Exception], what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Raise unless a call raises the given error."""
    try:
        call(*arguments)
    except error:
        return
    raise AssertionError(f"Expected {error.__name__} for {what}; found no error.")


def dense(matrix: Any) -> np.ndarray:
    """Convert a matrix in memory or on disk to an array."""
    values = matrix[:]
    return values.toarray() if sparse.issparse(values) else np.asarray(values)


def fingerprint(cells: AnnData) -> Digests:
    """Digest every slot of cells, without the entries of scvi-tools."""
    slots = ("X", "obs", "var", "layers", "obsm", "varm", "obsp", "uns")
    return {slot: _digest(getattr(cells, slot)) for slot in slots}


def weights_of(model: BaseModelClass) -> Digests:
    """Digest every weight of a model."""
    return {name: _digest(weight.numpy(force=True)) for name, weight in model.module.state_dict().items()}


def _digest(value: Any) -> str:
    """Digest names and values, with their types and shapes."""
    if isinstance(value, Mapping | pd.DataFrame):
        entries = [(str(name), _digest(entry)) for name, entry in value.items() if not str(name).startswith("_scvi")]
        rows = value.index.tolist() if isinstance(value, pd.DataFrame) else []
        return sha256(repr((rows, entries)).encode()).hexdigest()
    array = np.asarray(value.toarray() if sparse.issparse(value) else value)
    contents = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return sha256(f"{getattr(value, 'dtype', '')} {array.shape}".encode() + contents).hexdigest()
