"""Groups of cells that share codes of their conditions, and coarser and coarser ones to fall back on."""

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np


class Code(IntEnum):
    """What stands in place of a category where there is none."""

    MISSING = -1  # not given
    ABSENT = -2  # given, and no part in this slot: of a control, or below the end of a path


def backoff_levels(columns: np.ndarray) -> Iterator[np.ndarray]:
    """All of the conditions that are given, then without the last, and so on until none is left."""
    return (columns[:n_kept] for n_kept in range(len(columns), -1, -1))


def group_by_row(codes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Distinct rows of ``codes`` ``(cells, columns)``, and the cells of each."""
    groups, group_of = distinct_rows(codes)
    for index, group in enumerate(groups):
        yield group, np.flatnonzero(group_of == index)


def distinct_rows(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of ``codes``, and the position of each row among them."""
    rows, row_of = np.unique(codes, axis=0, return_inverse=True)
    return rows, row_of.ravel()


def have_exactly(slots: np.ndarray, parts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Which rows of codes of interventions ``(rows, slots)`` are these ones, in any order; no parts is a control."""
    n_parts, n_shared = (slots >= 0).sum(1), np.isin(slots, parts).sum(1)
    return (slots != Code.MISSING).any(1) & (n_parts == len(parts)) & (n_shared == len(parts))
