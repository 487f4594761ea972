"""Files of models: whole, and pickles of plain data alone, so that reading them runs no code that they name.

With ``weights_only=True`` PyTorch reads tensors, numbers, text and containers, and calls only what it is given: the
functions below, which build arrays and tables. Files name these functions, so names and arguments stay as they are.
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
"""What scvi-tools calls the file of a model, after a prefix."""

AGAIN = "Copy it again from where it was saved, or save the model again."

_reading = threading.RLock()

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
    if any(value.shape != index.shape for value in values):
        raise ValueError("the columns of a table are of several lengths")
    return pd.DataFrame(dict(zip(columns, values, strict=True)), index=pd.Index(index, name=name))


REMOVED = {
    **{"counterfactual": "noise", "likelihood": "nb", "tokens": "unit_scale", "kl_weight": 0.1},
    **{"pooling": "sum", "nonnegative": False, "sparsity": 0.0, "set_pooling": "attention", "attention": "within"},
    **{"loss_space": "x0", "weighting": "uniform", "encoder": "mlp", "kind": "additive"},
    "category_embedding": "table",
}
"""Options that only earlier versions have, and their defaults, by which later versions work."""


def as_options(kind: type, values: dict[str, Any]) -> Any:
    """Options that were written value by value; the kind is one that reading allows."""
    known = {field.name for field in fields(kind)}
    for name, value in values.items():
        if name not in known and name in REMOVED and value != REMOVED[name]:
            raise NotImplementedError(
                f"The model was made with `{kind.__name__}({name}={value!r})`, but versions after 0.1.0 have no "
                f"`{name}`: make and train a model without it."
            )
    return kind(**{name: value for name, value in values.items() if name in known or name not in REMOVED})


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
    return as_object_array, (array.astype(object).ravel().tolist(), array.shape, array.dtype.str)


@contextmanager
def only_plain_data(options: Sequence[type]) -> Iterator[None]:
    """Let PyTorch read plain data and ``options`` alone, one file at a time: its switch is of the whole process."""
    with _reading, torch.serialization.safe_globals([*MAY_BE_CALLED, *options]):
        before = {name: os.environ.pop(name, None) for name in (FORCE, FORBID)}
        os.environ[FORCE] = "1"
        try:
            yield
        finally:
            del os.environ[FORCE]
            os.environ.update({name: value for name, value in before.items() if value is not None})


def check_file(file: Path) -> None:
    """Raise if there is no file of a model, or it is cut short or damaged."""
    if not file.exists():
        found = sorted(path.name for path in file.parent.glob(f"*{MODEL_FILE}"))
        others = f" It has {listed(found)}: pass the start of the name as `prefix`." if found else ""
        if file.parent.is_file():
            others = f" Pass the folder, {str(file.parent.parent)!r}."
        raise FileNotFoundError(f"`dir_path`: there is no {file.name} in {file.parent}.{others}")
    try:
        with zipfile.ZipFile(file) as archive:
            # PyTorch reads no bytes of members that are marked as folders, and writes none that are compressed.
            if any(one.external_attr or one.compress_type for one in archive.infolist()) or archive.testzip():
                raise ValueError("its checksums or its directory are others")
    except UNREADABLE as error:
        raise ValueError(f"`dir_path`: {file} is damaged, cut short, or no saved model ({error}). {AGAIN}") from error


def read_plainly(file: Path, options: Sequence[type]) -> Any:
    """What a file of a model holds, of which nothing may be more than plain data and ``options``."""
    check_file(file)
    try:
        with only_plain_data(options):
            return torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        called = "".join(f" ({name!r})" for name in re.findall(r"GLOBAL (\S+)", str(error)))
        raise ValueError(
            f"`dir_path`: {file} holds more than plain data{called}, and reading it could run code that is in it. It "
            "was saved by an earlier version of scdiffgen, or is not what it seems. If you trust who saved it: "
            "`load(..., safe=False)`, and save it again."
        ) from error
    except NotImplementedError as error:
        raise ValueError(f"`dir_path`: {file}: {error}") from error
    except UNREADABLE as error:
        raise ValueError(f"`dir_path`: {file} cannot be read as a saved model ({error}). {AGAIN}") from error
