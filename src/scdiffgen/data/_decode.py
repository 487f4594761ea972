"""Decode condition codes to the registered columns."""

import math

import numpy as np
import pandas as pd
from scvi.data import AnnDataManager

from scdiffgen.conditions import Condition, Conditions
from scdiffgen.data._columns_field import State
from scdiffgen.data._perturbation_input import DOSE, spelled
from scdiffgen.data._registered import Registry, categories_of_condition, condition_specs, required_state


def decode_conditions(
    registry: Registry | AnnDataManager, conditions: Conditions[np.ndarray], table: pd.DataFrame
) -> pd.DataFrame:
    """Decode conditions to the registered columns, one row per cell; NaN where missing, dose 0 for a control."""
    columns: dict[str, np.ndarray] = {}
    for spec in condition_specs(registry):
        state, nothing = required_state(registry, spec.registry_key), np.zeros((conditions.n_cells, spec.n_slots), int)
        missing = Condition(nothing, nothing, nothing.astype(bool), np.zeros(conditions.n_cells, bool))
        condition = conditions.get(spec.name, missing)
        present = condition.mask & condition.given[:, None]
        if spec.kind == "category":
            columns[spec.name] = _chosen(categories_of_condition(registry, spec), condition.ids[:, 0], present[:, 0])
        elif spec.kind == "number":
            columns[spec.name] = np.where(present[:, 0], _shortest(condition.values[:, 0]), np.nan)
        elif spec.is_path:
            names = np.array([node[-1] for node in state["nodes"]], dtype=object)
            for level, column in enumerate(state["columns"]):
                columns[column] = _chosen(names, condition.ids[:, level], present[:, level])
        else:
            by_name = len(state["columns"]) == 1 or spec.name in table
            doses = list(state["dose_columns"])
            doses = [DOSE] if len(doses) > 1 and DOSE in table and DOSE not in doses else doses
            columns |= _treatment_columns(condition, state, [spec.name] if by_name else list(state["columns"]), doses)
    return pd.DataFrame(columns, index=range(conditions.n_cells))


def _chosen(names: np.ndarray, ids: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Look up the names of ids; NaN if there is none."""
    entries = np.full(len(ids), np.nan, dtype=object)
    entries[present] = names.astype(object)[ids[present]]
    return entries


def _shortest(values: np.ndarray) -> np.ndarray:
    """Convert single-precision numbers to the shortest double, such as 0.1."""
    distinct, places = np.unique(values.astype(np.float32), return_inverse=True)
    return np.array([float(str(value)) for value in distinct])[places.ravel()]


def _treatment_columns(
    condition: Condition[np.ndarray], state: State, columns: list[str], dose_columns: list[str]
) -> dict[str, np.ndarray]:
    """Decode columns of perturbations and doses, in the most frequent registered spelling."""
    ids, doses, mask, given = condition
    rows = pd.DataFrame(np.hstack([np.where(mask, ids, -1), np.where(mask, doses, 0.0), given[:, None]]))
    which = rows.groupby(list(rows), sort=False, dropna=False).ngroup().to_numpy()
    first, names = np.unique(which, return_index=True)[1], [*columns, *dose_columns]
    entries = np.full((len(first), len(names)), np.nan, dtype=object)
    for row, cell in enumerate(first):
        if given[cell]:
            parts = zip(state["names"][ids[cell][mask[cell]]], _shortest(doses[cell][mask[cell]]), strict=True)
            treatment = dict(sorted(parts))
            unseen = [*treatment, *[math.nan] * len(columns)] if treatment else [state["control"][0]] * len(columns)
            entries[row] = spelled(treatment, unseen[: len(columns)], len(dose_columns), state)
    return dict(zip(names, entries[which].T, strict=True))
