"""Requests for cells: a table with one row per group of cells."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from scdiffgen._messages import listed

N_CELLS, MOST_CELLS = "n_cells", 2**31 - 1
UNSEEN = "unseen_in_training"  # column: whether no training cell had the requested categories
DRAWN = "drawn_conditions"  # column: names of conditions that were drawn, not requested
ADDED = (UNSEEN, DRAWN, "response_source", "response_check")  # columns that describe generated cells

Request: TypeAlias = Mapping[str, Any] | pd.DataFrame | None


def request_table(conditions: Request, n_cells: int | None = None, n_training: int = 1) -> pd.DataFrame:
    """Convert a request to a table with a column ``"n_cells"``, by default 1, or ``n_training`` without conditions."""
    table = _as_frame(conditions)
    if n_cells is None and table.shape == (1, 0):
        n_cells = n_training
    if N_CELLS in table and n_cells is not None:
        raise ValueError(f"`n_cells={n_cells!r}` and a column 'n_cells' are both given. Give one of them.")
    if N_CELLS not in table:
        table[N_CELLS] = pd.Series([1 if n_cells is None else n_cells] * len(table), dtype=object)
    for value in table[N_CELLS]:
        if not _is_positive_integer(value):
            raise ValueError(f"`n_cells` is {value!r}: pass a positive integer; several are a column of a data frame.")
    if sum(map(int, table[N_CELLS])) > MOST_CELLS:
        raise ValueError(f"`n_cells` is {sum(map(int, table[N_CELLS])):,} in all: pass at most {MOST_CELLS:,} a call.")
    table[N_CELLS] = table[N_CELLS].astype(np.int64)
    return table


def _as_frame(conditions: Request) -> pd.DataFrame:
    if conditions is None:
        return pd.DataFrame(index=range(1))
    if isinstance(conditions, Mapping):
        for name, value in conditions.items():
            if isinstance(value, list | tuple | set | np.ndarray | pd.Series):
                raise ValueError(
                    f"`conditions[{name!r}]` holds several values: {listed(value)}. "
                    "Give one, or a DataFrame with a row each."
                )
        return pd.DataFrame({name: pd.Series([value]) for name, value in conditions.items()}, index=range(1))
    if not isinstance(conditions, pd.DataFrame):
        raise TypeError(
            f"`conditions` must be a mapping, a DataFrame or None, and is of type {type(conditions).__name__}."
        )
    if not len(conditions):
        raise ValueError("`conditions` has no rows. Give a row for each kind of cell.")
    if not conditions.columns.is_unique:
        raise ValueError(
            f"`conditions` has columns twice: {listed(conditions.columns[conditions.columns.duplicated()])}."
        )
    return conditions.drop(columns=[*ADDED], errors="ignore").reset_index(drop=True)


def _is_positive_integer(value: object) -> bool:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return False
    return bool(value > 0 and float(value).is_integer())
