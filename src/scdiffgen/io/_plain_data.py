"""Pickles of plain data alone: they can be read without running code that a file names.

PyTorch reads tensors, numbers, text and containers of them when told ``weights_only=True``, and calls nothing but the
functions that it is given. Here the rest of what a model keeps is written through the functions below, which build
arrays and tables. Files name these functions, so their names and arguments stay as they are.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

AS_TENSORS = tuple(map(np.dtype, ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")))


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """An array that was written as a tensor."""
    return tensor.cpu().numpy()


def as_object_array(entries: Sequence[Any], shape: Sequence[int], dtype: str) -> np.ndarray:
    """An array that was written as a list: text, or Python values."""
    array = np.empty(len(entries), dtype=object)
    array[:] = list(entries)
    return array.reshape(tuple(shape)).astype(dtype)


def as_scalar(value: Any, dtype: str) -> np.generic:
    """A NumPy scalar that was written as a Python value."""
    return np.dtype(dtype).type(value)


def as_frame(columns: np.ndarray, values: Sequence[np.ndarray], index: np.ndarray, name: str | None) -> pd.DataFrame:
    """A table that was written column by column."""
    return pd.DataFrame(dict(zip(columns, values, strict=True)), index=pd.Index(index, name=name))


def as_options(kind: type, values: dict[str, Any]) -> Any:
    """Options that were written value by value; the kind is one that reading allows."""
    return kind(**values)


MAY_BE_CALLED: tuple[Callable[..., Any], ...] = (as_array, as_frame, as_object_array, as_options, as_scalar)
"""What a file of plain data may name, beside the kinds of its options."""


class Pickler(pickle.Pickler):
    """Write arrays, tables and options through plain data; :func:`torch.save` uses it in place of pickle's own."""

    def reducer_override(self, obj: Any) -> Any:
        """Say how to build an object again: a function and its arguments."""
        if isinstance(obj, np.ndarray):
            return _reduced_array(obj)
        if isinstance(obj, np.generic):
            return as_scalar, (str(obj) if isinstance(obj, np.str_) else obj.item(), obj.dtype.str)
        if isinstance(obj, pd.DataFrame):
            values = [obj[column].to_numpy() for column in obj]
            return as_frame, (obj.columns.to_numpy(), values, obj.index.to_numpy(), obj.index.name)
        if isinstance(obj, defaultdict):
            return OrderedDict, (), None, None, iter(obj.items())
        if is_dataclass(obj) and not isinstance(obj, type):
            return as_options, (type(obj), {field.name: getattr(obj, field.name) for field in fields(obj)})
        return NotImplemented


def _reduced_array(array: np.ndarray) -> tuple[Callable[..., np.ndarray], tuple[Any, ...]]:
    if array.dtype in AS_TENSORS:
        return as_array, (torch.from_numpy(array.copy(order="C")),)
    entries = array.astype(object).ravel().tolist()
    return as_object_array, (entries, array.shape, array.dtype.str)
