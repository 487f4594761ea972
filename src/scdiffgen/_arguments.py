"""Checks of arguments: numbers, choices and unknown names."""

import math
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real
from typing import TypeGuard

from ._messages import did_you_mean

LARGEST_LIBRARY = 2**24  # molecules per cell: float32 represents no larger odd number


def is_finite_number(value: object) -> TypeGuard[float]:
    """Test whether ``value`` is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_whole_number(name: str, value: object, *, at_least: int = 1) -> int:
    """Convert a whole number to ``int``; raise if it is none or below ``at_least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"`{name}` is {value!r}: pass a whole number of at least {at_least}.")
    return int(value)


def check_share(name: str, value: object, what: str = "a share") -> None:
    """Raise unless ``value`` is a number in [0, 1)."""
    if not (is_finite_number(value) and 0 <= value < 1):
        raise ValueError(f"`{name}` is {value!r}: pass {what} in [0, 1).")


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise unless ``value`` is one of the choices."""
    if value not in choices:
        raise ValueError(f"`{name}` is {value!r}: choose one of {list(choices)}.")


def check_names(of: str, given: Iterable[str], known: Iterable[str], instead: Mapping[str, str] | None = None) -> None:
    """Raise if an argument is unknown; the error names its replacement or the closest known name."""
    instead = instead or {}
    for name in given:
        if name in instead or name not in known:
            way_out = f" {instead[name]}" if name in instead else did_you_mean(name, known)
            if not way_out and "conditions" in known:
                way_out = f" Conditions are passed as one mapping, `{of}({{{name!r}: ...}})`."
            raise TypeError(f"`{of}` has no argument {name!r}.{way_out or did_you_mean(name, instead)}")
