"""Conditions between two sets of conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

from ._conditions import Condition, Conditions


class MixedConditions(Conditions[Tensor]):
    """Conditions of cells between a start (weight 0) and an end (weight 1); all embeddings are mixed linearly."""

    def __init__(self, start: Conditions[Tensor], end: Conditions[Tensor], weight: float) -> None:
        super().__init__(start, start.n_cells)
        self.start, self.end, self.weight = start, end, weight

    def mix(self, embed: Callable[[Conditions[Tensor]], Tensor]) -> Tensor:
        """Interpolate what is computed from the start and from the end; exact at both."""
        return torch.lerp(embed(self.start), embed(self.end), self.weight)

    def only(self, names: Collection[str]) -> MixedConditions:
        return MixedConditions(self.start.only(names), self.end.only(names), self.weight)

    def without(self, names: Collection[str]) -> MixedConditions:
        return MixedConditions(self.start.without(names), self.end.without(names), self.weight)

    def replace(self, others: Mapping[str, Condition[Tensor]]) -> MixedConditions:
        start, end = (others.start, others.end) if isinstance(others, MixedConditions) else (others, others)
        return MixedConditions(self.start.replace(start), self.end.replace(end), self.weight)
