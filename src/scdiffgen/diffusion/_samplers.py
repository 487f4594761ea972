"""Samplers: plain functions of a predictor whose conditions are already bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ._thinning import draw_molecules


class MoleculePrediction(Protocol):
    """What a predictor of the thinning process returns."""

    def log_prob(self, state: Tensor) -> Tensor:
        """Log-probabilities ``(cells, genes)`` of the next molecule given the dense state ``(cells, genes)``."""
        ...


MoleculePredictor = Callable[[Tensor, Tensor], MoleculePrediction]
"""``predictor(state, library)``: dense state ``(cells, genes)`` and library sizes ``(cells,)`` to a prediction."""


def molecule_schedule(n_start: Tensor, n_end: Tensor, n_steps: int, offset: float = 4.0) -> Tensor:
    r"""Numbers of molecules ``(n_steps + 1, cells)`` between ``n_start`` and ``n_end`` ``(cells,)``, both included.

    Geometric in ``n + offset``: :math:`n_k + o = (n_0 + o)^{1 - k/K} (n_K + o)^{k/K}`, rounded; but a step adds at
    least one molecule, so that with as many steps as molecules (or more) each adds one. A large offset makes the steps
    equal.
    """
    step = torch.arange(n_steps + 1, device=n_end.device)[:, None]
    fraction = step.double() / n_steps
    start, end = (n_start.double() + offset).log(), (n_end.double() + offset).log()
    geometric = ((1 - fraction) * start + fraction * end).exp().sub(offset).round().long()
    return torch.maximum(geometric, torch.minimum(n_start.long() + step, n_end.long()))


@torch.no_grad()
def grow_molecules(
    predictor: MoleculePredictor,
    library: Tensor,
    start: Tensor,
    *,
    n_steps: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Add molecules to ``start`` ``(cells, genes)`` until every cell has ``library`` ``(cells,)`` of them.

    One evaluation of the predictor a step; the molecules of a step are drawn independently. With as many steps as
    molecules this is exact ancestral sampling. Cells that hold ``library`` molecules or more already stay as they are.
    """
    state = start.clone()
    present = state.sum(1).round().long()
    schedule = molecule_schedule(present, torch.maximum(library.round().long(), present), n_steps)
    for now, after in zip(schedule[:-1], schedule[1:], strict=True):
        if torch.equal(now, after):
            continue
        drawn = draw_molecules(predictor(state, library).log_prob(state), after - now, generator)
        state.view(-1).index_add_(0, drawn, torch.ones_like(drawn, dtype=state.dtype))
    return state
