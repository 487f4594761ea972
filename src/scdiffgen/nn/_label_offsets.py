"""Fixed scores of labels that too few cells have to be learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scdiffgen.conditions import Conditions, ConditionSpec

from ._shapes import Genes


class LabelOffsets(nn.Module):
    """What scores of the genes add for each label: nothing unless it is set, and not trained."""

    table: Tensor  # (labels, genes)

    def __init__(self, spec: ConditionSpec, n_genes: int) -> None:
        super().__init__()
        self.name = spec.name
        self.register_buffer("table", torch.zeros(spec.n_categories, n_genes))
        self.is_used = False  # whether any is set, known without asking the device

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.set(self.table)

    def set(self, table: Tensor) -> None:
        """Set the offsets ``(labels, genes)``."""
        self.table.copy_(table)
        self.is_used = bool(table.any())

    def forward(self, conditions: Conditions[Tensor]) -> Genes:
        """Scores of cells; zero where the label is missing."""
        if self.name not in conditions:
            return self.table.new_zeros(conditions.n_cells, self.table.shape[1])
        label = conditions[self.name]
        there = label.given & label.mask[:, 0]
        return self.table[torch.where(there, label.ids[:, 0], 0)] * there[:, None]
