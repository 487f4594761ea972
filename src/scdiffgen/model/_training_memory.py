"""What is remembered of the training cells: library sizes, conditions, and the responses that they show."""

from __future__ import annotations

import numpy as np

from scdiffgen.conditions import Conditions
from scdiffgen.module import ThinningModule
from scdiffgen.responses import Pseudobulks, ResponseModel, ResponseTransfer, pseudobulks

from ._cells import Cells
from ._extension import Extension


class TrainingMemory(Extension):
    """Models that know of the cells that they were trained on."""

    def _training_conditions(self) -> Conditions[np.ndarray]:
        return Conditions.from_plain(self.training_conditions_, len(self.training_library_))

    def _remember_training_cells(self, indices: np.ndarray) -> None:
        """Keep library sizes and conditions of the cells that were trained on."""
        cells = Cells(self, None, indices, None, None)
        batches = [(self.module.library(counts).cpu().numpy(), conditions.numpy()) for counts, conditions in cells]
        self.training_library_ = np.concatenate([library for library, _ in batches])
        self.training_conditions_ = Conditions.concatenate([conditions for _, conditions in batches]).to_plain()

    def _remember_responses(self, indices: np.ndarray) -> None:
        """Keep pseudobulks of the training cells, if treatments are such as can be transferred.

        They are perturbations, which are effects, beside conditions that are categories, of one modality that is
        thinned.
        """
        self.training_responses_: dict[str, np.ndarray] = {}
        specs, names = self.module.specs, self.module.denoiser.effect_names
        numbers = any(spec.is_number for spec in specs)
        if not isinstance(self.module, ThinningModule) or self._modalities() or len(names) != 1 or numbers:
            return
        bulks = pseudobulks(self.module, Cells(self, None, indices, None, None), self._training_conditions(), specs)
        if bulks is not None:
            reference = getattr(self, "reference_responses_", {})  # of a query model
            self.training_responses_ = bulks.concatenate(Pseudobulks(**reference) if reference else None).to_plain()

    def _responses(self) -> ResponseModel | None:
        """The responses of the training cells; none if nothing was kept, or genes came since."""
        remembered = getattr(self, "training_responses_", {})
        if not remembered or remembered["counts"].shape[1] != self.module.n_vars:
            return None
        features = self.module.denoiser.effect_of(self.module.denoiser.effect_names[0]).features
        transfer = ResponseTransfer(Pseudobulks(**remembered), None if features is None else features.cpu().numpy())
        return ResponseModel(transfer, self.module.specs)
