"""Groups of cells with equal condition codes, and their back-off levels."""

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np


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


def have_exactly(slots: np.ndarray, parts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Mark rows of ``slots`` ``(rows, slots)`` with exactly these interventions in any order; none is a control."""
    n_parts, n_shared = (slots >= 0).sum(1), np.isin(slots, parts).sum(1)
    return (slots != Code.MISSING).any(1) & (n_parts == len(parts)) & (n_shared == len(parts))
