"""Parts of error messages: lists of values, counted nouns, and suggestions of close names."""

import difflib
import sys
import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

LONGEST_LIST = 10
BETWEEN = (__name__.partition(".")[0], "scvi", "lightning", "torch", "contextlib", "functools")
"""Packages whose stack frames are skipped to find the line of the user."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line of the user's own code."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def plain(value: object) -> object:
    """Convert a NumPy scalar to a Python value, which prints as the user wrote it."""
    return value.item() if isinstance(value, np.generic) else value


def listed(values: Iterable[object]) -> str:
    """List at most ten values, with their total number if there are more."""
    everything = [repr(plain(value)) for value in values]
    shown = ", ".join(everything[:LONGEST_LIST])
    return shown if len(everything) <= LONGEST_LIST else f"{shown}, ... ({len(everything)} in all)"


def did_you_mean(value: object, known: Iterable[object]) -> str:
    """Suggest the known names closest to a value; empty if none is close."""
    by_lower_case: dict[str, object] = {}
    for name in known:
        by_lower_case.setdefault(str(name).lower(), name)
    close = difflib.get_close_matches(str(value).lower(), list(by_lower_case), n=3)
    return f" Did you mean {' or '.join(repr(plain(by_lower_case[name])) for name in close)}?" if close else ""


def and_others(n_others: int, noun: str) -> str:
    """Format further items, such as ``" and 3 other cells"``; empty for none."""
    return f" and {n_others} other {noun}{'s' if n_others > 1 else ''}" if n_others else ""


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """Format a counted noun, such as ``"1 cell"`` or ``"3 cells"``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def unknown_name(what: str, name: object, known: Sequence[object]) -> str:
    """Describe an unknown name, with the known names and a suggestion."""
    choices = f"they are {listed(known)}" if len(known) else "there is none"
    return f"{plain(name)!r} is not a {what} ({choices}).{did_you_mean(name, known)}"


def raise_if_not_unique(names: pd.Index, place: str, way_out: str) -> None:
    """Raise if names of cells or genes are not unique; ``place`` names them in the error."""
    if not names.is_unique:
        twice = names[names.duplicated()].unique()
        raise ValueError(f"{place} are not unique: {listed(twice)} occur more than once. {way_out}")
