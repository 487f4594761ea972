"""Operations that a GPU does slowly or must be waited for, seen from a CPU: each with the line of ours that asked."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import scdiffgen

OURS = f"{Path(scdiffgen.__file__).parent}/"
WIDE = (torch.float64, torch.complex128)
TO_PYTHON = (Tensor.tolist, Tensor.numpy, Tensor.cpu)  # which no operation shows on a CPU
COMPREHENSIONS = ("<dictcomp>", "<listcomp>", "<setcomp>")  # functions of their own before Python 3.12
UNTAGGED = {"equal", "is_nonzero", "_to_sparse_csr"}  # wait as well, though PyTorch does not tag them so


class Seen:
    """How often what was seen, by the operation and the place where we asked for it."""

    def __init__(self) -> None:
        self.wide: Counter[str] = Counter()  # reads or makes double precision
        self.waits: Counter[str] = Counter()  # the device must finish before Python goes on


class Operations(TorchDispatchMode):
    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        name = f"{operation.name()} in {place()}"
        if any(isinstance(leaf, Tensor) and leaf.dtype in WIDE for leaf in tree_leaves((args, kwargs, result))):
            self.seen.wide[name] += 1
        if waits(operation, args, kwargs):
            self.seen.waits[name] += 1
        return result


class Conversions(TorchFunctionMode):
    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in TO_PYTHON:
            self.seen.waits[f"{function.__name__} in {place()}"] += 1
        return function(*args, **(kwargs or {}))


def waits(operation: Any, args: Any, kwargs: Any) -> bool:
    """Whether what comes next depends on the values: a number for Python, or a shape that they decide."""
    name = operation.name().split("::")[1].split(".")[0]
    if name in UNTAGGED or torch.Tag.data_dependent_output in operation.tags:
        return True
    if name.startswith("index"):  # by positions the shape is known, by a mask it is not
        return any(isinstance(leaf, Tensor) and leaf.dtype == torch.bool for leaf in tree_leaves(args[1]))
    return torch.Tag.dynamic_output_shape in operation.tags and kwargs.get("output_size") is None


def by_function(seen: Counter[str]) -> Counter[str]:
    """The same by the function alone, as ``file:function``."""
    total: Counter[str] = Counter()
    for name, n in seen.items():
        total[name.split(" in ")[1].rsplit(":", 1)[0]] += n
    return total


def place() -> str:
    """The innermost line of ours that is being run; of backward passes, that which asked for them."""
    frame = sys._getframe(2)
    while frame is not None:
        _, inside, file = frame.f_code.co_filename.partition(OURS)
        if inside and frame.f_code.co_name not in COMPREHENSIONS:
            return f"{file}:{frame.f_code.co_name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "elsewhere"


@contextmanager
def watched() -> Iterator[Seen]:
    """Note what happens inside."""
    seen = Seen()
    with Conversions(seen), Operations(seen):
        yield seen
