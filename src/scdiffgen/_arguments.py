"""Arguments: numbers that are checked, and what a class and its methods answer to one that they do not have."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from types import FunctionType, MappingProxyType
from typing import Any, TypeVar

from ._messages import did_you_mean

Class = TypeVar("Class", bound=type)
NOWHERE: Mapping[str, str] = MappingProxyType({})


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


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise unless ``value`` is one of the choices."""
    if value not in choices:
        raise ValueError(f"`{name}` is {value!r}: choose one of {list(choices)}.")


def check_names(of: str, given: Iterable[str], known: Iterable[str], elsewhere: Mapping[str, str] = NOWHERE) -> None:
    """Raise if an argument is unknown: say where it has gone, or else what the user may have meant."""
    for name in given:
        if name in elsewhere or name not in known:
            way_out = f" {elsewhere[name]}" if name in elsewhere else did_you_mean(name, known)
            if not way_out and "conditions" in known:
                way_out = f" Conditions are passed as one mapping, `{of}({{{name!r}: ...}})`."
            raise TypeError(f"`{of}` has no argument {name!r}.{way_out or did_you_mean(name, elsewhere)}")


def explain_unknown_arguments(
    elsewhere: Mapping[str, str] = NOWHERE, of_methods: Mapping[str, Mapping[str, str]] | None = None
) -> Callable[[Class], Class]:
    """Let a class name the nearest of its arguments, or where an argument has gone, instead of Python's bare error.

    With ``of_methods`` (arguments that have gone, by method; under ``""`` those of all) its public methods do so too.
    """

    def decorate(cls: Class) -> Class:
        moved = of_methods or {}
        package = cls.__module__.split(".")[0]
        cls.__init__ = _explained(cls.__init__, cls.__name__, elsewhere)  # type: ignore[misc]
        for name in dir(cls) if of_methods is not None else ():
            member = inspect.getattr_static(cls, name)
            bound = type(member) if isinstance(member, classmethod | staticmethod) else None
            function = member.__func__ if bound else member
            if inspect.isfunction(function) and name[0] != "_" and function.__module__.startswith(package):
                gone = {**moved.get("", {}), **moved.get(name, {})}
                explained = _explained(function, name, gone)
                setattr(cls, name, bound(explained) if bound else explained)
        return cls

    return decorate


def _explained(function: Callable, name: str, elsewhere: Mapping[str, str]) -> Callable:
    """The function, with checks of what it is passed by name; the signature and the module stay what they were."""
    parameters = inspect.signature(function).parameters
    takes_others = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    elsewhere = {name: way_out for name, way_out in elsewhere.items() if name not in parameters}
    check = check_names

    def explained(*args: Any, **kwargs: Any) -> Any:
        check(name, kwargs, kwargs if takes_others else parameters, elsewhere)
        return function(*args, **kwargs)

    # In the globals of its own module, where doctest looks for examples.
    made = FunctionType(explained.__code__, function.__globals__, name, None, explained.__closure__)
    return functools.wraps(function)(made)
