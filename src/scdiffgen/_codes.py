"""Groups of cells with equal conditions: codes, treatments, and back-off levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from scipy import sparse

Treatment = Mapping[int, float]
"""Doses by intervention id; infinite if no dose is given; empty for untreated cells."""


class Code(IntEnum):
    """Codes of entries that hold no category."""

    MISSING = -1  # not given
    ABSENT = -2  # given, without a part in this slot: a control, or a level below the end of a path


def backoff_levels(columns: np.ndarray) -> Iterator[np.ndarray]:
    """Yield back-off levels: all given conditions, then all but the last, down to none."""
    return (columns[:n_kept] for n_kept in range(len(columns), -1, -1))


def group_by_row(codes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield distinct rows of ``codes`` ``(cells, columns)`` with the positions of their cells."""
    groups, group_of = distinct_rows(codes)
    for index, group in enumerate(groups):
        yield group, np.flatnonzero(group_of == index)


def distinct_rows(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct rows of ``codes`` and the index of each row among them."""
    rows, row_of = np.unique(codes, axis=0, return_inverse=True)
    return rows, row_of.ravel()


def indicator(groups: np.ndarray, n_groups: int) -> sparse.csr_matrix:
    """Return the matrix ``(groups, cells)`` that sums cells by group."""
    return sparse.csr_matrix((np.ones(len(groups)), (groups, np.arange(len(groups)))), (n_groups, len(groups)))


def have_exactly(slots: np.ndarray, parts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Mark rows of ``slots`` ``(rows, slots)`` with exactly these interventions in any order; none is a control."""
    n_parts, n_shared = (slots >= 0).sum(1), np.isin(slots, parts).sum(1)
    is_known = (slots != Code.MISSING).any(1) | (slots.shape[1] == 0)  # without perturbations, all are controls
    return is_known & (n_parts == len(parts)) & (n_shared == len(parts))


class GroupTable(NamedTuple):
    """Contexts and treatments of cells, or of groups of cells; the parts of a treatment are in descending order."""

    cell_context: np.ndarray  # (rows, columns): codes of all conditions except interventions, or a Code
    interventions: np.ndarray  # (rows, slots): ids, or a Code; a part at dose 0 is absent
    doses: np.ndarray  # (rows, slots): doses of the interventions, infinite if not given; 0 where there is none

    @classmethod
    def of(cls, cell_context: np.ndarray, interventions: np.ndarray, doses: np.ndarray) -> GroupTable:
        """Build a table of any codes and doses: NaN is no dose, and dose 0 is no intervention."""
        doses = np.where(interventions >= 0, np.nan_to_num(doses, nan=np.inf, posinf=np.inf), 0.0)
        parts = np.where((interventions >= 0) & (doses == 0), Code.ABSENT, interventions)
        order = np.argsort(-parts, axis=1, kind="stable")
        return cls(cell_context, *(np.take_along_axis(array, order, axis=1) for array in (parts, doses)))

    @property
    def n_rows(self) -> int:
        return len(self.doses)

    @property
    def untreated(self) -> np.ndarray:
        """Whether each row is known to have no intervention ``(rows,)``."""
        return have_exactly(self.interventions, [])

    def treatment(self, row: int) -> Treatment:
        """Return the doses of a row by intervention id."""
        ids, doses = self.interventions[row].tolist(), self.doses[row].tolist()
        return {part: dose for part, dose in zip(ids, doses, strict=True) if part >= 0}

    def have(self, treatment: Treatment) -> np.ndarray:
        """Mark rows with exactly these interventions and doses ``(rows,)``."""
        matching = have_exactly(self.interventions, list(treatment))
        for part, dose in treatment.items():
            matching &= ((self.interventions == part) & (self.doses == dose)).any(1)
        return matching

    def agree(self, cell_context: np.ndarray, columns: np.ndarray | Sequence[int]) -> np.ndarray:
        """Mark rows that match a cell context in the given columns ``(rows,)``."""
        return (self.cell_context[:, columns] == cell_context[columns]).all(1)

    def distinct(self) -> tuple[GroupTable, np.ndarray, np.ndarray]:
        """Find distinct rows, the first position of each, and the index of each row among them ``(rows,)``."""
        rows = np.hstack([self.cell_context, self.interventions, self.doses])
        _, first, group_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return self.take(first), first, group_of.ravel()

    def take(self, rows: np.ndarray) -> GroupTable:
        return GroupTable(*(array[rows] for array in self))
