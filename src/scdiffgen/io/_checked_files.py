"""Reading files that others wrote: whole ones, and of these plain data alone, so that no code in them is run."""

from __future__ import annotations

import os
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from scdiffgen._messages import listed

from ._plain_data import MAY_BE_CALLED

FORCE, FORBID = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"

MODEL_FILE = "model.pt"
"""What scvi-tools calls the file of a model, after a prefix."""

_reading = threading.RLock()


@contextmanager
def only_plain_data(options: Sequence[type]) -> Iterator[None]:
    """Let PyTorch read plain data and ``options`` alone while the block runs, also where scvi-tools asks it for more.

    PyTorch has a variable of the environment for this, which the whole process sees; so one file is read at a time.
    """
    with _reading, torch.serialization.safe_globals([*MAY_BE_CALLED, *options]):
        before = {name: os.environ.pop(name, None) for name in (FORCE, FORBID)}
        os.environ[FORCE] = "1"
        try:
            yield
        finally:
            del os.environ[FORCE]
            os.environ.update({name: value for name, value in before.items() if value is not None})


def check_file(file: Path) -> None:
    """Raise if there is no such file of a model, or it is cut short or damaged."""
    if not file.exists():
        found = sorted(path.name for path in file.parent.glob(f"*{MODEL_FILE}"))
        others = f" It has {listed(found)}: pass the start of the name as `prefix`." if found else ""
        if file.parent.is_file():
            others = f" Pass the folder, {str(file.parent.parent)!r}."
        raise FileNotFoundError(f"`dir_path`: there is no {file.name} in {file.parent}.{others}")
    whole = zipfile.is_zipfile(file)
    try:
        damaged = zipfile.ZipFile(file).testzip() if whole else None
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        damaged = str(error)
    if not whole or damaged is not None:
        how = f"damaged ({damaged})" if whole else "cut short, or no saved model"
        raise ValueError(
            f"`dir_path`: {file} is {how}. Copy it again from where it was saved, or save the model again."
        )


def read_plainly(file: Path, options: Sequence[type]) -> Any:
    """What a file of a model holds, of which nothing may be more than plain data and ``options``."""
    try:
        with only_plain_data(options):
            return torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except UnpicklingError as error:
        with only_plain_data(options):
            named = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        raise ValueError(
            f"`dir_path`: {file} holds more than plain data ({listed(sorted(named)) or error}), and reading it could "
            "run code that is in it. It was saved by an earlier version of scdiffgen, or is not what it seems. If you "
            "trust who saved it: `load(..., safe=False)`, and save it again."
        ) from error
    except (RuntimeError, ValueError, KeyError, EOFError, TypeError) as error:
        raise ValueError(
            f"`dir_path`: {file} cannot be read as a saved model ({error}). Copy it again from where it was saved, or "
            "save the model again."
        ) from error
