"""Conditions of some cells as tensors, written by hand; `None` is missing."""

from collections.abc import Sequence

import torch
from torch import Tensor

from scdiffgen.conditions import Condition, Conditions


def unconditional(n_cells: int) -> Conditions[Tensor]:
    """Cells of which no condition is given."""
    return Conditions({}, n_cells)


def category(ids: Sequence[int | None]) -> Condition[Tensor]:
    """One category a cell."""
    return chosen([None if id_ is None else [id_] for id_ in ids], n_slots=1)


def number(values: Sequence[float | None]) -> Condition[Tensor]:
    """One number a cell."""
    given = torch.tensor([value is not None for value in values])
    return Condition(
        torch.zeros(len(values), 1, dtype=torch.long),
        torch.tensor([[0.0 if value is None else value] for value in values]),
        given[:, None],
        given,
    )


def chosen(
    ids: Sequence[Sequence[int] | None], doses: Sequence[Sequence[float]] | None = None, *, n_slots: int = 2
) -> Condition[Tensor]:
    """A set a cell, such as its perturbations; or the path from the root of a hierarchy. An empty set is a control."""
    n_cells = len(ids)
    codes = torch.zeros(n_cells, n_slots, dtype=torch.long)
    values, mask = torch.zeros(n_cells, n_slots), torch.zeros(n_cells, n_slots, dtype=torch.bool)
    for cell, members in enumerate(ids):
        n = len(members or [])
        codes[cell, :n] = torch.tensor(members or [], dtype=torch.long)
        mask[cell, :n] = True
        if doses is not None:
            values[cell, :n] = torch.tensor(doses[cell])
    return Condition(codes, values, mask, torch.tensor([members is not None for members in ids]))
