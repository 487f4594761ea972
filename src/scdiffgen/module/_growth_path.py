"""Sampling cells with every state on the way kept."""

from __future__ import annotations

import torch
from torch import Tensor

from scdiffgen.diffusion import MoleculePrediction, MoleculePredictor, grow_molecules


@torch.no_grad()
def growth_path(
    predictor: MoleculePredictor, library: Tensor, n_genes: int, n_steps: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Sample cells from nothing: all states, and at each the full cell that is expected, ``(cells, states, genes)``.

    The expected cell is the molecules there, plus the missing ones in their predicted shares.
    """
    states: list[Tensor] = []
    expected: list[Tensor] = []

    def recording(state: Tensor, library: Tensor) -> MoleculePrediction:
        prediction = predictor(state, library)
        missing = (library - state.sum(1)).clamp(min=0)[:, None]
        states.append(state.clone())
        expected.append(state + missing * prediction.log_prob(state).exp())
        return prediction

    empty = library.new_zeros(len(library), n_genes)
    full = grow_molecules(recording, library, empty, n_steps=n_steps, generator=generator)
    return torch.stack([*states, full], dim=1), torch.stack([*expected, full], dim=1)
