"""Components of treatments: which parts are knock-outs, which are drugs, known by their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations

import numpy as np


def components_of_columns(names: Sequence[AbstractSet[str]]) -> list[int]:
    """The component of each column by the names in it, numbered in their order: columns that share a name share it.

    So a column of knock-outs and a column of drugs are two components, ``drug_1`` and ``drug_2`` are one.
    """
    components = list(range(len(names)))
    for one, other in combinations(range(len(names)), 2):
        if names[one] & names[other]:
            kept, merged = sorted((components[one], components[other]))
            components = [kept if component == merged else component for component in components]
    return [sorted(set(components)).index(component) for component in components]


def component_of_name(columns: Sequence[AbstractSet[str]], components: Sequence[int]) -> dict[str, int]:
    """The component of each perturbation; of one in columns of several components, that of the first."""
    component: dict[str, int] = {}
    for names, number in zip(columns, components, strict=True):
        for name in names:
            component.setdefault(name, number)
    return component


def components_of_names(names: Sequence[str], known: Mapping[str, int], vectors: np.ndarray | None) -> np.ndarray:
    """The component ``(names,)`` int64 of each perturbation; of one that no column has, that of the nearest vector."""
    components = np.array([known.get(name, -1) for name in names], dtype=np.int64)
    has_one = np.flatnonzero(components >= 0)
    for row in np.flatnonzero(components < 0):
        assert vectors is not None  # a name comes from a column, or with a vector
        nearest = np.square(vectors[has_one] - vectors[row]).sum(axis=1).argmin()
        components[row] = components[has_one[nearest]]
    return components
