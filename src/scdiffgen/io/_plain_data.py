"""Model files as pickles restricted to plain data, so that reading a file cannot execute code.

With ``weights_only=True`` PyTorch reads tensors, numbers, text and containers, and calls only allowed functions: those
below, which build arrays and tables. Files refer to these functions by name, so names and arguments must not change.
"""

import os
import pickle
import re
import threading
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from scdiffgen._messages import listed

from ._whole_files import UNREADABLE

FORCE, FORBID = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"

MODEL_FILE = "model.pt"
"""File name of models in scvi-tools, after a prefix."""

AGAIN = "Copy it again from where it was saved, or save the model again."

_reading = threading.RLock()

AS_TENSORS = tuple(map(np.dtype, ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")))


def as_array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().numpy()


def as_object_array(entries: Sequence[Any], shape: Sequence[int], dtype: str) -> np.ndarray:
    array = np.empty(len(entries), dtype=object)
    array[:] = list(entries)
    return array.reshape(tuple(shape)).astype(dtype)


def as_scalar(value: Any, dtype: str) -> np.generic:
    return np.dtype(dtype).type(value)


def as_frame(columns: np.ndarray, values: Sequence[np.ndarray], index: np.ndarray, name: str | None) -> pd.DataFrame:
    if any(value.shape != index.shape for value in values):
        raise ValueError("the columns of a table differ in length")
    return pd.DataFrame(dict(zip(columns, values, strict=True)), index=pd.Index(index, name=name))


def as_options(kind: type, values: dict[str, Any]) -> Any:
    return kind(**values)


MAY_BE_CALLED: tuple[Callable[..., Any], ...] = (as_array, as_frame, as_object_array, as_options, as_scalar)
"""Functions that a file of plain data may call, besides the types of options."""


class Pickler(pickle.Pickler):
    """Pickler of arrays, tables and options as plain data, for :func:`torch.save`."""

    def reducer_override(self, obj: Any) -> Any:
        """Reduce an object to a function and its arguments, which rebuild it."""
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
    return as_object_array, (array.astype(object).ravel().tolist(), array.shape, array.dtype.str)


@contextmanager
def only_plain_data(options: Sequence[type]) -> Iterator[None]:
    """Restrict PyTorch to plain data and ``options``; one thread at a time, because the switch is process-wide."""
    with _reading, torch.serialization.safe_globals([*MAY_BE_CALLED, *options]):
        before = {name: os.environ.pop(name, None) for name in (FORCE, FORBID)}
        os.environ[FORCE] = "1"
        try:
            yield
        finally:
            del os.environ[FORCE]
            os.environ.update({name: value for name, value in before.items() if value is not None})


def check_file(file: Path) -> None:
    """Raise if a model file is absent, truncated or damaged."""
    if not file.exists():
        names = sorted(path.name for path in file.parent.glob(f"*{MODEL_FILE}"))
        hint = f" It has {listed(names)}: pass the start of the name as `prefix`." if names else ""
        if file.parent.is_file():
            hint = f" Pass the folder, {str(file.parent.parent)!r}."
        raise FileNotFoundError(f"`dir_path`: there is no {file.name} in {file.parent}.{hint}")
    try:
        with zipfile.ZipFile(file) as archive:
            # PyTorch skips the bytes of members that are marked as folders, and never writes compressed members.
            if any(entry.external_attr or entry.compress_type for entry in archive.infolist()) or archive.testzip():
                raise ValueError("its checksums or its directory do not match")
    except PermissionError as error:
        raise PermissionError(f"`dir_path`: you may not read {file}. Ask its owner for permission.") from error
    except UNREADABLE as error:
        raise ValueError(f"`dir_path`: {file} is damaged, cut short, or no saved model ({error}). {AGAIN}") from error


def read_plainly(file: Path, options: Sequence[type]) -> Any:
    """Read a model file that may contain nothing but plain data and ``options``."""
    check_file(file)
    try:
        with only_plain_data(options):
            return torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        called = "".join(f" ({name!r})" for name in re.findall(r"GLOBAL (\S+)", str(error)))
        raise ValueError(
            f"`dir_path`: {file} holds more than plain data{called}, so reading it could execute code from the file. "
            "It was not saved by `TokenDiffusion`, or was tampered with. If you trust its source, call "
            "`load(..., safe=False)`, and save the model again."
        ) from error
    except UNREADABLE as error:
        raise ValueError(f"`dir_path`: {file} cannot be read as a saved model ({error}). {AGAIN}") from error
