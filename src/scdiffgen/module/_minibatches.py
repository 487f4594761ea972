"""Check of minibatches on the way to the device: they hold molecule counts and registered codes."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from scdiffgen._arguments import LARGEST_LIBRARY
from scdiffgen._codes import Code
from scdiffgen._messages import counted
from scdiffgen.conditions import ConditionSpec
from scdiffgen.diffusion import row_sums

LOWEST = {"category": 0, "hierarchy": Code.MISSING, "set": Code.ABSENT}
"""Lowest code by kind of condition: paths may end above the last level, and cells may be untreated."""


class InvalidMinibatchError(ValueError):
    """A minibatch holds other values than counts, or codes that are not registered."""


def check_counts(parts: Sequence[Tensor], place: str) -> None:
    """Raise unless dense or sparse counts of all modalities are whole numbers, and every cell has a molecule."""
    library: Tensor | int = 0
    for part in parts:
        is_sparse = part.layout != torch.strided
        counts = part.to_sparse_csr() if part.layout == torch.sparse_coo else part
        values = counts.values() if is_sparse else counts
        wrong = values != values.clamp(0, LARGEST_LIBRARY).floor()  # NaN differs, too
        if wrong.any():
            first = values[wrong][0].item()
            raise InvalidMinibatchError(f"{place} does not hold molecule counts (first: {first:g}). Pass raw counts.")
        library = library + (row_sums(counts, values) if is_sparse else values.sum(1))
    if not torch.as_tensor(library).all():
        raise InvalidMinibatchError(f"{place} has a cell without a molecule. Leave such cells out.")


def check_codes(tensors: Mapping[str, Tensor], specs: Sequence[ConditionSpec], place: str) -> None:
    """Raise unless codes are those of registered categories, and numbers and doses are possible."""
    for spec in specs:
        tensor, is_set = tensors[spec.registry_key], spec.kind == "set"
        codes, doses = tensor.tensor_split([tensor.shape[1] // 2 if is_set else tensor.shape[1]], dim=1)
        if tensor.isinf().any() or (doses < 0).any():
            raise InvalidMinibatchError(
                f"{place} has infinite numbers or negative doses of {spec.name!r} in {spec.registry_key!r}. Leave such "
                "cells out, or pass NaN where the number is missing."
            )
        if spec.is_number:
            continue
        codes = codes[:, spec.column, None] if spec.kind == "category" else codes
        wrong = (codes < LOWEST[spec.kind]) | (codes >= spec.n_categories) | (codes != codes.long())
        if wrong.any():
            raise InvalidMinibatchError(
                f"{place} has the code {codes[wrong][0].item():g} of {spec.name!r} in {spec.registry_key!r}, and the "
                f"registry has {counted(spec.n_categories, 'category', 'categories')}: pass codes from 0 in their "
                "order."
            )
