"""Pseudobulks: total counts of the training cells that share their conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from scdiffgen.conditions import Code, Conditions, ConditionSpec, have_exactly

from ._treatments import TreatmentCodes, distinct_groups, in_frequent_treatments, treatment_codes

if TYPE_CHECKING:
    from scdiffgen.module import ThinningModule

MIN_CELLS = 20
"""Cells from which a response is read, treated and untreated each."""

LARGEST = 200_000_000
"""Groups of cells times genes above which pseudobulks are not kept."""


@dataclass(frozen=True)
class Pseudobulks:
    """Total counts of every group of cells that share their conditions; plain arrays, saved with the model."""

    codes: np.ndarray  # (groups, columns), as of TreatmentCodes
    doses: np.ndarray  # (groups, slots)
    n_cells: np.ndarray  # (groups,)
    counts: np.ndarray  # (groups, genes)
    expected: np.ndarray  # (groups, genes): library sizes times the shares that the network expects, of untreated cells

    @property
    def slots(self) -> np.ndarray:
        """Ids of the interventions of the groups ``(groups, slots)``."""
        return TreatmentCodes(self.codes, self.doses).slots

    @property
    def n_genes(self) -> int:
        """Number of genes."""
        return self.counts.shape[1]

    def have(self, treatment: Mapping[int, float]) -> np.ndarray:
        """Which groups had exactly these interventions at these doses ``(groups,)``; none of them is untreated."""
        there = have_exactly(self.slots, list(treatment))
        for part, dose in treatment.items():
            there &= ((self.slots == part) & (self.doses == dose)).any(1)
        return there

    def totals(self, group_of: np.ndarray, n_groups: int, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cells ``(coarser,)`` and counts ``(coarser, genes)`` of some of the groups, summed over coarser ones."""
        n_cells, counts = np.zeros(n_groups), np.zeros((n_groups, self.n_genes))
        np.add.at(n_cells, group_of[which], self.n_cells[which])
        np.add.at(counts, group_of[which], self.counts[which])
        return n_cells, counts

    def concatenate(self, others: Pseudobulks | None) -> Pseudobulks:
        """These and others, which may have fewer slots of interventions; these alone if the others have other genes."""
        if others is None or others.n_genes != self.n_genes:
            return self
        more = ((0, 0), (0, self.doses.shape[1] - others.doses.shape[1]))
        widened = {
            **others.to_plain(),
            "codes": np.pad(others.codes, more, constant_values=Code.ABSENT),
            "doses": np.pad(others.doses, more),
        }
        return Pseudobulks(**{name: np.concatenate([array, widened[name]]) for name, array in self.to_plain().items()})

    def to_plain(self) -> dict[str, np.ndarray]:
        """Arrays by name."""
        return dict(vars(self))


def pseudobulks(
    module: ThinningModule,
    batches: Iterable[tuple[Tensor, Conditions[Tensor]]],
    conditions: Conditions[np.ndarray],
    specs: Sequence[ConditionSpec],
) -> Pseudobulks | None:
    """Sum the counts of cells in ``batches``, whose ``conditions`` are known, by group.

    Treatments of too few cells to tell a response, as if every cell has a dose of its own, are left out. Nothing is
    kept if there are too many groups.
    """
    groups, group_of = distinct_groups(treatment_codes(conditions, specs))
    n_cells = np.bincount(group_of)
    kept = in_frequent_treatments(groups, n_cells, MIN_CELLS)
    n_kept = int(kept.sum())
    if n_kept * module.n_vars > LARGEST:
        return None
    row_of = np.where(kept, kept.cumsum() - 1, n_kept)  # the last row is of all that are not kept
    counts = torch.zeros(n_kept + 1, module.n_vars, device=module.device, dtype=torch.float64)
    expected = torch.zeros_like(counts)
    first = 0
    for there, given in batches:
        rows = torch.from_numpy(row_of[group_of[first : first + len(there)]]).to(module.device)
        first += len(there)
        counts.index_add_(0, rows, there.to_dense().double())
        if module.denoiser.unaffected(given, len(there)).any():
            library = module.library(there)[:, None]
            expected.index_add_(0, rows, (library * module.expression(there, given)).double())
    return Pseudobulks(
        groups.codes[kept],
        groups.doses[kept],
        n_cells[kept],
        counts[:-1].float().cpu().numpy(),
        expected[:-1].float().cpu().numpy(),
    )
