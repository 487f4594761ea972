"""Perturbations: sets of names with doses in columns, requests and feature vectors, and the field that encodes them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scipy.sparse.csgraph import connected_components

from scdiffgen._messages import LONGEST_LIST, and_others, counted, did_you_mean, listed, unknown_name, warn_user
from scdiffgen._perturbation_syntax import DosesByName, PerturbationSyntax
from scdiffgen.conditions import Code, ConditionSpec, NumberTransform
from scdiffgen.data._fields import ColumnsField, State, entries_of, obs_column, raise_if_missing

DOSE = "dose"  # accepted in requests even if the registered column has another name
LARGEST_FEATURE = 1e15  # sums of squares of larger features overflow in single precision
NAME = "perturbation"  # name of the condition if its parts are in several columns


class Treatments(NamedTuple):
    """Distinct treatments, and the treatment of each cell."""

    distinct: Sequence[DosesByName | None]  # None if missing, which requests allow
    codes: np.ndarray  # (cells,) int64, indices into `distinct`
    spellings: Mapping[str, tuple] = {}  # column entries of the first cell by sorted name

    @property
    def parts(self) -> pd.DataFrame:
        """Tabulate name, dose and number of cells of each part of each distinct treatment."""
        n_cells = np.bincount(self.codes, minlength=len(self.distinct))
        pairs = zip(self.distinct, n_cells, strict=True)
        rows = [(name, dose, n) for treatment, n in pairs for name, dose in (treatment or {}).items()]
        return pd.DataFrame(rows, columns=["name", "dose", "n_cells"])

    @property
    def names(self) -> list[str]:
        """Return all occurring parts, sorted."""
        return sorted(set(self.parts["name"]))

    @property
    def n_slots(self) -> int:
        return max((len(treatment) for treatment in self.distinct if treatment), default=0)

    def advice_on(self, names: Sequence[str], syntax: PerturbationSyntax) -> str:
        """Explain how to write names that contain the separator, if some of these are in combinations."""
        return syntax.advice(*(text for text in self.spellings if any(name in text for name in names[:LONGEST_LIST])))

    def dose_ranges(self, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return smallest and largest dose of parts, NaN without a dose."""
        ranges = self.parts.groupby("name")["dose"].agg(["min", "max"]).reindex(names)
        return ranges["min"].to_numpy(copy=True), ranges["max"].to_numpy(copy=True)

    def coded(self, names: Sequence[str], n_slots: int) -> np.ndarray:
        """Encode ids, or a :class:`Code`, followed by doses (0 for none): ``(cells, 2 * n_slots)`` float32."""
        ids = {name: code for code, name in enumerate(names)}
        rows = np.zeros((len(self.distinct), 2 * n_slots), dtype=np.float32)
        for row, treatment in zip(rows, self.distinct, strict=True):
            row[:n_slots] = Code.MISSING if treatment is None else Code.ABSENT
            for slot, (name, dose) in enumerate((treatment or {}).items()):
                row[slot] = ids[name]
                row[n_slots + slot] = 0.0 if math.isnan(dose) else dose
        return rows[self.codes]


def read_treatments(
    cells: AnnData | MuData, columns: Sequence[str], dose_columns: Sequence[str], syntax: PerturbationSyntax
) -> Treatments:
    """Read one column with entries such as ``"A+B"``, or several columns with one part or a missing entry each."""
    entries = [obs_column(cells, column, "perturbation_key") for column in columns]
    raise_if_missing(entries, named(columns), f"If they are controls, write {syntax.control[0]!r} there.")
    doses = [obs_column(cells, column, "dose_key") for column in dose_columns]
    rows = list(zip(*(entries_of(column) for column in [*entries, *doses]), strict=True))
    code_of_row = {row: code for code, row in enumerate(dict.fromkeys(rows))}
    distinct: list[DosesByName] = []
    spellings: dict[str, tuple] = {}
    for row in code_of_row:
        names, dose_entries = row[: len(columns)], row[len(columns) :]
        try:
            treatment = _treatment(names, dose_entries or [None] * len(names), syntax) or {}
            without = [name for name, dose in treatment.items() if math.isnan(dose)]
            if dose_columns and without:
                raise ValueError(
                    f"{without[0]!r} has no dose. If {without[0]!r} is the control, pass `control={without[0]!r}`; "
                    "otherwise give its dose (0 is a dose), or leave out `dose_key`"
                )
        except ValueError as error:
            shown, at_dose = (f"{' and '.join(map(repr, each)):.150}" for each in (names, dose_entries))
            where = f"in cell {cells.obs_names[rows.index(row)]!r}{and_others(rows.count(row) - 1, 'cell')}"
            entry = f"{shown} at dose {at_dose}" if dose_entries else shown
            raise ValueError(f"{named(columns)}: {entry} {where}: {_with_advice(error, names, syntax)}") from None
        distinct.append(treatment)
        if treatment:
            spellings.setdefault(syntax.name(treatment), tuple(map(_stripped, names)))
    return Treatments(distinct, np.array([code_of_row[row] for row in rows], dtype=np.int64), spellings)


def _with_advice(error: ValueError, names: Sequence[Any], syntax: PerturbationSyntax) -> str:
    """Describe the error of an entry, with advice if the separator may be the cause."""
    said = str(error).removesuffix(".") + "."
    return said if "perturbation_sep" in said else said + syntax.advice(*names)


def names_by_column(cells: AnnData | MuData, columns: Sequence[str], syntax: PerturbationSyntax) -> list[set[str]]:
    """Return the perturbations in each column, without controls."""
    entries = [obs_column(cells, column, "perturbation_key").dropna().unique() for column in columns]
    return [{str(entry).strip() for entry in column} - {"", *syntax.control} for column in entries]


def requested_treatments(table: pd.DataFrame, name: str, state: State) -> Treatments:
    """Read the requested treatments of the condition ``name``, and check them against the registered ones."""
    syntax = syntax_of(state)
    ids = {known: code for code, known in enumerate(state["names"])}
    treatments = []
    for row, (names, doses) in enumerate(_requested_rows(table, name, state)):
        try:
            treatment = _treatment(names, doses, syntax)
            for part, dose in (treatment or {}).items():
                _check_part(part, dose, ids, state)
        except ValueError as error:
            raise ValueError(f"Condition {name!r}, row {row}: {_with_advice(error, names, syntax)}") from None
        treatments.append(treatment)
    return Treatments(treatments, np.arange(len(treatments)))


def written_as_registered(table: pd.DataFrame, name: str, state: State) -> pd.DataFrame:
    """Spell treatments and doses of a request by :func:`spelled`; plain doses of the same parts are kept."""
    syntax, (names, doses) = syntax_of(state), _requested_columns(table, name, state)
    rows = []
    for asked, asked_doses in _requested_rows(table, name, state):
        stripped = [_stripped(entry) for entry in asked]
        row = spelled(_treatment(asked, asked_doses, syntax), stripped, len(doses), state)
        several = isinstance(row[-1], str) and row[:-1] == stripped and isinstance(asked_doses[-1], str)
        is_plain = several and not set(asked_doses[-1]) - set(f"0123456789. {syntax.separator}")
        rows.append([*stripped, *asked_doses] if is_plain else row)
    for column, entries in zip([*names, *doses], zip(*rows, strict=True), strict=True):
        written = pd.Series(entries, index=table.index, dtype=object)
        if column in table and entries_of(table[column]) != entries_of(written):
            table = table.assign(**{column: written.infer_objects()})
    if len(state["dose_columns"]) == 1 and DOSE in table:
        table = table.rename(columns={DOSE: state["dose_columns"][0]})
    return table


def spelled(treatment: DosesByName | None, asked: Sequence[Any], n_dose_columns: int, state: State) -> list[Any]:
    """Spell a treatment as the first registered cell with it; unseen treatments are sorted or kept in columns."""
    syntax, names = syntax_of(state), list(asked)
    if treatment is None:
        return [math.nan] * (len(names) + n_dose_columns)
    if not treatment:
        return [*names, *[0.0] * n_dose_columns]
    known = state["spellings"].get(syntax.name(treatment), ())
    if len(known) == len(names):
        names = [math.nan if entry is None else entry for entry in known]
    elif len(names) == 1:
        names = [syntax.name(treatment)]
    parts = [str(part) for part in (syntax.split(names[0]) if len(names) == 1 else names)]
    if n_dose_columns == len(names) > 1:
        return [*names, *(treatment.get(part, 0.0 if part in syntax.control else math.nan) for part in parts)]
    doses: list[Any] = [treatment[part] for part in parts if part in treatment]
    if n_dose_columns == 1 and len(doses) > 1:
        doses = [syntax.separator.join(map(str, doses))]
    return [*names, *[*doses, *[math.nan] * n_dose_columns][:n_dose_columns]]


def _stripped(entry: object) -> object:
    return entry.strip() if isinstance(entry, str) else entry


def syntax_of(state: State) -> PerturbationSyntax:
    return PerturbationSyntax(tuple(state["control"]), state["separator"])


def named(columns: Sequence[str]) -> str:
    """Name the argument ``perturbation_key`` with its columns."""
    return f"`perturbation_key={(columns[0] if len(columns) == 1 else list(columns))!r}`"


def _treatment(names: Sequence[Any], doses: Sequence[Any], syntax: PerturbationSyntax) -> DosesByName | None:
    """Parse the treatment of a row; ``None`` if missing."""
    given_names = [name for name in names if name is not None]
    given_doses = [dose for dose in doses if dose is not None]
    if not given_names:
        if given_doses:
            raise ValueError(f"dose {given_doses[0]!r} has no perturbation; pass the perturbation, or no dose.")
        return None
    if len(doses) == len(names) > 1:
        return syntax.combine(names, doses)
    text = syntax.separator.join(map(str, given_names))
    dose = syntax.separator.join(map(str, given_doses)) if len(given_doses) > 1 else next(iter(given_doses), None)
    return syntax.parse(text, dose)


def _requested_rows(table: pd.DataFrame, name: str, state: State) -> list[tuple[list[Any], list[Any]]]:
    """Return perturbation and dose entries of each row: one each, or one per registered column."""
    names, doses = _requested_columns(table, name, state)
    columns = [entries_of(table[column]) if column in table else [None] * len(table) for column in [*names, *doses]]
    return [(list(row[: len(names)]), list(row[len(names) :])) for row in zip(*columns, strict=True)]


def _requested_columns(table: pd.DataFrame, name: str, state: State) -> tuple[list[str], list[str]]:
    doses = list(state["dose_columns"])
    doses = _choose(table, [doses, [DOSE]], "dose") if doses and DOSE not in doses else doses
    return _choose(table, [[name], list(state["columns"])], "perturbation"), doses


def _choose(table: pd.DataFrame, alternatives: list[list[str]], what: str) -> list[str]:
    used = [columns for columns in alternatives if any(column in table for column in columns)]
    if len(used) > 1 and used[0] != used[1]:
        raise ValueError(f"The {what} is given twice, in {listed(used[0])} and in {listed(used[1])}. Pass one of them.")
    return used[0] if used else alternatives[0]


def _check_part(name: str, dose: float, ids: Mapping[str, int], state: State) -> None:
    if name not in ids:
        way_out = (
            "Only perturbations with a feature vector can be requested."
            if state["features"] is not None
            else "For perturbations that no cell has, register feature vectors (`perturbation_features_key`)."
        )
        raise ValueError(
            f"{name!r} was not registered; the registered perturbations are {listed(ids)}."
            f"{did_you_mean(name, ids)} {way_out}"
        )
    if state["dose_columns"] and math.isnan(dose):
        unit = f" {state['dose_transform']['unit']}" if state["dose_transform"]["unit"] else ""
        whose, low, high = name, state["dose_min"][ids[name]], state["dose_max"][ids[name]]
        if math.isnan(low):
            whose, low, high = "the perturbations", np.nanmin(state["dose_min"]), np.nanmax(state["dose_max"])
        raise ValueError(
            f"{name!r} has no dose. Pass one in {DOSE!r}; "
            f"the registered doses of {whose} are {low:g} to {high:g}{unit}."
        )


def read_features(
    uns: Mapping[str, Any], key: str, syntax: PerturbationSyntax, needed: Sequence[str], treatments: Treatments
) -> pd.DataFrame:
    """Read the feature vectors in ``adata.uns`` as :func:`feature_table`; raise if a ``needed`` one is missing."""
    argument = "perturbation_features_key"
    if key not in uns:
        raise KeyError(f"`{argument}`: {unknown_name('key of `adata.uns`', key, list(uns))}")
    features = feature_table(uns[key], f"`{argument}={key!r}`", syntax)
    missing = [name for name in needed if name not in features.index]
    if missing:
        raise ValueError(
            f"`{argument}={key!r}` has no vector of {missing[0]!r}{and_others(len(missing) - 1, 'perturbation')} "
            f"({listed(missing)}).{did_you_mean(missing[0], features.index)} Every perturbation in the data needs one."
            f"{treatments.advice_on(missing, syntax)}"
        )
    return features


def feature_table(stored: object, place: str, syntax: PerturbationSyntax) -> pd.DataFrame:
    """Read feature vectors ``(perturbations, features)`` float32 by name, without controls; ``place`` is for errors."""
    if not isinstance(stored, pd.DataFrame | Mapping):
        raise ValueError(
            f"{place} is of type {type(stored).__name__}: pass a mapping from names to vectors, or a DataFrame."
        )
    rows = zip(stored.index, stored.to_numpy(), strict=True) if isinstance(stored, pd.DataFrame) else stored.items()
    vectors: dict[str, np.ndarray] = {}
    for name, vector in rows:
        stripped = str(name).strip()
        if stripped in vectors:
            raise ValueError(f"{place} holds two vectors of {stripped!r}: pass one per perturbation.")
        if stripped not in syntax.control:
            vectors[stripped] = _vector(vector, f"{place}: the vector of {name!r}")
    if not vectors:
        raise ValueError(f"{place} holds no vector of a perturbation: pass one per perturbation.")
    combined = [name for name in vectors if syntax.separator in name]
    if combined:
        raise ValueError(
            f"{place} holds vectors of combinations ({listed(combined)}). Pass one per part; "
            f"combinations use the vectors of their parts.{syntax.advice(*combined)}"
        )
    first, *_ = vectors
    for name, vector in vectors.items():
        if len(vector) != len(vectors[first]) or not len(vector):
            raise ValueError(
                f"{place}: the vector of {name!r} has length {len(vector)}, that of {first!r} has "
                f"{len(vectors[first])}. All must have the same length, of at least 1."
            )
    return pd.DataFrame(np.stack(list(vectors.values())), index=list(vectors))


def _vector(given: object, whose: str) -> np.ndarray:
    try:
        values = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"{whose} is not numeric.") from None
    if values.ndim != 1:
        raise ValueError(f"{whose} must have one dimension, got shape {values.shape}.")
    bad = ~(np.abs(values) <= LARGEST_FEATURE)
    if bad.any():
        raise ValueError(
            f"{whose} holds {values[bad][0]:g}; features are finite and at most {LARGEST_FEATURE:g}: scale them."
        )
    return values


# treatments of the cells, names in each column, and feature vectors
PerturbedCells = tuple[Treatments, list[set[str]], Mapping[str, Any]]


class PerturbationField(ColumnsField[PerturbedCells]):
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
        unseen = sorted(set(treatments.names) - set(state["names"]))
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
            place, ranges = f"`perturbation_features_key={self.features_key!r}`", treatments.dose_ranges(unseen)
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
