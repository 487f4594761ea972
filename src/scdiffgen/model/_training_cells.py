"""The training cells as what requests are completed from: missing conditions, and library sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.data import unseen_in_training
from scdiffgen.library import JointLibrarySizes, LibrarySizeModel

from ._checks import library_sizes
from ._training_summary import TrainingSummary

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    LibrarySize = float | ArrayLike | Callable[[pd.DataFrame, np.random.Generator], ArrayLike] | None


@dataclass(frozen=True)
class TrainingCells:
    """Conditions and library sizes that training cells had, to draw from."""

    specs: Sequence[ConditionSpec]
    effect_names: Sequence[str]
    modalities: Sequence[str]  # of a MuData
    summary: TrainingSummary

    def complete(self, conditions: Conditions[np.ndarray], generator: torch.Generator) -> Conditions[np.ndarray]:
        """Conditions of cells, where what is missing is that of training cells that are like them in the rest.

        How like each other numbers are is not known here: of cells that are given one, such as a time, the network
        tells what their identity is, and treatments alone are drawn, which it hardly tells from few molecules.
        """
        if all(condition.given.all() for condition in conditions.values()):
            return conditions
        rng = np.random.default_rng([generator.initial_seed(), 1])
        rows = self._size_model(min_cells=1).rows_like(conditions.codes(self.specs), rng)
        numbers = [conditions[spec.name].given for spec in self.specs if spec.is_number]
        by_category = ~np.any([np.zeros(conditions.n_cells, dtype=bool), *numbers], axis=0)
        everywhere = np.ones(conditions.n_cells, dtype=bool)
        which = {name: everywhere if name in self.effect_names else by_category for name in conditions}
        return conditions.complete_from(self.summary.conditions, rows, which)

    def library_sizes(
        self,
        conditions: Conditions[np.ndarray],
        generator: torch.Generator,
        requested: Any = None,
        rows: pd.DataFrame | None = None,
    ) -> np.ndarray:
        """Library sizes of cells to draw, ``(cells, modalities)`` if there are several modalities.

        A function that is ``requested`` gets the ``rows`` of the request.
        """
        rng, names = np.random.default_rng(generator.initial_seed()), self.modalities
        by_name = {} if requested is None or not names else sizes_by_name(requested, names)
        if len(names) == 1:
            requested = by_name.get(names[0])
        if requested is None:
            return self.size_model().sample(conditions.codes(self.specs), rng)
        if len(names) < 2:
            return _resolved(requested, rows, conditions.n_cells, rng)
        sizes = self.library_sizes(conditions, generator)
        for name, given in by_name.items():
            sizes[:, names.index(name)] = _resolved(given, rows, conditions.n_cells, rng)
        return sizes

    def size_model(self) -> LibrarySizeModel | JointLibrarySizes:
        """Library sizes by conditions, of one modality or of several."""
        model = self._size_model()
        if len(self.modalities) < 2:
            return model
        return JointLibrarySizes(model.library, model.codes, model.min_cells, model.n_interventions)

    def unseen(self, requested: Conditions[np.ndarray]) -> np.ndarray:
        """Which rows ask for what no training cell had all together ``(rows,)``."""
        return unseen_in_training(self.specs, requested, self.summary.conditions).combination

    def _size_model(self, min_cells: int = LibrarySizeModel.min_cells) -> LibrarySizeModel:
        conditions = self.summary.conditions
        n_interventions = sum(conditions[spec.name].ids.shape[1] for spec in self.specs if spec.is_intervention)
        return LibrarySizeModel(self.summary.library, conditions.codes(self.specs), min_cells, n_interventions)


def sizes_by_name(library_size: Any, modalities: Sequence[str]) -> Mapping[str, Any]:
    """Library sizes by modality; of one modality they need no name."""
    if isinstance(library_size, Mapping):
        unknown = [name for name in library_size if name not in modalities]
        if unknown:
            raise ValueError(f"`library_size` names {unknown[0]!r}: the modalities to generate are {list(modalities)}.")
        return library_size
    if len(modalities) > 1:
        raise ValueError(
            f"`library_size` is {library_size!r}, but there are several modalities: pass the sizes of some of them by "
            f"name, {{{modalities[0]!r}: ...}}; the others get theirs as by default."
        )
    return {modalities[0]: library_size}


def _resolved(requested: Any, rows: pd.DataFrame | None, n_cells: int, rng: np.random.Generator) -> np.ndarray:
    return library_sizes(requested(rows, rng) if callable(requested) else requested, n_cells)
