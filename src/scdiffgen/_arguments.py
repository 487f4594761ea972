"""What a constructor answers to an argument that it does not have."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ._messages import did_you_mean

Class = TypeVar("Class", bound=type)


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
