"""Places in a hierarchy: a node is the path that leads to it, so that a name under two parents is two nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scdiffgen._messages import did_you_mean, listed, plain
from scdiffgen.data._columns import entries_of, raise_if_missing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Path = tuple[Any, ...]


def paths_of(levels: Sequence[pd.Series], argument: str) -> list[Path]:
    """The path of each cell, as far as it is known.

    Parameters
    ----------
    levels
        A column for each level, the root first; missing entries at the lower end shorten the path.
    argument
        The argument named in messages.

    Returns
    -------
    (cells,) paths.

    Raises
    ------
    ValueError
        If a root is missing, or a level above a given one.

    Examples
    --------
    >>> paths_of([pd.Series(["blood", "lung"]), pd.Series(["B cell", None])], "hierarchy_keys")
    [('blood', 'B cell'), ('lung',)]
    """
    root = levels[0]
    raise_if_missing(
        root.isna().to_numpy(dtype=bool),
        root.index,
        f"`{argument}`, column {root.name!r}",
        "Only levels below the root may be missing.",
    )
    paths = []
    for cell, entries in enumerate(zip(*(entries_of(level) for level in levels), strict=True)):
        depth = entries.index(None) if None in entries else len(entries)
        if any(entry is not None for entry in entries[depth:]):
            below = next(
                level.name for level, entry in zip(levels[depth:], entries[depth:], strict=True) if entry is not None
            )
            raise ValueError(
                f"`{argument}`: cell {root.index[cell]!r} has a {below!r} but no {levels[depth].name!r} above it. Give "
                "the levels from the root down without a gap."
            )
        paths.append(entries[:depth])
    return paths


def nodes_of(paths: Sequence[Path]) -> list[Path]:
    """All nodes on the way to some places, level by level.

    Parameters
    ----------
    paths
        Paths.

    Returns
    -------
    (nodes,) paths; the position of a node is its id.

    Examples
    --------
    >>> nodes_of([("lung", "B"), ("blood", "B"), ("lung",)])
    [('blood',), ('lung',), ('blood', 'B'), ('lung', 'B')]
    """
    nodes = {path[: depth + 1] for path in set(paths) for depth in range(len(path))}
    return sorted(nodes, key=lambda node: (len(node), [(type(name).__name__, name) for name in node]))


def encode_paths(paths: Sequence[Path], nodes: Sequence[Path], n_levels: int) -> np.ndarray:
    """Ids of the nodes on each path.

    Parameters
    ----------
    paths
        (cells,) paths.
    nodes
        (nodes,) known paths in the order of their ids.
    n_levels
        Number of levels of the hierarchy.

    Returns
    -------
    (cells, n_levels) int64; -1 below the last known node.

    Examples
    --------
    >>> encode_paths([("lung", "B"), ("lung", "NK")], [("lung",), ("lung", "B")], n_levels=2)
    array([[ 0,  1],
           [ 0, -1]])
    """
    ids = {node: code for code, node in enumerate(nodes)}
    row_of_path = {}
    for path in set(paths):
        row = [ids.get(path[: depth + 1], -1) for depth in range(len(path))]
        row_of_path[path] = row + [-1] * (n_levels - len(path))
    return np.array([row_of_path[path] for path in paths], dtype=np.int64).reshape(len(paths), n_levels)


def find_node(told: Mapping[str, Any], levels: Sequence[str], nodes: Sequence[Path]) -> Path:
    """The node that a user means, who may leave out levels above it when they are clear.

    Parameters
    ----------
    told
        Names by level, at least one.
    levels
        The levels, the root first.
    nodes
        Known paths.

    Returns
    -------
    The node.

    Raises
    ------
    ValueError
        If there is no such node, or several.

    Examples
    --------
    >>> find_node({"type": "NK"}, ["tissue", "type"], [("lung",), ("lung", "NK"), ("blood", "B")])
    ('lung', 'NK')
    """
    positions = {levels.index(level): plain(name) for level, name in told.items()}
    depth = max(positions) + 1
    same_level = [node for node in nodes if len(node) == depth]
    found = [node for node in same_level if all(node[level] == name for level, name in positions.items())]
    if len(found) == 1:
        return found[0]
    asked = ", ".join(f"{levels[level]}={name!r}" for level, name in sorted(positions.items()))
    if found:
        raise ValueError(f"{asked} is in several places: {listed(found)}. Give {levels[0]!r} too.")
    names = list(dict.fromkeys(node[-1] for node in same_level))
    elsewhere = [node[:-1] for node in same_level if node[-1] == positions[depth - 1]]
    if elsewhere:
        raise ValueError(
            f"There is no place {asked}; {positions[depth - 1]!r} is registered under {listed(elsewhere)}."
        )
    raise ValueError(
        f"There is no place {asked}; the registered {levels[depth - 1]!r} are {listed(names)}."
        f"{did_you_mean(positions[depth - 1], names)} Leave the level out to stay at its parent."
    )
