"""What is remembered of the training cells: library sizes, conditions, and the responses that they show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from scdiffgen._conditions import Parts
from scdiffgen.module import (
    ABSENT,
    MIN_CELLS,
    MeasuredResponses,
    ThinningModule,
    distinct_groups,
    in_frequent_treatments,
    to_arrays,
    treatment_codes,
)

from ._cells import Cells
from ._extension import Extension

LARGEST = 200_000_000
"""Groups of cells times genes above which responses are not remembered."""


class TrainingMemory(Extension):
    """Models that know of the cells that they were trained on."""

    def _training_conditions(self) -> dict[str, Parts[np.ndarray]]:
        return {name: Parts(*arrays) for name, arrays in self.training_conditions_.items()}

    def _remember_training_cells(self, indices: np.ndarray) -> None:
        """Keep library sizes and conditions of the cells that were trained on."""
        cells = Cells(self, None, indices, None, None)
        batches = [(self.module.library(counts).cpu().numpy(), to_arrays(conditions)) for counts, conditions in cells]
        self.training_library_ = np.concatenate([library for library, _ in batches])
        self.training_conditions_ = {
            spec.name: tuple(np.concatenate(arrays) for arrays in zip(*(c[spec.name] for _, c in batches), strict=True))
            for spec in self.module.specs
        }

    def _remember_responses(self, indices: np.ndarray) -> None:
        """Keep total counts of the training cells, by their conditions, if treatments are such as can be carried over.

        They are perturbations, which are effects, beside conditions that are categories, of one kind of counts that are
        thinned. Treatments of too few cells to tell a response, as if every cell has a dose of its own, are left out.
        """
        self.training_responses_: dict[str, np.ndarray] = {}
        specs, names = self.module.specs, self.module.denoiser.effect_names
        numbers = any(spec.kind == "number" for spec in specs)
        if not isinstance(self.module, ThinningModule) or self._modalities() or len(names) != 1 or numbers:
            return
        cells = treatment_codes(self._training_conditions(), specs, len(self.training_library_))
        groups, group_of = distinct_groups(cells)
        n_cells = np.bincount(group_of)
        kept = in_frequent_treatments(groups, n_cells, MIN_CELLS)
        n_kept = int(kept.sum())
        if n_kept * self.module.n_vars > LARGEST:
            return
        row_of = np.where(kept, kept.cumsum() - 1, n_kept)  # the last row is of all that are not kept
        counts = torch.zeros(n_kept + 1, self.module.n_vars, device=self.device, dtype=torch.float64)
        expected = torch.zeros_like(counts)
        first = 0
        for there, conditions in Cells(self, None, indices, None, None):
            rows = torch.from_numpy(row_of[group_of[first : first + len(there)]]).to(self.device)
            first += len(there)
            counts.index_add_(0, rows, there.to_dense().double())
            if self.module.denoiser.unaffected(conditions, len(there)).any():
                library = self.module.library(there)[:, None]
                expected.index_add_(0, rows, (library * self.module.expression(there, conditions)).double())
        self.training_responses_ = together(
            {
                "codes": groups.codes[kept],
                "doses": groups.doses[kept],
                "n_cells": n_cells[kept],
                "counts": counts[:-1].float().cpu().numpy(),
                "expected": expected[:-1].float().cpu().numpy(),
            },
            getattr(self, "reference_responses_", {}),  # of a model that was grown
        )

    def _measured_responses(self) -> MeasuredResponses | None:
        """What was remembered; nothing if there is nothing, or genes came since."""
        remembered = getattr(self, "training_responses_", {})
        if not remembered or remembered["counts"].shape[1] != self.module.n_vars:
            return None
        features = self.module.denoiser.effect_of(self.module.denoiser.effect_names[0]).features
        return MeasuredResponses(**remembered, features=None if features is None else features.cpu().numpy())

    def _show_measured(self) -> None:
        """Let the module know what was measured."""
        if isinstance(self.module, ThinningModule):
            self.module.measured = self._measured_responses()


def together(new: dict[str, np.ndarray], known: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is remembered of new cells, and of others before, unless those have other genes.

    Parameters
    ----------
    new, known
        Arguments of :class:`MeasuredResponses`; known cells may have fewer slots of interventions, or be none.
    """
    if not known or known["counts"].shape[1] != new["counts"].shape[1]:
        return new
    missing = ((0, 0), (0, new["doses"].shape[1] - known["doses"].shape[1]))
    padded = {
        **known,
        "codes": np.pad(known["codes"], missing, constant_values=ABSENT),
        "doses": np.pad(known["doses"], missing),
    }
    return {name: np.concatenate([array, padded[name]]) for name, array in new.items()}
