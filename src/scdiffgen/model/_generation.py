"""Generating cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData

from scdiffgen.conditions import Conditions, request_table
from scdiffgen.data import unseen_in_training, write_conditions
from scdiffgen.library import JointLibrarySizes, LibrarySizeModel

from ._cells import INFERENCE_BATCH_SIZE, Cells, generator_from
from ._checks import check_positive_integer, is_finite_number, library_sizes
from ._mudata import new_cells
from ._sampler import Sampler, whole_counts
from ._training_memory import TrainingMemory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

N_STEPS = 32


class Generation(TrainingMemory):
    """Cells that were never measured."""

    def generate(
        self,
        conditions: Mapping[str, Any] | pd.DataFrame | None = None,
        n_cells: int | None = None,
        *,
        library_size: float | ArrayLike | Callable[[pd.DataFrame, np.random.Generator], ArrayLike] | None = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int = N_STEPS,
        batch_size: int = INFERENCE_BATCH_SIZE,
        seed: int | None = None,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Generate cells under given conditions.

        Cells of an identity that was never measured with a perturbation are grown untreated and moved as cells of other
        identities respond, where these were measured with it (:meth:`predict_perturbation`).

        Parameters
        ----------
        conditions
            A value for each condition, by the name under which it was registered; or a table with a column for each
            condition, a row for each kind of cell and a column ``"n_cells"``; or ``None``. What is left out
            is that of random training cells which have the same categories in the rest; where a number is told, such as
            an age, it is what the network takes for likely (but for perturbations).
        n_cells
            Number of cells of each row of ``conditions``.
        library_size
            Molecules a cell: a number, an array of one number a cell, or a function of the table of conditions (a row
            a cell) and a NumPy generator. By default they are drawn like those of the training cells under the same
            conditions. Of a MuData, such sizes by modality; those left out are drawn.
        guidance_scale
            How much stronger than in the data the conditions are followed; 1 is as in the data, larger values give
            cells more typical of their conditions and less diverse. One number for all conditions together, also those
            that were left out, or one for each that is named.
        n_steps
            Steps, each an evaluation of the network; more are slower and better. 8 to 64 is the useful range.
        batch_size
            Cells generated at a time.
        seed
            Same seed, same cells. By default the randomness follows ``scvi.settings.seed``.
        silent
            Whether no progress bar is shown.

        Returns
        -------
        New cells: integer counts (CSR) in ``.X``; the genes of the training cells; in ``.obs`` the conditions, and
        ``unseen_in_training``, whether no training cell had all of them together (categories are compared,
        perturbations among them; doses and other numbers are not). A MuData if the model was registered with
        :meth:`setup_mudata`.

        Raises
        ------
        ValueError
            If a condition or category is not registered, or a number is out of range.
        RuntimeError
            If the model is not trained.

        Examples
        --------
        >>> cells = model.generate({"cell_type": "CD14+ Monocyte"}, n_cells=3, n_steps=4, seed=0)
        >>> cells.obs["cell_type"].tolist()
        ['CD14+ Monocyte', 'CD14+ Monocyte', 'CD14+ Monocyte']
        """
        self._require_training()
        table = request_table(conditions, n_cells)
        row_of = np.repeat(np.arange(len(table)), table.pop("n_cells"))
        encoded = self._encode(table)
        sampler = Sampler(self.module, self._responses(), guidance_scale, n_steps, batch_size)
        sampler.check(encoded.given_only())
        generator = generator_from(seed, self.device)
        rows = table.loc[row_of].reset_index(drop=True)
        complete = self._complete(encoded.take(row_of), generator)
        sizes = self._library_sizes(complete, rows, library_size, generator)
        progress = None if silent else "Generating"
        cells = sampler.sample(complete.given_only(), sizes, generator, progress)
        return new_cells(cells, self._describe(table, encoded, row_of), self._gene_names())

    def deepen(
        self,
        adata: AnnData | None = None,
        factor: float = 2.0,
        *,
        indices: Sequence[int] | None = None,
        n_steps: int = N_STEPS,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Sequence cells deeper, virtually: keep every molecule and add more of the same cell.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        factor
            Library size of the result over that of the cell, at least 1.
        indices
            Cells to take, by default all.
        n_steps, batch_size, seed, silent
            As in :meth:`generate`.

        Returns
        -------
        The cells with integer counts (CSR) in ``.X``; names and ``.obs`` as they were.

        Raises
        ------
        ValueError
            If the process of the model is not thinning, ``factor`` is below 1, ``adata`` lacks genes or holds
            categories that are not registered, ``indices`` chooses no cell or one that is not there, or another number
            is out of range.
        KeyError
            If ``adata`` lacks a column that was registered.
        TypeError
            If ``adata`` is of another type.
        RuntimeError
            If the model is not trained.

        Examples
        --------
        >>> deeper = model.deepen(adata, factor=1.5, indices=[0, 1], n_steps=4, seed=0)
        >>> (deeper.X < adata.layers["counts"][:2]).nnz
        0
        """
        self._require_training()
        module = self._thinning("deepen")
        if not (is_finite_number(factor) and factor >= 1):
            raise ValueError(f"`factor` is {factor!r}: pass a number of at least 1.")
        check_positive_integer("n_steps", n_steps)
        cells = Cells(self, adata, indices, batch_size, None if silent else "Deepening")
        generator = generator_from(seed, self.device)
        deeper = []
        for counts, conditions in cells:
            library = (module.library(counts) * factor).round()
            grown = module.generate(conditions, library, start=counts.to_dense(), n_steps=n_steps, generator=generator)
            deeper.append(whole_counts(grown))
        return new_cells(cells.in_order(deeper), cells.obs(), self._gene_names())

    def _complete(self, conditions: Conditions[np.ndarray], generator: torch.Generator) -> Conditions[np.ndarray]:
        """Conditions of cells, where what is missing is that of training cells that are like them in the rest.

        How like each other numbers are is not known here: of cells that are given one, such as a time, the network says
        what their identity is, and treatments alone are drawn, which it hardly tells from few molecules.
        """
        if all(condition.given.all() for condition in conditions.values()):
            return conditions
        specs = self.module.specs
        known = replace(self._training_cells(), min_cells=1)
        rng = np.random.default_rng([generator.initial_seed(), 1])
        rows = known.rows_like(conditions.codes(specs), rng)
        numbers = [conditions[spec.name].given for spec in specs if spec.is_number]
        by_category = ~np.any([np.zeros(conditions.n_cells, dtype=bool), *numbers], axis=0)
        which = {
            name: np.ones(conditions.n_cells, dtype=bool) if name in self.module.denoiser.effect_names else by_category
            for name in conditions
        }
        return conditions.complete_from(self._training_conditions(), rows, which)

    def _library_sizes(
        self,
        conditions: Conditions[np.ndarray],
        rows: pd.DataFrame,
        library_size: float | ArrayLike | Callable[[pd.DataFrame, np.random.Generator], ArrayLike] | None,
        generator: torch.Generator,
    ) -> np.ndarray:
        rng = np.random.default_rng(generator.initial_seed())
        if library_size is None:
            return self._library_model().sample(conditions.codes(self.module.specs), rng)
        return library_sizes(library_size(rows, rng) if callable(library_size) else library_size, len(rows))

    def _library_model(self) -> LibrarySizeModel | JointLibrarySizes:
        return self._training_cells()

    def _training_cells(self) -> LibrarySizeModel:
        """Library sizes of the training cells by their conditions, of one modality or of several."""
        codes = self._training_conditions().codes(self.module.specs)
        slots = [self.training_conditions_[s.name][0].shape[1] for s in self.module.specs if s.is_intervention]
        return LibrarySizeModel(self.training_library_, codes, n_interventions=sum(slots))

    def _describe(self, table: pd.DataFrame, encoded: Conditions[np.ndarray], row_of: np.ndarray) -> pd.DataFrame:
        """The ``.obs`` of generated cells: their conditions, and whether training cells had all of them together.

        Parameters
        ----------
        table, encoded
            The conditions that were asked for.
        row_of
            Row of every cell in it.
        """
        obs = write_conditions(self.registry, table).copy()
        for name, values in obs.items():
            if values.dtype.kind not in "biuf":
                mixed = pd.api.types.infer_dtype(values).startswith("mixed")  # which cannot be written to a file
                obs[name] = (values.astype(str).where(values.notna()) if mixed else values).astype("category")
        unseen = unseen_in_training(self.module.specs, encoded, self._training_conditions()) if encoded else None
        obs = obs.assign(unseen_in_training=False if unseen is None else unseen.combination)
        return obs.iloc[row_of].set_axis([f"generated_{i}" for i in range(len(row_of))])
