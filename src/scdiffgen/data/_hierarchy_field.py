"""Field of hierarchies, encoded as ids of nodes from root to leaf; a node is a path from the root."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData

from scdiffgen._messages import counted, did_you_mean, listed, plain, warn_user
from scdiffgen.conditions import ConditionSpec
from scdiffgen.data._columns_field import ColumnsField, State, entries_of, obs_column, raise_if_missing

Path = tuple[Any, ...]
NAME = "hierarchy"  # name of the condition


class HierarchyField(ColumnsField):
    """Field of paths in a hierarchy, which may end above a leaf; codes are -1 below the end."""

    counted = "nodes"
    argument = "hierarchy_keys"

    def read(self, cells: AnnData | MuData) -> list[Path]:
        """Read the path of each cell from the root; missing entries at the lower end shorten it."""
        levels = [obs_column(cells, key, self.argument) for key in self.columns]
        root = levels[0]
        place = f"`{self.argument}`, column {root.name!r}"
        raise_if_missing([root], place, "Only levels below the root may be missing.")
        paths = []
        for cell, entries in enumerate(zip(*(entries_of(level) for level in levels), strict=True)):
            depth = entries.index(None) if None in entries else len(entries)
            below = [level.name for level, entry in zip(levels, entries, strict=True) if entry is not None][depth:]
            if below:
                raise ValueError(
                    f"`{self.argument}`: cell {root.index[cell]!r} has a {below[0]!r} but no {levels[depth].name!r} "
                    "above it. Fill the levels from the root down without a gap."
                )
            paths.append(entries[:depth])
        return paths

    def fit(self, values: list[Path]) -> State:
        return {"columns": list(self.columns), "nodes": nodes_of(values)}

    def code(self, values: list[Path], state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        """Encode nodes; unseen nodes become their last known parent, with a warning; unseen roots raise."""
        nodes = _nodes(state)
        known = set(nodes)
        unseen = [node for node in nodes_of(values) if node not in known]
        unseen_roots = [node[0] for node in unseen if len(node) == 1]
        for level, column in enumerate(self.columns):
            names, new = ({node[-1] for node in group if len(node) == level + 1} for group in (nodes, unseen))
            self.raise_if_same_spelling(column, new - names, names)
        if extend:
            nodes += unseen
        elif unseen_roots:
            roots = [node[0] for node in nodes if len(node) == 1]
            raise ValueError(
                f"`{self.argument}`: {counted(len(unseen_roots), 'unseen root')} ({listed(unseen_roots)}) in column "
                f"{self.columns[0]!r}; the registered ones are {listed(roots)}.{did_you_mean(unseen_roots[0], roots)} "
                "Leave these cells out, or rename the root."
            )
        elif unseen:
            warn_user(
                f"`{self.argument}`: {counted(len(unseen), 'unseen node')} ({listed(unseen)}); these cells get the "
                "last known parent."
            )
        return encode_paths(values, nodes, len(self.columns)), {**state, "nodes": nodes}

    @classmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
        n_nodes, n_levels = len(state["nodes"]), len(state["columns"])
        return [ConditionSpec(NAME, "hierarchy", registry_key=key, n_categories=n_nodes, n_slots=n_levels)]

    @classmethod
    def request_columns(cls, name: str, state: State) -> list[str]:
        return list(state["columns"])

    @classmethod
    def code_request(cls, table: pd.DataFrame, state: State) -> np.ndarray:
        """Encode nodes of a request, in which levels may be omitted."""
        levels, nodes = list(state["columns"]), _nodes(state)
        given = {level: entries_of(table[level]) for level in levels if level in table}
        paths: list[Path] = []
        for row in range(len(table)):
            entries = {level: column[row] for level, column in given.items() if column[row] is not None}
            try:
                paths.append(find_node(entries, levels, nodes) if entries else ())
            except ValueError as error:
                raise ValueError(f"Condition {NAME!r}, row {row}: {error}") from None
        return encode_paths(paths, nodes, len(levels))


def nodes_of(paths: Sequence[Path]) -> list[Path]:
    """List all nodes on given paths, level by level; the position of a node is its id."""
    nodes = {path[: depth + 1] for path in set(paths) for depth in range(len(path))}
    return sorted(nodes, key=lambda node: (len(node), [(type(name).__name__, name) for name in node]))


def encode_paths(paths: Sequence[Path], nodes: Sequence[Path], n_levels: int) -> np.ndarray:
    """Encode paths as node ids ``(cells, n_levels)`` int64, -1 below the last known node."""
    ids = {node: code for code, node in enumerate(nodes)}
    row_of_path = {}
    for path in set(paths):
        row = [ids.get(path[: depth + 1], -1) for depth in range(len(path))]
        row_of_path[path] = row + [-1] * (n_levels - len(path))
    return np.array([row_of_path[path] for path in paths], dtype=np.int64).reshape(len(paths), n_levels)


def find_node(given: Mapping[str, Any], levels: Sequence[str], nodes: Sequence[Path]) -> Path:
    """Find the node named by at least one level; higher levels may be omitted if the node is unique."""
    positions = {levels.index(level): plain(name) for level, name in given.items()}
    depth = max(positions) + 1
    same_level = [node for node in nodes if len(node) == depth]
    matching = [node for node in same_level if all(node[level] == name for level, name in positions.items())]
    if len(matching) == 1:
        return matching[0]
    requested = ", ".join(f"{levels[level]}={name!r}" for level, name in sorted(positions.items()))
    if matching:
        raise ValueError(f"{requested} is at several nodes: {listed(matching)}. Pass {levels[0]!r}, too.")
    names = list(dict.fromkeys(node[-1] for node in same_level))
    elsewhere = [node[:-1] for node in same_level if node[-1] == positions[depth - 1]]
    if elsewhere:
        raise ValueError(
            f"There is no node {requested}; {positions[depth - 1]!r} is registered under {listed(elsewhere)}."
        )
    raise ValueError(
        f"There is no node {requested}; the registered {levels[depth - 1]!r} are {listed(names)}."
        f"{did_you_mean(positions[depth - 1], names)} Leave the level out to request its parent."
    )


def _nodes(state: State) -> list[Path]:
    return [tuple(node) for node in state["nodes"]]
