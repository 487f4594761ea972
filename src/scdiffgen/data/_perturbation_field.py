"""Field of perturbations: sets of names with doses, encoded as ids and doses in ``.obsm``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scipy.sparse.csgraph import connected_components

from scdiffgen._messages import counted, did_you_mean, listed, warn_user
from scdiffgen.conditions import ConditionSpec, NumberTransform, PerturbationSyntax
from scdiffgen.data._columns_field import ColumnsField, State
from scdiffgen.data._perturbation_input import (
    DOSE,
    Treatments,
    named,
    names_by_column,
    read_features,
    read_treatments,
    requested_treatments,
    written_as_registered,
)

NAME = "perturbation"  # name of the condition if its parts are in several columns

# treatments of the cells, names in each column, and feature vectors
PerturbedCells = tuple[Treatments, list[set[str]], Mapping[str, Any]]


class PerturbationField(ColumnsField):
    """Field of sets of perturbations: codes are ids of the parts, followed by their doses (0 if unused)."""

    counted = "names"

    def __init__(
        self,
        registry_key: str,
        columns: Sequence[str],  # one part each; columns with a common name have the same component
        syntax: PerturbationSyntax,
        dose_columns: Sequence[str] = (),
        *,
        dose_unit: str | None = None,
        features_key: str | None = None,
    ) -> None:
        super().__init__(registry_key, columns)
        self.syntax = syntax
        self.dose_columns = list(dose_columns)
        self.dose_unit = dose_unit
        self.features_key = features_key

    def read(self, cells: AnnData | MuData) -> PerturbedCells:
        treatments = read_treatments(cells, self.columns, self.dose_columns, self.syntax)
        several = len(self.columns) > 1
        by_column = names_by_column(cells, self.columns, self.syntax) if several else [set(treatments.names)]
        return treatments, by_column, cells.uns

    def fit(self, values: PerturbedCells) -> State:
        """Fit names in the order of their ids, with doses, components, features and spelling."""
        treatments, by_column, uns = values
        if not treatments.names:
            raise ValueError(
                f"{named(self.columns)}: all cells are controls ({listed(self.syntax.control)}). Leave it out."
            )
        if all(treatments.distinct):
            warn_user(
                f"{named(self.columns)}: no cell is a control (`control` is {listed(self.syntax.control)}). Effects "
                f"are measured against controls; if one of {listed(treatments.names)} is the control, name it in "
                f"`control`.{did_you_mean(self.syntax.control[0], treatments.names)}"
            )
        names, features = treatments.names, None
        _check_names(treatments, names, self.columns, self.syntax)
        if self.features_key is not None:
            table = read_features(uns, self.features_key, self.syntax, names, treatments)
            names = sorted(table.index)
            features = table.loc[names].to_numpy(copy=True)
        column_components = components_of_columns(by_column)
        known = component_of_name(by_column, column_components)
        dose_min, dose_max = treatments.dose_ranges(names)
        doses = np.repeat(treatments.parts["dose"].to_numpy(np.float64), treatments.parts["n_cells"])
        transform = NumberTransform.fit(doses, "log1p", self.dose_unit) if self.dose_columns else None
        return {
            "columns": self.columns,
            "dose_columns": self.dose_columns,
            "control": list(self.syntax.control),
            "separator": self.syntax.separator,
            "spellings": dict(treatments.spellings),
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
        treatments, by_column, uns = values
        known = set(state["names"])
        unseen = [name for name in treatments.names if name not in known]
        if unseen and not extend:
            raise ValueError(
                f"{named(self.columns)}: {counted(len(unseen), 'unseen perturbation')} ({listed(unseen)}); the "
                f"registered ones are {listed(state['names'])}.{did_you_mean(unseen[0], state['names'])} Leave these "
                f"cells out, or rename the perturbation.{treatments.advice_on(unseen, self.syntax)}"
            )
        if unseen:
            _check_names(treatments, unseen, self.columns, self.syntax)
            components = component_of_name(by_column, state["column_components"])
            vectors = None
            if self.features_key is not None:
                table = read_features(uns, self.features_key, self.syntax, unseen, treatments)
                vectors = table.loc[unseen].to_numpy(copy=True)
            place = f"`perturbation_features_key={self.features_key!r}`"
            ranges = treatments.dose_ranges(unseen)
            state = extended_perturbations(state, unseen, vectors, place, components, ranges)
        if extend:
            state = {**state, "spellings": {**treatments.spellings, **state["spellings"]}}
        n_slots = max(state["n_slots"], treatments.n_slots)
        return treatments.coded(state["names"], n_slots), {**state, "n_slots": n_slots}

    @classmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
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
        doses = [*state["dose_columns"], DOSE] if state["dose_columns"] else []
        return list(dict.fromkeys([name, *state["columns"], *doses]))

    @classmethod
    def code_request(cls, table: pd.DataFrame, state: State) -> np.ndarray:
        treatments = requested_treatments(table, _name(state), state)
        return treatments.coded(state["names"], max(state["n_slots"], treatments.n_slots))

    @classmethod
    def as_registered(cls, table: pd.DataFrame, state: State) -> pd.DataFrame:
        return written_as_registered(table, _name(state), state)


def _check_names(
    treatments: Treatments, names: Sequence[str], columns: Sequence[str], syntax: PerturbationSyntax
) -> None:
    """Raise if a new name is a missing value; warn of names that may be parts of one name with the separator."""
    missing = [name for name in names if name.casefold() in ColumnsField.missing_as_text]
    if missing:
        raise ValueError(
            f"{named(columns)}: {listed(missing)} is a missing value written as text. If such cells are controls, pass "
            f"`control={[*syntax.control, missing[0]]}`; otherwise leave these cells out, or rename the value."
        )
    sets = {frozenset(treatment) for treatment in treatments.distinct if treatment}
    n_sets = Counter(name for parts in sets for name in parts)
    once = {name for name in names if n_sets[name] == 1}
    pairs = [
        sorted(parts) for parts in sets if len(parts) == 2 and parts & once and not any({n} in sets for n in parts)
    ]
    if pairs and len(columns) == 1:
        written, pieces = sorted(map(syntax.separator.join, pairs)), sorted(once.intersection(chain(*pairs)))
        warn_user(
            f"{named(columns)}: parts that occur with only one partner, and neither occurs alone: {listed(pieces)} "
            f"(in {listed(written)}).{syntax.advice(*written)}"
        )


def extended_perturbations(
    state: State,
    names: Sequence[str],
    vectors: np.ndarray | None,
    place: str,  # source of the vectors, for messages
    components: Mapping[str, int] | None = None,
    dose_ranges: tuple[np.ndarray, np.ndarray] | None = None,
) -> State:
    """Append perturbations to a state; unknown components are taken from the nearest feature vectors."""
    features = state["features"]
    if vectors is not None:
        if vectors.shape[1] != features.shape[1]:
            raise ValueError(
                f"{place}: vectors have length {vectors.shape[1]}; pass vectors of length {features.shape[1]}, as for "
                "the registered perturbations."
            )
        features = np.concatenate([features, vectors])
    every = [*state["names"], *names]
    known = {**(components or {}), **dict(zip(state["names"], state["components"], strict=True))}
    lowest, highest = dose_ranges or [np.full(len(names), np.nan)] * 2
    return {
        **state,
        "names": np.array(every, dtype=object),
        "features": features,
        "components": components_of_names(every, known, features),
        "dose_min": np.concatenate([state["dose_min"], lowest]),
        "dose_max": np.concatenate([state["dose_max"], highest]),
    }


def components_of_columns(names: Sequence[AbstractSet[str]]) -> list[int]:
    """Assign components to columns; columns with a common name (``drug_1``, ``drug_2``) have one component."""
    shared = np.array([[bool(one & other) for other in names] for one in names])
    return connected_components(shared, directed=False)[1].tolist()


def component_of_name(columns: Sequence[AbstractSet[str]], components: Sequence[int]) -> dict[str, int]:
    """Assign components to perturbations by the first column with the name."""
    last_first = reversed(list(zip(columns, components, strict=True)))
    return {name: component for names, component in last_first for name in names}


def components_of_names(names: Sequence[str], known: Mapping[str, int], vectors: np.ndarray | None) -> np.ndarray:
    """Return components ``(names,)`` int64; unmeasured perturbations get the one of the nearest feature vector."""
    components = np.array([known.get(name, -1) for name in names], dtype=np.int64)
    has_one = np.flatnonzero(components >= 0)
    for row in np.flatnonzero(components < 0):
        assert vectors is not None  # a name comes from a column or with a vector
        nearest = np.square(vectors[has_one] - vectors[row]).sum(axis=1).argmin()
        components[row] = components[has_one[nearest]]
    return components


def _name(state: State) -> str:
    return state["columns"][0] if len(state["columns"]) == 1 else NAME
