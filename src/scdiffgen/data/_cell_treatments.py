"""The perturbations of all cells: read from the columns of ``adata.obs``, counted, and coded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from scdiffgen._messages import and_others
from scdiffgen.data._columns import entries_of, obs_column, raise_if_missing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anndata import AnnData

    from scdiffgen.conditions import PerturbationSyntax, Treatment


class Treatments(NamedTuple):
    """The treatment of each cell: one of a few distinct ones."""

    distinct: list[Treatment]
    codes: np.ndarray  # (cells,) int64, which of `distinct`

    @property
    def names(self) -> list[str]:
        """All parts that occur, sorted."""
        return sorted({name for treatment in self.distinct for name in treatment})

    @property
    def n_slots(self) -> int:
        """Size of the largest combination."""
        return max(map(len, self.distinct))

    @property
    def doses(self) -> np.ndarray:
        """(parts of all cells,) their doses."""
        n_cells = np.bincount(self.codes, minlength=len(self.distinct))
        n_parts = [len(treatment) for treatment in self.distinct]
        doses = np.array([dose for treatment in self.distinct for dose in treatment.values()], dtype=np.float64)
        return np.repeat(doses, np.repeat(n_cells, n_parts))

    def dose_ranges(self, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest dose of each of some parts.

        Parameters
        ----------
        names
            The parts.

        Returns
        -------
        (names,) smallest and (names,) largest; NaN where there is none.
        """
        doses: dict[str, list[float]] = {}
        for treatment in self.distinct:
            for name, dose in treatment.items():
                doses.setdefault(name, []).append(dose)
        lowest, highest = (np.array([bound(doses.get(name, [math.nan])) for name in names]) for bound in (min, max))
        return lowest, highest

    def coded(self, ids: Mapping[str, int], n_slots: int) -> np.ndarray:
        """Ids and doses of the parts of each cell.

        Parameters
        ----------
        ids
            Id of each part.
        n_slots
            Number of slots, at least the size of the largest combination.

        Returns
        -------
        (cells, 2 * n_slots) float32: ids, -1 where there is none, then doses, 0 where there is none.
        """
        rows = np.zeros((len(self.distinct), 2 * n_slots), dtype=np.float32)
        rows[:, :n_slots] = -1
        for row, treatment in zip(rows, self.distinct, strict=True):
            for slot, (name, dose) in enumerate(treatment.items()):
                row[slot] = ids[name]
                row[n_slots + slot] = 0.0 if math.isnan(dose) else dose
        return rows[self.codes]


def read_treatments(
    adata: AnnData, columns: Sequence[str], dose_columns: Sequence[str], syntax: PerturbationSyntax
) -> Treatments:
    """Read what was done to each cell.

    Parameters
    ----------
    adata
        Cells.
    columns
        One column with entries such as ``"A+B"``, or several with a part each, where a missing entry is no part.
    dose_columns
        One column of doses for each of ``columns``, or none.
    syntax
        How perturbations are written.

    Returns
    -------
    The treatments.

    Raises
    ------
    KeyError
        If a column is missing.
    ValueError
        If an entry cannot be read, a cell has no entry, or a perturbation has no dose though there are doses.

    Examples
    --------
    >>> import anndata as ad
    >>> from scdiffgen.conditions import PerturbationSyntax
    >>> cells = ad.AnnData(np.ones((2, 1)), obs=pd.DataFrame({"guide": ["B+A", "control"]}, index=["x", "y"]))
    >>> read_treatments(cells, ["guide"], [], PerturbationSyntax()).distinct
    [{'A': nan, 'B': nan}, {}]
    """
    entries = [obs_column(adata, column, "perturbation_key") for column in columns]
    _raise_if_untold(entries, syntax)
    doses = [obs_column(adata, column, "dose_key") for column in dose_columns]
    rows = list(zip(*(entries_of(column) for column in [*entries, *doses]), strict=True))
    code_of_row: dict[tuple[object, ...], int] = {}
    distinct: list[Treatment] = []
    codes = np.zeros(len(rows), dtype=np.int64)
    for cell, row in enumerate(rows):
        if row not in code_of_row:
            try:
                distinct.append(_parse(row, len(columns), syntax, has_doses=bool(dose_columns)))
            except ValueError as error:
                where = f"in cell {adata.obs_names[cell]!r}{and_others(rows.count(row) - 1, 'cell')}"
                raise ValueError(f"{named(columns)}: {_shown(row, len(columns))} {where}: {error}.") from None
            code_of_row[row] = len(distinct) - 1
        codes[cell] = code_of_row[row]
    return Treatments(distinct, codes)


def names_by_column(adata: AnnData, columns: Sequence[str], syntax: PerturbationSyntax) -> list[set[str]]:
    """The perturbations that each of several columns holds.

    Parameters
    ----------
    adata
        Cells.
    columns
        Columns with a part each.
    syntax
        How perturbations are written.

    Returns
    -------
    Names, without controls.

    Examples
    --------
    >>> import anndata as ad
    >>> from scdiffgen.conditions import PerturbationSyntax
    >>> obs = pd.DataFrame({"gene": ["KLF1", None], "drug": ["control", "drugA"]}, index=["x", "y"])
    >>> names_by_column(ad.AnnData(np.ones((2, 1)), obs=obs), ["gene", "drug"], PerturbationSyntax())
    [{'KLF1'}, {'drugA'}]
    """
    entries = [obs_column(adata, column, "perturbation_key").dropna().unique() for column in columns]
    return [{str(entry).strip() for entry in column} - {"", *syntax.control} for column in entries]


def _parse(row: tuple[object, ...], n_columns: int, syntax: PerturbationSyntax, has_doses: bool) -> Treatment:
    names, doses = row[:n_columns], row[n_columns:] if has_doses else (None,) * n_columns
    treatment = syntax.parse(names[0], doses[0]) if n_columns == 1 else syntax.combine(names, doses)
    without = [name for name, dose in treatment.items() if math.isnan(dose)]
    if has_doses and without:
        raise ValueError(f"{without[0]!r} has no dose; give one (0 is a dose), or leave out `dose_key`")
    return treatment


def named(columns: Sequence[str]) -> str:
    """The argument that named the columns, for messages.

    Parameters
    ----------
    columns
        The columns.

    Returns
    -------
    As the user wrote it.

    Examples
    --------
    >>> named(["guide"])
    "`perturbation_key='guide'`"
    """
    return f"`perturbation_key={(columns[0] if len(columns) == 1 else list(columns))!r}`"


def _shown(row: tuple[object, ...], n_columns: int) -> str:
    names, doses = (" and ".join(map(repr, part)) for part in (row[:n_columns], row[n_columns:]))
    return f"{names} at dose {doses}" if doses else names


def _raise_if_untold(entries: Sequence[pd.Series], syntax: PerturbationSyntax) -> None:
    untold = np.all([column.isna().to_numpy(dtype=bool) for column in entries], axis=0)
    way_out = f"If they are controls, write {syntax.control[0]!r} there."
    raise_if_missing(untold, entries[0].index, named([column.name for column in entries]), way_out)
