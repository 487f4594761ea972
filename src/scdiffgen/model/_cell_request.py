"""Cells that a user asks for, in the codes of the model; descriptions and perturbations may enter by their vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scvi.model.base import BaseModelClass

from scdiffgen.conditions import N_CELLS, Conditions, Request, request_table
from scdiffgen.data import (
    Registry,
    add_texts,
    condition_specs,
    encode_conditions,
    required_state,
    unseen_texts,
    write_conditions,
)
from scdiffgen.io import digest_of

from ._model_access import training_cells


@dataclass(frozen=True)
class CellRequest:
    """A table with a row for each kind of cell, and the row of every cell."""

    model: BaseModelClass
    table: pd.DataFrame
    encoded: Conditions[np.ndarray]
    row_of: np.ndarray

    @classmethod
    def of(cls, model: BaseModelClass, conditions: Request, n_cells: int | None) -> CellRequest:
        """Read and code what is asked for."""
        table = request_table(conditions, n_cells)
        row_of = np.repeat(np.arange(len(table)), table.pop(N_CELLS))
        return cls(model, table, encode(model, table), row_of)

    @property
    def given(self) -> list[str]:
        """Names of the conditions that some cell is given."""
        return list(self.encoded.given_only())

    def digest(self) -> str:
        """What tells the request from others."""
        return digest_of(self.table.assign(**{N_CELLS: np.bincount(self.row_of)}))

    def completed(
        self, generator: torch.Generator, library_size: Any = None, cells: slice | np.ndarray = slice(None)
    ) -> tuple[Conditions[np.ndarray], np.ndarray]:
        """Conditions and library sizes of some of the cells, what is missing drawn from the training cells."""
        rows, known = self.row_of[cells], training_cells(self.model)
        complete = known.complete(self.encoded.take(rows), generator)
        requested = self.table.iloc[rows].reset_index(drop=True)
        return complete.given_only(), known.library_sizes(complete, generator, library_size, requested)

    def obs(self) -> pd.DataFrame:
        """The ``.obs`` of the cells: their conditions, and whether training cells had all of them together."""
        obs = write_conditions(self.model.registry, self.table).copy()
        for name, values in obs.items():
            if values.dtype.kind not in "biuf":
                mixed = pd.api.types.infer_dtype(values).startswith("mixed")  # which cannot be written to a file
                obs[name] = (values.astype(str).where(values.notna()) if mixed else values).astype("category")
        unseen = training_cells(self.model).unseen(self.encoded) if self.encoded else False
        obs = obs.assign(unseen_in_training=unseen)
        return obs.iloc[self.row_of].set_axis([f"generated_{i}" for i in range(len(self.row_of))])


def encode(model: BaseModelClass, table: pd.DataFrame) -> Conditions[np.ndarray]:
    """Code a request; descriptions that were never seen are embedded and become known."""
    texts = unseen_texts(model.registry, table)
    if texts:
        extend(model, add_texts(model.registry, texts))
    return encode_conditions(model.registry, table)


def extend(model: BaseModelClass, registry: Registry) -> None:
    """Take an extended registry: vectors of its new categories enter the networks."""
    specs = condition_specs(registry)
    for known, spec in zip(model.module.specs, specs, strict=True):
        vectors = required_state(registry, spec.registry_key).get("features")
        if vectors is not None and spec.n_categories > known.n_categories:
            new = torch.from_numpy(vectors[known.n_categories :])
            model.module.extend_features(spec.name, new, spec.components[known.n_categories :])
    model.module.specs = tuple(specs)
    model.registry_ = registry
    if model.adata_manager is not None:  # other models of the same cells keep theirs
        model._adata_manager = model.adata_manager.with_registry(registry)
        model._register_manager_for_instance(model._adata_manager)
