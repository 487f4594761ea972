"""A user's perturbations and doses as parts, by the names that were registered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from scdiffgen._messages import did_you_mean, listed
from scdiffgen.conditions import Condition, ConditionSpec, NumberTransform, PerturbationSyntax, Treatment
from scdiffgen.data._columns import entries_of
from scdiffgen.data._number_field import unpack_transforms

State = Mapping[str, Any]

DOSE = "dose"  # also understood where the registered column has another name


def perturbation_columns(state: State, name: str) -> list[str]:
    """Columns of a user's table that tell perturbations and doses.

    Parameters
    ----------
    state
        The registered field's state.
    name
        Name of the condition.

    Returns
    -------
    Names of columns.

    Examples
    --------
    >>> perturbation_columns({"columns": ["guide"], "dose_columns": ["dose_uM"]}, "guide")
    ['guide', 'dose_uM', 'dose']
    """
    doses = [*state["dose_columns"], DOSE] if state["dose_columns"] else []
    return list(dict.fromkeys([name, *state["columns"], *doses]))


def encode_perturbations(table: pd.DataFrame, spec: ConditionSpec, state: State) -> Condition:
    """Code the perturbations that a user asks for.

    Parameters
    ----------
    table
        A row for each kind of cell. Perturbations stand in the column of the condition's name, as ``"A+B"``, or in the
        registered columns, a part each; doses in the registered columns or in ``"dose"``, as a number, ``"0.5+1.0"`` or
        a mapping from names to numbers.
    spec
        The condition.
    state
        The registered field's state.

    Returns
    -------
    NumPy arrays, with as many slots as registered or as the largest combination needs.

    Raises
    ------
    ValueError
        If an entry cannot be read or was not registered, a dose lacks its perturbation, or a perturbation its dose.
    """
    ids = {name: code for code, name in enumerate(state["names"])}
    treatments: list[Treatment | None] = []
    for row, told in enumerate(_rows(table, spec.name, state)):
        try:
            treatment = _read(*told, state)
            if treatment is not None:
                _check(treatment, ids, state)
        except ValueError as error:
            raise ValueError(f"Condition {spec.name!r}, row {row}: {error}") from None
        treatments.append(treatment)
    n_slots = max([spec.n_slots, *(len(treatment) for treatment in treatments if treatment)])
    parts: Condition[np.ndarray] = Condition(
        ids=np.zeros((len(table), n_slots), dtype=np.int64),
        values=np.zeros((len(table), n_slots), dtype=np.float32),
        mask=np.zeros((len(table), n_slots), dtype=bool),
        given=np.array([treatment is not None for treatment in treatments], dtype=bool),
    )
    for row, treatment in enumerate(treatments):
        for slot, (name, dose) in enumerate((treatment or {}).items()):
            parts.ids[row, slot] = ids[name]
            parts.values[row, slot] = 0.0 if math.isnan(dose) else dose
            parts.mask[row, slot] = True
    return parts


def write_perturbations(table: pd.DataFrame, spec: ConditionSpec, state: State) -> pd.DataFrame:
    """Write doses as a registration reads them: in the registered column, and doses by name in the order of the names.

    Parameters
    ----------
    table, spec, state
        As in `encode_perturbations`, which reads this table.

    Returns
    -------
    The table, changed where it has to be.
    """
    syntax = PerturbationSyntax(tuple(state["control"]), state["separator"])
    entries = [[str(name) for name in names if name is not None] for names, _ in _rows(table, spec.name, state)]
    for column in dict.fromkeys([*state["dose_columns"], DOSE]):
        if column in table:
            written = [
                syntax.align(syntax.separator.join(names), dose) if isinstance(dose, Mapping) else dose
                for names, dose in zip(entries, table[column], strict=True)
            ]
            table = table.assign(**{column: pd.Series(written, index=table.index, dtype=table[column].dtype)})
    if len(state["dose_columns"]) == 1 and DOSE in table:
        table = table.rename(columns={DOSE: state["dose_columns"][0]})
    return table


def _rows(table: pd.DataFrame, name: str, state: State) -> list[tuple[list[Any], list[Any]]]:
    """Perturbation entries and dose entries of each row: one each, or one a registered column."""
    names = _choose(table, [[name], list(state["columns"])], "perturbation")
    doses = _choose(table, [list(state["dose_columns"]), [DOSE]], "dose") if state["dose_columns"] else []
    columns = [entries_of(table[column]) if column in table else [None] * len(table) for column in [*names, *doses]]
    return [(list(row[: len(names)]), list(row[len(names) :])) for row in zip(*columns, strict=True)]


def _choose(table: pd.DataFrame, alternatives: list[list[str]], what: str) -> list[str]:
    used = [columns for columns in alternatives if any(column in table for column in columns)]
    if len(used) > 1 and used[0] != used[1]:
        raise ValueError(f"The {what} is given twice, in {listed(used[0])} and in {listed(used[1])}. Give one of them.")
    return used[0] if used else alternatives[0]


def _read(names: list[Any], doses: list[Any], state: State) -> Treatment | None:
    syntax = PerturbationSyntax(tuple(state["control"]), state["separator"])
    if all(name is None for name in names):
        given = [dose for dose in doses if dose is not None]
        if given:
            raise ValueError(f"dose {given[0]!r} is given without a perturbation; name it, or leave the dose out.")
        return None
    if len(names) == 1:
        return syntax.parse(names[0], _joined(doses, state["separator"]))
    if len(doses) == len(names):
        return syntax.combine(names, doses)
    together = state["separator"].join(str(name) for name in names if name is not None)
    return syntax.parse(together, doses[0] if doses else None)


def _joined(doses: list[Any], separator: str) -> Any:
    given = [dose for dose in doses if dose is not None]
    return separator.join(map(str, given)) if len(given) > 1 else (given or [None])[0]


def _check(treatment: Treatment, ids: Mapping[str, int], state: State) -> None:
    for name, dose in treatment.items():
        if name not in ids:
            way_out = (
                "Only perturbations with a feature vector can be asked for."
                if state["features"] is not None
                else "For perturbations that no cell has, register feature vectors (`perturbation_features_key`)."
            )
            raise ValueError(
                f"{name!r} was not registered; the registered perturbations are {listed(ids)}."
                f"{did_you_mean(name, ids)} {way_out}"
            )
        if state["dose_columns"] and math.isnan(dose):
            raise ValueError(
                f"{name!r} has no dose. Give one in {DOSE!r}; {_registered_doses(name, ids[name], state)}."
            )


def _registered_doses(name: str, code: int, state: State) -> str:
    transform: NumberTransform = unpack_transforms(state["dose_transform"])[0]
    unit = f" {transform.unit}" if transform.unit else ""
    low, high = state["dose_min"][code], state["dose_max"][code]
    if math.isnan(low):
        low, high, name = np.nanmin(state["dose_min"]), np.nanmax(state["dose_max"]), "the perturbations"
    return f"the registered doses of {name} are {low:g} to {high:g}{unit}"
