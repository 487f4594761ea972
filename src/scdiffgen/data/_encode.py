"""A user's table of conditions as parts, by the codes that were registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scdiffgen._messages import did_you_mean, listed, unknown_name
from scdiffgen.conditions import N_CELLS, Condition, Conditions, ConditionSpec
from scdiffgen.data._categories import look_up
from scdiffgen.data._columns import entries_of, numbers
from scdiffgen.data._encode_perturbations import encode_perturbations, perturbation_columns, write_perturbations
from scdiffgen.data._hierarchy import Path, encode_paths, find_node
from scdiffgen.data._registry import required_state
from scdiffgen.data._specs import categories_of_condition, condition_specs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scvi.data import AnnDataManager

    from scdiffgen.data._registry import Registry


def encode_conditions(registry: Registry | AnnDataManager, table: pd.DataFrame) -> Conditions[np.ndarray]:
    """Code what a user asks for by what was registered.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.
    table
        A row for each kind of cell, a column for each condition, by the names under which they were registered. A
        column that is missing, and an entry that is NaN or None, is not told. A column ``"n_cells"`` is not looked at.

    Returns
    -------
    NumPy arrays of each registered condition by its name, a row for each row of the table.

    Raises
    ------
    ValueError
        If a column is no condition, or an entry was not registered.

    Examples
    --------
    >>> import anndata as ad
    >>> from scdiffgen.data import Manager, fields_for
    >>> obs = pd.DataFrame({"type": ["T", "B", "T", "B"]}, index=["c0", "c1", "c2", "c3"])
    >>> manager = Manager(fields=fields_for(labels_key="type"))
    >>> manager.register_fields(ad.AnnData(np.ones((4, 1)), obs=obs))
    >>> parts = encode_conditions(manager, pd.DataFrame({"type": ["T", None]}))["type"]
    >>> parts.ids.ravel().tolist(), parts.given.tolist()
    ([1, 0], [True, False])
    """
    specs = condition_specs(registry)
    columns = {spec.name: condition_columns(registry, spec) for spec in specs}
    known = list(dict.fromkeys(column for names in columns.values() for column in names))
    for column in table.columns:
        if column not in known and column != N_CELLS:
            way_out = f" Numbers of cells stand in a column {N_CELLS!r}." if column == "count" else ""
            raise ValueError(unknown_name("registered condition", column, known) + way_out)
    by_name = {spec.name: _encode(registry, spec, table, columns[spec.name]) for spec in specs}
    return Conditions(by_name, len(table))


def write_conditions(registry: Registry | AnnDataManager, table: pd.DataFrame) -> pd.DataFrame:
    """Write conditions that were asked for as a registration would read them from ``.obs``.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.
    table
        As in `encode_conditions`, which reads it.

    Returns
    -------
    The same table, but that doses stand in the registered column, and those given by name in the order of the
    perturbations.
    """
    for spec in condition_specs(registry):
        if spec.kind == "set":
            table = write_perturbations(table, spec, required_state(registry, spec.registry_key))
    return table


def condition_columns(registry: Registry | AnnDataManager, spec: ConditionSpec) -> list[str]:
    """Columns of a user's table that tell a condition.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.
    spec
        The condition.

    Returns
    -------
    Names of columns.

    Examples
    --------
    >>> condition_columns({}, ConditionSpec("cell_type", "category"))
    ['cell_type']
    """
    if spec.kind == "set":
        return perturbation_columns(required_state(registry, spec.registry_key), spec.name)
    if spec.kind == "hierarchy":
        return list(required_state(registry, spec.registry_key)["columns"])
    return [spec.name]


def _encode(
    registry: Registry | AnnDataManager, spec: ConditionSpec, table: pd.DataFrame, columns: list[str]
) -> Condition:
    if spec.kind == "set":
        return encode_perturbations(table, spec, required_state(registry, spec.registry_key))
    if spec.kind == "hierarchy":
        return _encode_places(table, spec, columns, required_state(registry, spec.registry_key)["nodes"])
    column = table[spec.name] if spec.name in table else pd.Series(np.nan, index=table.index, name=spec.name)
    if spec.kind == "number":
        return _encode_numbers(column)
    return _encode_categories(column, categories_of_condition(registry, spec))


def _encode_categories(column: pd.Series, categories: np.ndarray) -> Condition:
    told = column.notna().to_numpy(dtype=bool)
    ids = np.zeros((len(column), 1), dtype=np.int64)
    if told.any():
        ids[told, 0], unseen = look_up(column[told], categories)
        if len(unseen):
            raise ValueError(
                f"Condition {column.name!r}: {listed(unseen)} was not registered; the registered categories are "
                f"{listed(categories)}.{did_you_mean(unseen[0], categories)}"
            )
    return Condition(ids, np.zeros(ids.shape, dtype=np.float32), told[:, None].copy(), told)


def _encode_numbers(column: pd.Series) -> Condition:
    values = numbers(column, "conditions").astype(np.float32)[:, None]
    mask = ~np.isnan(values)
    return Condition(
        np.zeros(values.shape, dtype=np.int64), np.where(mask, values, 0).astype(np.float32), mask, mask[:, 0].copy()
    )


def _encode_places(table: pd.DataFrame, spec: ConditionSpec, levels: list[str], nodes: Sequence[Path]) -> Condition:
    nodes = [tuple(node) for node in nodes]
    told = {level: entries_of(table[level]) for level in levels if level in table}
    paths: list[Path] = []
    for row in range(len(table)):
        entries = {level: column[row] for level, column in told.items() if column[row] is not None}
        try:
            paths.append(find_node(entries, levels, nodes) if entries else ())
        except ValueError as error:
            raise ValueError(f"Condition {spec.name!r}, row {row}: {error}") from None
    ids = encode_paths(paths, nodes, spec.n_slots)
    mask = ids >= 0
    return Condition(np.maximum(ids, 0), np.zeros(ids.shape, dtype=np.float32), mask, mask[:, 0].copy())
