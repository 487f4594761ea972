"""A minibatch of scvi-tools' data loader as parts of conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scdiffgen._conditions import ConditionSpec, Parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


def parts_from_batch(tensors: Mapping[str, Tensor], specs: Sequence[ConditionSpec]) -> dict[str, Parts]:
    """Read the conditions of the cells of a minibatch.

    Parameters
    ----------
    tensors
        (cells, columns) tensors by registry key; codes may be whole floats, -1 is padding, NaN is "not told".
    specs
        The registered conditions.

    Returns
    -------
    Tensors of each condition by its name, on the device of the minibatch.

    Examples
    --------
    >>> import torch
    >>> spec = ConditionSpec("type", "category", registry_key="labels", n_categories=2)
    >>> parts_from_batch({"labels": torch.tensor([[1], [0]])}, [spec])["type"].ids.tolist()
    [[1], [0]]
    """
    readers = {"category": _category, "number": _number, "set": _set, "hierarchy": _hierarchy}
    return {spec.name: readers[spec.kind](tensors[spec.registry_key], spec) for spec in specs}


def _category(codes: Tensor, spec: ConditionSpec) -> Parts:
    return _hierarchy(codes[:, spec.column : spec.column + 1], spec)


def _hierarchy(codes: Tensor, spec: ConditionSpec) -> Parts:
    ids = codes.long()
    mask = ids >= 0
    return Parts(ids.clamp(min=0), ids.float() * 0, mask, mask[:, 0])


def _number(numbers: Tensor, spec: ConditionSpec) -> Parts:
    values = numbers[:, spec.column : spec.column + 1].float()
    mask = ~values.isnan()
    return Parts(mask.long() * 0, values.nan_to_num(nan=0.0), mask, mask[:, 0])


def _set(ids_and_doses: Tensor, spec: ConditionSpec) -> Parts:
    ids, doses = ids_and_doses.chunk(2, dim=1)
    ids = ids.long()
    mask = ids >= 0
    told = ids[:, 0] >= -1  # a registered cell has a perturbation or is a control
    return Parts(ids.clamp(min=0), doses.float() * mask, mask, told)
