"""What a user asks for, as one table: a row for each kind of cell, a column for each condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from scdiffgen.data._messages import listed

N_CELLS = "n_cells"

Conditions: TypeAlias = Mapping[str, Any] | pd.DataFrame | None


def condition_table(conditions: Conditions, n_cells: int | None = None) -> pd.DataFrame:
    """Bring what a user asks for in the form of a table.

    Parameters
    ----------
    conditions
        A value for each condition, by its name; or a table with a column for each condition and a row for each kind of
        cell, which may have a column ``"n_cells"``; or None, which tells nothing. What is left out, NaN or None is not
        told.
    n_cells
        Number of cells of each row; None for one, or for what the column ``"n_cells"`` says.

    Returns
    -------
    The table, rows numbered from 0, with a column ``"n_cells"`` of int64.

    Raises
    ------
    TypeError
        If ``conditions`` is none of these.
    ValueError
        If a number of cells is no positive integer or is given twice, or the table has no rows or a column twice.

    Examples
    --------
    >>> condition_table({"cell_type": "B cells", "perturbation": "FOXO1"}, n_cells=100)
      cell_type perturbation  n_cells
    0   B cells        FOXO1      100
    """
    table = _as_frame(conditions)
    if N_CELLS in table and n_cells is not None:
        raise ValueError(f"`n_cells={n_cells!r}` and a column 'n_cells' are both given. Give one of them.")
    if N_CELLS not in table:
        table[N_CELLS] = pd.Series([1 if n_cells is None else n_cells] * len(table), dtype=object)
    for value in table[N_CELLS]:
        if not _is_positive_integer(value):
            raise ValueError(f"`n_cells` must be a positive integer, got {value!r}.")
    table[N_CELLS] = table[N_CELLS].astype(np.int64)
    return table


def _as_frame(conditions: Conditions) -> pd.DataFrame:
    if conditions is None:
        return pd.DataFrame(index=range(1))
    if isinstance(conditions, Mapping):
        for name, value in conditions.items():
            if isinstance(value, list | tuple | set | np.ndarray | pd.Series):
                raise ValueError(
                    f"`conditions[{name!r}]` holds several values: {value!r}. Give one, or a DataFrame with a row each."
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
    return conditions.reset_index(drop=True)


def _is_positive_integer(value: Any) -> bool:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return False
    return bool(value > 0 and float(value).is_integer())
