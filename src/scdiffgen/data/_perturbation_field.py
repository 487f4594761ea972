"""Perturbations of the cells: sets of names with their doses, as ids and doses in ``.obsm``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scvi import settings

from scdiffgen._messages import counted, did_you_mean, listed
from scdiffgen.conditions import ConditionSpec, NumberTransform, PerturbationSyntax
from scdiffgen.data._cell_treatments import (
    DOSE,
    Treatments,
    named,
    names_by_column,
    read_treatments,
    requested_treatments,
    written_as_registered,
)
from scdiffgen.data._columns_field import ColumnsField, State
from scdiffgen.data._components import component_of_name, components_of_columns, components_of_names
from scdiffgen.data._feature_vectors import features_of, read_features

NAME = "perturbation"  # of the condition if its parts stand in several columns


class PerturbedCells(NamedTuple):
    """What was done to the cells, the names that each column holds, and where feature vectors may be."""

    treatments: Treatments
    by_column: list[set[str]]
    uns: Mapping[str, Any]


class PerturbationField(ColumnsField):
    """What was done to each cell: no, one or several perturbations, each at a dose if doses are registered.

    Columns with a part each tell *components* apart, such as knock-outs and drugs: columns that share a name hold the
    same component. The codes are ids of the parts, then as many doses (0 where unused).
    """

    counted = "names"
    titles = ("Source location", "Perturbation", "Code", "Doses")

    def __init__(
        self,
        registry_key: str,
        columns: Sequence[str],
        syntax: PerturbationSyntax,
        *,
        dose_columns: Sequence[str] = (),
        dose_unit: str | None = None,
        features_key: str | None = None,
    ) -> None:
        super().__init__(registry_key, columns)
        self.syntax = syntax
        self.dose_columns = list(dose_columns)
        self.dose_unit = dose_unit
        self.features_key = features_key

    def read(self, cells: AnnData | MuData) -> PerturbedCells:
        """Perturbations and doses."""
        treatments = read_treatments(cells, self.columns, self.dose_columns, self.syntax)
        several = len(self.columns) > 1
        by_column = names_by_column(cells, self.columns, self.syntax) if several else [set(treatments.names)]
        return PerturbedCells(treatments, by_column, cells.uns)

    def fit(self, values: PerturbedCells) -> State:
        """Names in the order of their ids, their doses, components and features, and how they are written."""
        treatments, by_column, uns = values
        self._check_controls(treatments)
        names, features = self._names_and_features(treatments.names, uns)
        column_components = components_of_columns(by_column)
        known = component_of_name(by_column, column_components)
        dose_min, dose_max = treatments.dose_ranges(names)
        transform = NumberTransform.fit(treatments.doses, "log1p", self.dose_unit) if self.dose_columns else None
        return {
            "columns": self.columns,
            "dose_columns": self.dose_columns,
            "control": list(self.syntax.control),
            "separator": self.syntax.separator,
            "n_slots": treatments.n_slots,
            "names": np.array(names, dtype=object),
            "features": features,
            "column_components": column_components,
            "components": components_of_names(names, known, features),
            "dose_min": dose_min,
            "dose_max": dose_max,
            "dose_transform": None if transform is None else asdict(transform),
        }

    def code(self, values: PerturbedCells, state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        """Ids and doses."""
        known = set(state["names"])
        unseen = [name for name in values.treatments.names if name not in known]
        if unseen and not extend:
            raise ValueError(
                f"{named(self.columns)}: {counted(len(unseen), 'unseen perturbation')} ({listed(unseen)}); the "
                f"registered ones are {listed(state['names'])}.{did_you_mean(unseen[0], state['names'])} Leave these "
                "cells out, or rename the perturbation."
            )
        if unseen:
            state = self._extended(values, state, unseen)
        n_slots = max(state["n_slots"], values.treatments.n_slots)
        return values.treatments.coded(state["names"], n_slots), {**state, "n_slots": n_slots}

    @staticmethod
    def rows(state: State) -> Iterable[Sequence[str]]:
        """Names and ranges of doses."""
        source = ", ".join(f"adata.obs[{column!r}]" for column in state["columns"])
        ranges = zip(state["names"], state["dose_min"], state["dose_max"], strict=True)
        for code, (name, low, high) in enumerate(ranges):
            doses = "" if np.isnan(low) else f"{low:g} to {high:g}"
            yield source if code == 0 else "", str(name), str(code), doses

    @classmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
        """One condition."""
        return [
            ConditionSpec(
                name=_name(state),
                kind="set",
                role="intervention",
                registry_key=key,
                n_categories=len(state["names"]),
                n_slots=state["n_slots"],
                has_values=state["dose_transform"] is not None,
                transform=NumberTransform(**(state["dose_transform"] or {})),
                n_features=0 if state["features"] is None else state["features"].shape[1],
                components=tuple(map(int, state["components"])) if any(state["components"]) else (),
            )
        ]

    @classmethod
    def request_columns(cls, name: str, state: State) -> list[str]:
        """Columns of perturbations and of doses."""
        doses = [*state["dose_columns"], DOSE] if state["dose_columns"] else []
        return list(dict.fromkeys([name, *state["columns"], *doses]))

    @classmethod
    def code_request(cls, table: pd.DataFrame, state: State) -> np.ndarray:
        """Ids and doses, in as many slots as registered or as the largest combination needs."""
        treatments = requested_treatments(table, _name(state), state)
        return treatments.coded(state["names"], max(state["n_slots"], treatments.n_slots))

    @classmethod
    def as_registered(cls, table: pd.DataFrame, state: State) -> pd.DataFrame:
        """The table with doses in the registered column."""
        return written_as_registered(table, _name(state), state)

    def _names_and_features(self, names: Sequence[str], uns: Mapping[str, Any]) -> tuple[list[str], np.ndarray | None]:
        """Names of the cells and of all feature vectors, if there are any, which the names of the cells must have."""
        if self.features_key is None:
            return list(names), None
        table = read_features(uns, self.features_key, self.syntax)
        features_of(names, table, self.features_key)
        every = sorted({*names, *table.index})
        return every, features_of(every, table, self.features_key)

    def _extended(self, values: PerturbedCells, state: State, unseen: Sequence[str]) -> State:
        components = component_of_name(values.by_column, state["column_components"])
        vectors = None
        if self.features_key is not None:
            vectors = features_of(unseen, read_features(values.uns, self.features_key, self.syntax), self.features_key)
        place = f"`perturbation_features_key={self.features_key!r}`"
        extended = extended_perturbations(state, unseen, vectors, place, {name: components[name] for name in unseen})
        for bound, doses in zip(("dose_min", "dose_max"), values.treatments.dose_ranges(unseen), strict=True):
            extended[bound][-len(unseen) :] = doses
        return extended

    def _check_controls(self, treatments: Treatments) -> None:
        if not treatments.names:
            raise ValueError(
                f"{named(self.columns)}: every cell is a control ({listed(self.syntax.control)}). Leave it out."
            )
        if all(treatments.distinct):
            warnings.warn(
                f"{named(self.columns)}: no cell is a control (`control` is {listed(self.syntax.control)}). Effects "
                f"are measured against controls; if one of {listed(treatments.names)} is the control, name it in "
                f"`control`.{did_you_mean(self.syntax.control[0], treatments.names)}",
                UserWarning,
                stacklevel=settings.warnings_stacklevel,
            )


def extended_perturbations(
    state: State,
    names: Sequence[str],
    vectors: np.ndarray | None,
    place: str,
    components: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Append perturbations to a state; ids of the known ones stay, and doses of the new ones are unknown.

    Where a component is unknown, it is that of the nearest feature vector; ``place`` says where these were given.
    """
    features = state["features"]
    if vectors is not None:
        if vectors.shape[1] != features.shape[1]:
            raise ValueError(
                f"{place}: vectors of length {vectors.shape[1]}; those of the registered perturbations have length "
                f"{features.shape[1]}."
            )
        features = np.concatenate([features, vectors])
    every = [*state["names"], *names]
    known = {**dict(zip(state["names"], state["components"], strict=True)), **(components or {})}
    unknown = np.full(len(names), np.nan)
    return {
        **state,
        "names": np.array(every, dtype=object),
        "features": features,
        "components": components_of_names(every, known, features),
        "dose_min": np.concatenate([state["dose_min"], unknown]),
        "dose_max": np.concatenate([state["dose_max"], unknown]),
    }


def _name(state: State) -> str:
    return state["columns"][0] if len(state["columns"]) == 1 else NAME
