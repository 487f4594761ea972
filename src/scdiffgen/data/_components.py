"""Kinds of perturbations: which parts of a treatment are knock-outs, which are drugs, told by their columns."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet


def components_of_columns(names: Sequence[AbstractSet[str]]) -> list[int]:
    """Number the kinds of perturbations: columns that share a name hold the same kind.

    So a column of knock-outs and a column of drugs are two components, ``drug_1`` and ``drug_2`` are one.

    Parameters
    ----------
    names
        The perturbations in each column.

    Returns
    -------
    The component of each column, numbered in the order of the columns.

    Examples
    --------
    >>> components_of_columns([{"KLF1"}, {"drugA", "drugB"}, {"drugB"}])
    [0, 1, 1]
    """
    components = list(range(len(names)))
    for one, other in combinations(range(len(names)), 2):
        if names[one] & names[other]:
            kept, merged = sorted((components[one], components[other]))
            components = [kept if component == merged else component for component in components]
    return [sorted(set(components)).index(component) for component in components]


def component_of_name(columns: Sequence[AbstractSet[str]], components: Sequence[int]) -> dict[str, int]:
    """The component of each perturbation; of one in columns of several components, that of the first.

    Parameters
    ----------
    columns
        The perturbations in each column.
    components
        The component of each column.

    Returns
    -------
    Components by name.

    Examples
    --------
    >>> component_of_name([{"KLF1"}, {"drugA"}], [0, 1])["drugA"]
    1
    """
    component: dict[str, int] = {}
    for names, number in zip(columns, components, strict=True):
        for name in names:
            component.setdefault(name, number)
    return component


def components_of_names(names: Sequence[str], known: Mapping[str, int], vectors: np.ndarray | None) -> np.ndarray:
    """The component of each perturbation; of one that no column has, that of the nearest by feature vector.

    Parameters
    ----------
    names
        The perturbations.
    known
        Components by name.
    vectors
        (names, features); None if all components are known.

    Returns
    -------
    (names,) int64 components.

    Examples
    --------
    >>> vectors = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 3.0]])
    >>> components_of_names(["KLF1", "drugA", "drugB"], {"KLF1": 0, "drugA": 1}, vectors)
    array([0, 1, 1])
    """
    components = np.array([known.get(name, -1) for name in names], dtype=np.int64)
    has_one = np.flatnonzero(components >= 0)
    for row in np.flatnonzero(components < 0):
        assert vectors is not None  # a name comes from a column, or with a vector
        nearest = np.square(vectors[has_one] - vectors[row]).sum(axis=1).argmin()
        components[row] = components[has_one[nearest]]
    return components
