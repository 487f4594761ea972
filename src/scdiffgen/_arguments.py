"""Arguments: numbers that are checked, and what a constructor answers to one that it does not have."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from ._messages import did_you_mean

Class = TypeVar("Class", bound=type)


def is_finite_number(value: Any) -> bool:
    """Whether ``value`` is a number, and neither infinite nor NaN."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_whole_number(name: str, value: Any, *, at_least: int = 1) -> None:
    """Raise unless ``value`` is a whole number of at least so many."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"`{name}` is {value!r}: pass a whole number of at least {at_least}.")


def check_share(name: str, value: Any, what: str = "a share") -> None:
    """Raise unless ``value`` is a number in [0, 1)."""
    if not (is_finite_number(value) and 0 <= value < 1):
        raise ValueError(f"`{name}` is {value!r}: pass {what} in [0, 1).")


def explain_unknown_arguments(elsewhere: Mapping[str, str] | None = None) -> Callable[[Class], Class]:
    """Let a class name the nearest of its arguments, or where an argument has gone, instead of Python's bare error."""
    moved = dict(elsewhere or {})

    def decorate(cls: Class) -> Class:
        construct = cls.__init__  # type: ignore[misc]
        known = list(inspect.signature(construct).parameters)[1:]

        @functools.wraps(construct)  # the signature stays what it was
        def explained(self: Any, *args: Any, **kwargs: Any) -> None:
            for name in kwargs:
                if name not in known:
                    way_out = f" {moved[name]}" if name in moved else did_you_mean(name, [*known, *moved])
                    raise TypeError(f"`{cls.__name__}` has no argument {name!r}.{way_out}")
            construct(self, *args, **kwargs)

        cls.__init__ = explained  # type: ignore[misc]
        return cls

    return decorate
