"""Columns of ``adata.obs`` read with care: what is missing, or no number, is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scdiffgen._messages import and_others, counted, plain, unknown_name

if TYPE_CHECKING:
    from anndata import AnnData
    from mudata import MuData


LARGEST = 1e30  # what is larger overflows in single precision when it is squared or scaled


def obs_column(adata: AnnData, key: str, argument: str) -> pd.Series:
    """One column of ``adata.obs``.

    Parameters
    ----------
    adata
        Cells.
    key
        Name of the column.
    argument
        The argument through which the user gave the name; named when there is no such column.

    Raises
    ------
    KeyError
        If there is no such column.
    ValueError
        If there are several.

    Examples
    --------
    >>> import anndata as ad
    >>> cells = ad.AnnData(np.ones((2, 1)), obs=pd.DataFrame({"donor": ["a", "b"]}, index=["c0", "c1"]))
    >>> obs_column(cells, "donor", "batch_key").tolist()
    ['a', 'b']
    """
    if key not in adata.obs.columns:
        raise_if_of_modality(adata, key, argument)
        raise KeyError(f"`{argument}`: {unknown_name('column of `adata.obs`', key, list(adata.obs.columns))}")
    column = adata.obs[key]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"`{argument}={key!r}`: `adata.obs` has {column.shape[1]} columns of that name. Rename them.")
    return column


def raise_if_of_modality(cells: AnnData | MuData, key: str, argument: str) -> None:
    """Raise if a column is that of a modality.

    Parameters
    ----------
    cells
        Cells whose ``.obs`` lacks the column.
    key
        Name of the column.
    argument
        The argument that gave it.

    Raises
    ------
    KeyError
        If a modality has the column.
    """
    modality, _, own = str(key).rpartition(":")
    having = [
        name for name, part in getattr(cells, "mod", {}).items() if modality in ("", name) and own in part.obs.columns
    ]
    if having:
        raise KeyError(
            f"`{argument}={key!r}` is a column of the modality {having[0]!r}, and not of `mdata.obs`. "
            f"Write `mdata.obs[{own!r}] = mdata[{having[0]!r}].obs[{own!r}]` first."
        )


def raise_if_missing(missing: np.ndarray, cells: pd.Index, place: str, way_out: str) -> None:
    """Raise if cells have no value.

    Parameters
    ----------
    missing
        (cells,) bool.
    cells
        (cells,) their names.
    place
        Where the values were looked for: the argument, as the user wrote it.
    way_out
        What to do about it, in words.

    Raises
    ------
    ValueError
        If any is missing.

    Examples
    --------
    >>> raise_if_missing(np.array([False]), pd.Index(["cell0"]), "`labels_key='type'`", "Leave it out.")
    """
    if missing.any():
        n = int(missing.sum())
        raise ValueError(
            f"{place}: {counted(n, 'cell')} of {len(cells):,} {'has' if n == 1 else 'have'} no value "
            f"(first: cell {cells[missing.argmax()]!r}). {way_out}"
        )


def entries_of(column: pd.Series) -> list[Any]:
    """The entries of a column as plain Python values.

    Parameters
    ----------
    column
        Values of any type.

    Returns
    -------
    The entries; None where one is missing.

    Examples
    --------
    >>> entries_of(pd.Series(["A", np.nan], dtype="category"))
    ['A', None]
    """
    entries = column.astype(object)
    return [plain(entry) for entry in entries.where(entries.notna(), None)]


def numbers(column: pd.Series, argument: str) -> np.ndarray:
    """The values of a column as numbers.

    Parameters
    ----------
    column
        Values, indexed by the names of the cells. Numbers written as text are read as numbers.
    argument
        The argument named in the message.

    Returns
    -------
    (cells,) float64; NaN where the entry is missing.

    Raises
    ------
    ValueError
        If an entry is no number, infinite, or too large for single precision.

    Examples
    --------
    >>> numbers(pd.Series(["1.5", None]), "dose_key")
    array([1.5, nan])
    """
    entries = column.astype(object)
    real = entries if column.dtype.kind != "c" else entries.map(str)
    values = pd.to_numeric(real, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    faults = {
        "no number": np.isnan(values) & ~entries.isna().to_numpy(),
        "infinite": np.isinf(values),
        f"larger than {LARGEST:g}": np.abs(values) > LARGEST,
    }
    for fault, bad in faults.items():
        if bad.any():
            first = int(bad.argmax())
            raise ValueError(
                f"`{argument}={column.name!r}`: {entries.iloc[first]!r} in cell {column.index[first]!r}"
                f"{and_others(int(bad.sum()) - 1, 'cell')} is {fault}. Give finite numbers, or NaN where it is unknown."
            )
    return values
