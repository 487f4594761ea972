"""Responses that training cells show, remembered, and asked for by cells of other contexts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scdiffgen._conditions import Parts
from scdiffgen.module import (
    CarriedResponse,
    MeasuredResponses,
    ThinningModule,
    condition_codes,
    group_codes,
    parts_of,
)

from ._cells import Cells, to_arrays
from ._generation import Generation

LARGEST = 200_000_000
"""Groups of cells times genes above which responses are not remembered."""


class Carried(NamedTuple):
    """Responses of some cells; zeros where the network must be asked."""

    change: Tensor  # of fourth roots of shares (cells, genes)
    log_correction: Tensor  # of the logarithm of the expression that is expected (cells, genes)
    known: Tensor  # (cells,)


class Measured(Generation):
    """Models that carry over what was measured."""

    def _remember_responses(self, indices: np.ndarray) -> None:
        """Keep total counts of the training cells, by their conditions, if treatments are such as can be carried over.

        They are perturbations without doses, which are effects, beside conditions that are categories, of one kind of
        counts that are thinned.
        """
        self.training_responses_: dict[str, np.ndarray] = {}
        specs, names = self.module.specs, self.module.denoiser.effect_names
        numbers = any(spec.kind == "number" or (spec.name in names and spec.has_values) for spec in specs)
        if not isinstance(self.module, ThinningModule) or self._modalities() or len(names) != 1 or numbers:
            return
        codes = condition_codes(self._training_conditions(), specs, len(self.training_library_))
        groups, group_of = group_codes(codes, self._n_slots(names[0]))
        if len(groups) * self.module.n_vars > LARGEST:
            return
        counts = torch.zeros(len(groups), self.module.n_vars, device=self.device, dtype=torch.float64)
        expected = torch.zeros_like(counts)
        first = 0
        for there, conditions in Cells(self, None, indices, None, None):
            rows = torch.from_numpy(group_of[first : first + len(there)]).to(self.device)
            first += len(there)
            counts.index_add_(0, rows, there.to_dense().double())
            if self.module.denoiser.unaffected(conditions, len(there)).any():
                library = self.module.library(there)[:, None]
                expected.index_add_(0, rows, (library * self.module.expression(there, conditions)).double())
        self.training_responses_ = {
            "codes": groups,
            "n_cells": np.bincount(group_of, minlength=len(groups)),
            "counts": counts.float().cpu().numpy(),
            "expected": expected.float().cpu().numpy(),
        }

    def _n_slots(self, name: str) -> int:
        return self.training_conditions_[name][0].shape[1]

    def _measured_responses(self) -> MeasuredResponses | None:
        """What was remembered; nothing if there is nothing, or genes came since."""
        remembered = getattr(self, "training_responses_", {})
        if not remembered or remembered["counts"].shape[1] != self.module.n_vars:
            return None
        return MeasuredResponses(**remembered, n_interventions=self._n_slots(self.module.denoiser.effect_names[0]))

    def _carried(
        self,
        measured: MeasuredResponses,
        own: Mapping[str, Parts[Tensor]],
        asked: Mapping[str, Parts[Tensor]],
        known: dict[bytes, CarriedResponse | None],
    ) -> Carried:
        """Responses of a minibatch of cells.

        Parameters
        ----------
        measured
            What training cells show.
        own, asked
            Conditions of the cells, which differ in interventions only.
        known
            Responses that were computed before, by conditions; others are added.
        """
        name = self.module.denoiser.effect_names[0]
        n_cells, n_asked = len(own[name].told), asked[name].ids.shape[1]
        codes = [condition_codes(to_arrays(told), self.module.specs, n_cells) for told in (own, asked)]
        n_identity = codes[1].shape[1] - n_asked
        kinds, kind_of = np.unique(np.concatenate([codes[0], codes[1][:, n_identity:]], 1), axis=0, return_inverse=True)
        responses = []
        for kind in kinds:
            key = kind.tobytes()
            if key not in known:
                parts = parts_of(kind[n_identity:-n_asked]), parts_of(kind[-n_asked:])
                known[key] = measured.carried(kind[:n_identity], *parts)
            responses.append(known[key])
        nothing = CarriedResponse(*np.zeros((2, self.module.n_vars)))
        tables = [np.stack(arrays) for arrays in zip(*(response or nothing for response in responses), strict=True)]
        rows = torch.from_numpy(kind_of.ravel()).to(self.device)
        change, correction = (torch.from_numpy(table).float().to(self.device)[rows] for table in tables)
        return Carried(change, correction, torch.tensor([r is not None for r in responses], device=self.device)[rows])
