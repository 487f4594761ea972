"""Encoding of requests for cells."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from scvi.model.base import BaseModelClass

from scdiffgen._messages import warn_user
from scdiffgen.conditions import DRAWN, N_CELLS, UNSEEN, Conditions, Request, request_table
from scdiffgen.data import (
    NOT_GROUPED,
    Registry,
    add_texts,
    condition_specs,
    decode_conditions,
    encode_conditions,
    required_state,
    unseen_texts,
    warn_of_few_cells,
    write_conditions,
)

from ._checks import LibrarySize
from ._model_access import batch_name
from ._training_summary import TrainingCells


class CellRequest:
    """Request for cells: its table, condition codes, given conditions, and the table row of each cell."""

    def __init__(self, model: BaseModelClass, conditions: Request, n_cells: int | None) -> None:
        self.model, self.known = model, TrainingCells(model)
        self.table = request_table(conditions, n_cells, self.known.n_cells)
        self.row_of = np.repeat(np.arange(len(self.table)), self.table.pop(N_CELLS))
        self.encoded = encode(model, self.table)
        self.given = list(self.encoded.given_only())
        self._warn_of_extrapolation()
        warn_of_large_doses(model, self.encoded)
        self.n_alike = self.known.n_alike(self.encoded)
        is_finer = any(spec.registry_key in NOT_GROUPED for spec in self.known.specs)
        in_groups = self.known.n_alike(self.encoded, NOT_GROUPED) if is_finer else self.n_alike
        warn_of_few_cells(self.table, in_groups, model.registry)

    def _warn_of_extrapolation(self) -> None:
        """Warn of covariates outside the range of the training cells."""
        for spec in (spec for spec in self.known.specs if spec.is_number and spec.name in self.given):
            both = (conditions[spec.name] for conditions in (self.encoded, self.known.summary.conditions))
            requested, trained = (part.values[part.mask & part.given[:, None]] for part in both)
            if len(trained) and not (trained.min() <= requested.min() and requested.max() <= trained.max()):
                warn_user(f"`conditions`: values of {spec.name!r} lie outside the range of the training cells.")

    def complete(self, generator: torch.Generator, cells: slice | np.ndarray = slice(None)) -> Conditions[np.ndarray]:
        return self.known.complete(self.encoded.take(self.row_of[cells]), generator)

    def completed(
        self, generator: torch.Generator, library_size: LibrarySize = None, cells: slice | np.ndarray = slice(None)
    ) -> tuple[Conditions[np.ndarray], np.ndarray]:
        """Return complete conditions and library sizes of cells."""
        complete = self.complete(generator, cells)
        requested = self.table.iloc[self.row_of[cells]].reset_index(drop=True)
        return complete.given_only(), self.known.library_sizes(complete, generator, library_size, requested)

    def decoded(self, conditions: Conditions[np.ndarray]) -> pd.DataFrame:
        """Decode conditions to the registered columns; NaN where missing."""
        return decode_conditions(self.model.registry, conditions, self.table)

    def obs(self, complete: pd.DataFrame) -> pd.DataFrame:
        """Build the ``.obs`` of generated cells from decoded conditions, with the names of drawn conditions."""
        registry = self.model.registry
        requested = write_conditions(registry, self.table).iloc[self.row_of].reset_index(drop=True)
        typed = write_conditions(registry, complete.iloc[:1])
        obs = pd.DataFrame(index=[f"generated_{i}" for i in range(len(complete))])
        for name in dict.fromkeys([*requested, *complete]):
            column = _filled(requested.get(name), complete.get(name), typed.get(name))
            obs[name] = column.set_axis(obs.index)
        obs[UNSEEN] = (self.n_alike == 0)[self.row_of]
        drawn = self.decoded(self.encoded).isna().to_numpy(bool)[self.row_of] & complete.notna().to_numpy(bool)
        patterns, pattern_of = np.unique(drawn @ (1 << np.arange(drawn.shape[1])), return_inverse=True)
        names = [", ".join(name for i, name in enumerate(complete) if pattern >> i & 1) for pattern in patterns]
        return obs.assign(**{DRAWN: pd.Categorical.from_codes(pattern_of.ravel(), names)})


def _filled(requested: pd.Series | None, complete: pd.Series | None, typed: pd.Series | None) -> pd.Series:
    """Fill drawn values into a requested column, in the registered type."""
    values: Any = complete if requested is None else requested
    dtype = values.dtype if typed is None or requested is not None else typed.dtype
    if requested is not None and complete is not None and requested.isna().any():
        values = requested.astype(object).where(requested.notna(), complete)
    values = values.infer_objects()
    if isinstance(dtype, pd.CategoricalDtype):
        new = [value for value in values.dropna().unique() if value not in dtype.categories]
        values = values.astype(pd.CategoricalDtype([*dtype.categories, *new], dtype.ordered))
    elif values.dtype.kind in "biuf":
        return values
    entries = values.cat.categories if isinstance(values.dtype, pd.CategoricalDtype) else values
    if pd.api.types.infer_dtype(entries).startswith("mixed"):  # mixed types cannot be written to a file
        values = values.astype(object).where(values.isna(), values.astype(str))
    return values.astype("category")


def encode(model: BaseModelClass, table: pd.DataFrame) -> Conditions[np.ndarray]:
    """Encode a request; new text descriptions are embedded and registered."""
    texts = unseen_texts(model.registry, table)
    if texts:
        extend(model, add_texts(model.registry, texts))
    return encode_conditions(model.registry, table)


def warn_of_large_doses(model: BaseModelClass, encoded: Conditions[np.ndarray]) -> None:
    for name, largest in exceeded_doses(model, encoded):
        warn_user(f"`conditions` has doses of {name!r} beyond the largest registered one, {largest:g}.")


def exceeded_doses(model: BaseModelClass, encoded: Conditions[np.ndarray]) -> Iterator[tuple[str, float]]:
    """Yield each perturbation with a requested dose beyond its largest registered dose, and the largest dose."""
    for spec in (spec for spec in model.module.specs if spec.is_intervention and spec.has_values):
        ids, doses, mask, given = encoded[spec.name]
        state = required_state(model.registry, spec.registry_key)
        largest = np.asarray(state["dose_max"], doses.dtype)  # NaN for perturbations without a dose
        for part in np.unique(ids[mask & given[:, None] & (doses > largest[ids])]):
            yield state["names"][part], largest[part]


def under_batch(model: BaseModelClass, transform_batch: str | None) -> Conditions[np.ndarray]:
    """Encode the batch under which cells are evaluated; empty for their own batches."""
    batch = {} if transform_batch is None else {batch_name(model): transform_batch}
    return encode(model, request_table(batch)).given_only()


def extend(model: BaseModelClass, registry: Registry) -> None:
    """Use an extended registry, and append the feature vectors of new categories to the networks."""
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
