"""Limits on what a model's file unpacks to, by its directory and a pickle that is followed without building objects."""

import pickletools
import struct
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

TIMES_FILE, SMALL_FILE, LARGEST_PICKLE, DEEPEST, CONTAINER = 16, 2**16, 2**25, 100, 200
"""Bytes of memory for each byte of the file, of which at least so many count; bytes of the pickle (all but tensors);
containers in each other; bytes that an empty container takes, also while the pickle is followed."""

LEAVES = "NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE GLOBAL".split()
MAKING = "EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 REDUCE BINPERSID".split()
FILLING = "APPEND APPENDS SETITEM SETITEMS BUILD".split()

ORDERED, TENSOR = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"
BYTES = {1: "Bool Byte Char", 2: "Short Half BFloat16", 4: "Int Float", 8: "Long Double"}
STORAGES = {f"torch {kind}Storage": size for size, kinds in BYTES.items() for kind in kinds.split()}


def archive_sizes(file: Path) -> dict[str, int]:
    """Bytes of the members of an archive that PyTorch wrote, by name without the folder; raise if one is damaged."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        start = opened.read(4)
        opened.seek(max(size - 98, 0))
        end = opened.read()
    first, length, last = *struct.unpack_from("<QQ", end, 40), *struct.unpack_from("<Q", end, 64)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names, folder = [member.orig_filename for member in members], members[0].filename.split("/")[0] + "/"
        if (
            # Readers of archives differ in where they look for the directory: it must be where all of them do.
            [start, end[:4], end[56:60], end[76:80]] != [b"PK\3\4", b"PK\6\6", b"PK\6\7", b"PK\5\6"]
            or not first + length == last == size - 98
            or any(member.compress_type or member.external_attr for member in members)  # or PyTorch reads no bytes
            or any(member.compress_size != member.file_size for member in members)
            or sum(member.file_size for member in members) > size
            or len({name.lower() for name in names}) < len(names)
            or not all(name.startswith(folder) and name.isprintable() for name in names)
        ):
            raise ValueError("its directory is not one that PyTorch writes")
        if archive.testzip() is not None:
            raise ValueError("its checksums are others")
    return {name.removeprefix(folder): member.file_size for name, member in zip(names, members, strict=True)}


@dataclass(slots=True)
class Node:
    """A container, or the result of a call, in a pickle that is followed."""

    of: Any  # the operation, or the function
    parts: list[Any] = field(default_factory=list)
    size: int = CONTAINER  # bytes once it is built; what occurs twice counts twice
    depth: int = 1
    is_open: bool = True  # whether more may be put into it

    def take(self, parts: list[Any], limit: int) -> None:
        """Put values into it; raise if it becomes too large."""
        for part in parts:
            if isinstance(part, Node):
                part.is_open, self.depth = False, max(self.depth, part.depth + 1)
            self.size += part.size if isinstance(part, Node) else 8 + len(part) if isinstance(part, str) else 8
        self.parts += parts
        if self.size > limit or self.depth > DEEPEST:
            raise ValueError(f"it would take over {TIMES_FILE} times its size in memory, or has over {DEEPEST} levels")


def check_pickle(code: bytes, limit: int, storages: Mapping[str, int], ours: Collection[str]) -> None:
    """Raise if a pickle calls more than ``ours`` and tensors in ``storages``, or makes more than ``limit`` bytes."""
    if len(code) > LARGEST_PICKLE:
        raise ValueError(f"its pickle has more than {LARGEST_PICKLE:,} bytes")
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    left = limit
    value: Any
    for operation, value, _ in pickletools.genops(code):
        name = operation.name
        if name == "MARK":
            marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[value] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[value])
            if isinstance(stack[-1], Node):
                stack[-1].is_open = False  # so that none contains itself
        elif name in LEAVES:
            if name == "GLOBAL" and value not in [ORDERED, TENSOR, *STORAGES, *ours]:
                raise UnpicklingError(repr(value.replace(" ", ".")))
            if name == "LONG1" and not -(2**63) <= value < 2**64:
                raise ValueError("it has a whole number of more than 64 bits")
            stack.append(value)
        elif name in MAKING or name in FILLING:
            to_mark = pickletools.markobject in operation.stack_before
            below = marks.pop() if to_mark else len(stack) - len(operation.stack_before) + (name in FILLING)
            parts, stack[below:] = stack[below:], []
            if name in FILLING:
                node = stack[-1]
                if not node.is_open or (name == "BUILD" and node.of != ORDERED):
                    raise ValueError("it changes what is there already")
            else:
                node = Node(parts.pop(0)) if name == "REDUCE" else Node(name)
                stack.append(node)
                left -= CONTAINER
            if name == "REDUCE":
                node.size += _bytes_made(node.of, parts[0].parts)
            elif name == "BINPERSID" and _bytes_of(parts[0]) != storages[f"data/{parts[0].parts[2]}"]:
                raise ValueError("a storage has another size than it says")
            node.take(parts, limit if left > 0 else 0)
        elif name not in ("PROTO", "STOP"):
            raise UnpicklingError(f"the operation {name}")
        if (marks and len(stack) < marks[-1]) or (name == "STOP" and (marks or len(stack) != 1)):
            raise ValueError("its pickle is malformed")


def _bytes_of(storage: Node, shape: list[int] | None = None) -> int:
    """Bytes of a storage by its identifier in the file, or of a tensor of this type with a ``shape``."""
    _, kind, _, _, n_values = storage.parts
    shape = [n_values] if shape is None else shape
    if len(shape) > 64 or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("a tensor has a size that none has")
    return prod(shape) * STORAGES[kind]


def _bytes_made(function: Any, arguments: list[Any]) -> int:
    """Bytes that a call makes beside its arguments; raise if they are more than the arguments can fill."""
    name = str(function).split()[-1]
    if function == TENSOR:  # PyTorch itself refuses what reaches beyond the end of the storage
        size, there = (_bytes_of(arguments[0].parts[0], shape) for shape in (arguments[2].parts, None))
        if size > there:
            raise ValueError("a tensor is larger than its storage")
        return size
    if name in ("as_object_array", "as_scalar"):
        dtype, entries = np.dtype(arguments[-1]), arguments[0].parts if name == "as_object_array" else []
        if dtype.kind not in "bifuOU" or (entries and not (dtype.itemsize and arguments[0].of == "EMPTY_LIST")):
            raise ValueError(f"an array has the type {dtype}")
        return len(entries) * max(dtype.itemsize, 8)
    return sum(part.size for part in arguments if isinstance(part, Node)) if name == "as_frame" else 0
