"""Arguments that are names: a list of them, of which a text is one, and the name of one column."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import repr as shortened
from typing import TypeVar

Name = TypeVar("Name", bound=str)


def as_names(names: Iterable[Name] | Name) -> list[Name]:
    """List of names; a text is one name, not its letters."""
    return [names] if isinstance(names, str) else list(names)


def check_column(key: object, argument: str = "groupby") -> None:
    """Raise unless the argument is the name of one column."""
    if not isinstance(key, str):
        given = shortened(key) if isinstance(key, list | tuple) else f"of type {type(key).__name__}"
        raise TypeError(
            f"`{argument}` is {given}: pass the name of one column of `.obs`. To group by several, join them into one."
        )
