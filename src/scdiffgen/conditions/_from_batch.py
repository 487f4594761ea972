"""The conditions of the cells of a minibatch of scvi-tools' data loader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from scdiffgen._codes import Code

from ._conditions import Condition, Conditions
from ._spec import ConditionSpec


def conditions_from_batch(tensors: Mapping[str, Tensor], specs: Sequence[ConditionSpec]) -> Conditions[Tensor]:
    """Read tensors ``(cells, columns)`` of codes (:class:`Code`, below 0 padding; whole floats too) by registry key."""
    readers = {"category": _category, "number": _number, "set": _set, "hierarchy": _hierarchy}
    by_name = {spec.name: readers[spec.kind](tensors[spec.registry_key], spec) for spec in specs}
    return Conditions(by_name, len(next(iter(tensors.values()))) if tensors else 0)


def _category(codes: Tensor, spec: ConditionSpec) -> Condition[Tensor]:
    return _hierarchy(codes[:, spec.column : spec.column + 1], spec)


def _hierarchy(codes: Tensor, spec: ConditionSpec) -> Condition[Tensor]:
    ids = codes.long()
    mask = ids >= 0
    return Condition(ids.clamp(min=0), torch.zeros_like(ids, dtype=torch.float32), mask, mask[:, 0])


def _number(numbers: Tensor, spec: ConditionSpec) -> Condition[Tensor]:
    values = numbers[:, spec.column : spec.column + 1].float()
    mask = ~values.isnan()
    return Condition(mask.long() * 0, values.nan_to_num(nan=0.0), mask, mask[:, 0])


def _set(ids_and_doses: Tensor, spec: ConditionSpec) -> Condition[Tensor]:
    ids, doses = ids_and_doses.chunk(2, dim=1)
    ids = ids.long()
    mask = ids >= 0
    given = ids[:, 0] != Code.MISSING
    return Condition(ids.clamp(min=0), doses.float() * mask, mask, given)
