"""Check, while the tests run, that tensors have the shapes that annotations state.

Other annotations are left to mypy: tests pass wrong values on purpose.
"""

from collections.abc import Callable
from typing import Any

from beartype import beartype
from jaxtyping import AbstractArray


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let beartype see the annotations of arrays alone."""
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if _is_array(hint)}
    return beartype(function)


def _is_array(hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.startswith(("Bool[", "Float[", "Int[", "Num["))
    return isinstance(hint, type) and issubclass(hint, AbstractArray)
