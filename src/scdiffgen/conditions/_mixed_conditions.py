"""Conditions between two sets of conditions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ._conditions import Conditions


class MixedConditions(Conditions[Tensor]):
    """Conditions of cells between a start (weight 0) and an end (weight 1); all embeddings are mixed linearly."""

    def __init__(self, start: Conditions[Tensor], end: Conditions[Tensor], weight: float) -> None:
        super().__init__(start, start.n_cells)
        self.start, self.end, self.weight = start, end, weight

    def mix(self, embed: Callable[[Conditions[Tensor]], Tensor]) -> Tensor:
        """Interpolate what is computed from the start and from the end; exact at both."""
        return torch.lerp(embed(self.start), embed(self.end), self.weight)
