"""Warnings about small groups, at registration and generation, and about the design of screens."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scvi.data import AnnDataManager

from scdiffgen._messages import LONGEST_LIST, counted, listed, warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ConditionSpec
from scdiffgen.data._perturbations import DOSE
from scdiffgen.data._registered import (
    Registry,
    categories_of_condition,
    condition_columns,
    condition_specs,
    field_state,
    group_codes,
    registered_conditions,
    required_state,
)

FEWEST_CELLS = 20  # minimum number of cells of a group, also for pseudobulks
NOT_GROUPED = (REGISTRY_KEYS.BATCH, REGISTRY_KEYS.TEXT)


def warn_of_small_groups(manager: AnnDataManager) -> None:
    """Warn once of small groups of registered cells (labels, hierarchy, covariates and treatments)."""
    specs = [spec for spec in condition_specs(manager) if not spec.is_number and spec.registry_key not in NOT_GROUPED]
    if not specs:
        return
    codes, obs = group_codes(specs, registered_conditions(manager)), manager.adata.obs
    n_cells = codes.groupby(list(codes), sort=False).size().to_numpy()
    small = np.flatnonzero(n_cells < FEWEST_CELLS)
    if not len(small):
        return
    small = small[np.argsort(n_cells[small], kind="stable")]
    first = np.flatnonzero(~codes.duplicated())[small]
    warn_user(
        f"{counted(len(small), 'group')} of fewer than {FEWEST_CELLS} cells: "
        f"{in_words(obs.iloc[first][_compared(manager, obs)], n_cells[small])}. Little can be learned from so few, and "
        "labels with fewer than 5 cells are generated like similar labels: merge groups, or check generated cells."
    )


def warn_of_screen_design(manager: AnnDataManager) -> None:
    """Warn once per condition whose categories hold no control cells beside the cells of a treatment."""
    specs = condition_specs(manager)
    perturbation = next((spec for spec in specs if spec.is_intervention), None)
    if perturbation is None:
        return
    known = registered_conditions(manager)
    codes = group_codes([perturbation], known)
    treatments = codes[~codes.duplicated()].to_numpy()
    treatment = codes.groupby(list(codes), sort=False).ngroup().to_numpy()  # (cells,)
    names, separator = (required_state(manager, perturbation.registry_key)[key] for key in ("names", "separator"))
    is_control, warned = (treatments < 0).all(axis=1), set()
    for spec, column, level, categories in _columns_of_categories(manager, specs):
        condition = known[spec.name]
        has_category = condition.mask[:, level]  # paths may end above the level
        has_cells = np.zeros((len(treatments), len(categories)), dtype=bool)
        has_cells[treatment[has_category], condition.ids[has_category, level]] = True
        has_controls = has_cells[is_control].any(axis=0)
        confounded = ~is_control & has_cells.any(axis=1) & ~(has_cells & has_controls).any(axis=1)
        if spec.name in warned or not has_controls.any() or not confounded.any():
            continue
        warned.add(spec.name)
        named = listed(sorted(separator.join(sorted(names[row[row >= 0]])) for row in treatments[confounded]))
        what, effect = repr(column), f"effect of {column!r}"
        way_out = "Add control cells of the same categories, if there are any; leaving out the column does not help."
        if spec.registry_key == REGISTRY_KEYS.BATCH:
            what, effect = "batch", "batch effect"
            way_out = "Register another column as batch only if its batches hold both treated and control cells."
        warn_user(
            f"Treatment and {what} are confounded: no {column!r} holds both control cells and cells of {named}. "
            f"Treated cells are in {listed(categories[has_cells[confounded].any(axis=0)])}, control cells in "
            f"{listed(categories[has_controls])}. The {effect} cannot be separated from the response, so predictions "
            f"contain both. {way_out}"
        )


def _columns_of_categories(
    manager: AnnDataManager, specs: Sequence[ConditionSpec]
) -> Iterator[tuple[ConditionSpec, str, int, np.ndarray]]:
    """Yield batch, covariates and hierarchy levels: condition, column, slot and categories in the order of ids."""
    for spec in specs:
        if spec.is_path:
            columns, nodes = (required_state(manager, spec.registry_key)[key] for key in ("columns", "nodes"))
            paths = np.array([" > ".join(map(str, node)) for node in nodes], dtype=object)
            yield from ((spec, column, level, paths) for level, column in enumerate(columns))
        elif spec.registry_key in (REGISTRY_KEYS.BATCH, REGISTRY_KEYS.CATEGORICAL_COVARIATES):
            yield spec, spec.name, 0, categories_of_condition(manager, spec)


def warn_of_few_cells(table: pd.DataFrame, n_cells: np.ndarray, registry: Registry) -> None:
    """Warn once of requested groups with few training cells, but at least one (``n_cells`` over all batches)."""
    groups = table[_compared(registry, table)]
    if groups.empty:
        return
    few = np.flatnonzero((n_cells > 0) & (n_cells < FEWEST_CELLS) & ~groups.duplicated())
    if len(few):
        warn_user(
            f"Cells are generated of {counted(len(few), 'group')} of fewer than {FEWEST_CELLS} training cells: "
            f"{in_words(groups.iloc[few], n_cells[few])}. They may resemble cells of other groups."
        )


def _compared(registry: Registry | AnnDataManager, table: pd.DataFrame) -> list[str]:
    """Select columns that define groups: no numbers, doses, batches or descriptions."""
    doses = [DOSE, *(field_state(registry, REGISTRY_KEYS.PERTURBATION) or {}).get("dose_columns", [])]
    specs = [spec for spec in condition_specs(registry) if not spec.is_number and spec.registry_key not in NOT_GROUPED]
    columns = dict.fromkeys(column for spec in specs for column in condition_columns(registry, spec))
    return [column for column in columns if column in table and column not in doses]


def in_words(table: pd.DataFrame, n_cells: Sequence[int] | np.ndarray) -> str:
    """Describe at most ten groups by their values and numbers of cells."""
    rows = zip(table.head(LONGEST_LIST).to_dict("records"), n_cells, strict=False)
    shown = [
        f"{' with '.join(f'{name} {value!r}' for name, value in row.items() if pd.notna(value))} ({counted(n, 'cell')})"
        for row, n in rows
    ]
    return "; ".join(shown) + (f"; ... ({len(table)} in all)" if len(table) > LONGEST_LIST else "")
