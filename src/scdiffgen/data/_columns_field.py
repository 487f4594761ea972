"""Columns of ``.obs`` read with care, and the template of the fields that code them: read, fit and code."""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import rich.table
from anndata import AnnData
from mudata import MuData
from rich.markup import escape
from scvi.data.fields import BaseAnnDataField

from scdiffgen._messages import and_others, counted, listed, plain, unknown_name
from scdiffgen.conditions import ConditionSpec

State = Mapping[str, Any]

LARGEST = 1e30  # what is larger overflows in single precision when it is squared or scaled


class ColumnsField(BaseAnnDataField):
    """Encode columns of ``.obs`` in ``.obsm``, and requests by the same state of plain data, which models save."""

    registry_key = ""
    attr_name = "obsm"
    attr_key = ""
    is_empty = False
    is_number = False
    argument = ""  # by which a user names the columns
    counted = ""  # the entry of a state whose length sums it up

    def __init__(self, registry_key: str, columns: Sequence[str]) -> None:
        super().__init__()
        self.registry_key = registry_key
        self.attr_key = f"_scvi_{registry_key}"
        self.columns = list(columns)

    @abstractmethod
    def read(self, cells: AnnData | MuData) -> Any:
        """What the columns hold; raise if it cannot be coded."""

    @abstractmethod
    def fit(self, values: Any) -> State:
        """What is remembered of the cells that are registered first."""

    @abstractmethod
    def code(self, values: Any, state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        """Codes ``(cells, columns)``, and the state with what was unseen appended if ``extend``, or else raise."""

    @classmethod
    @abstractmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
        """The conditions that a state describes to the networks."""

    @classmethod
    @abstractmethod
    def code_request(cls, table: pd.DataFrame, state: State) -> np.ndarray:
        """Codes ``(rows, columns)`` of a user's table as :meth:`code` gives them, where entries may be missing."""

    @classmethod
    def request_columns(cls, name: str, state: State) -> list[str]:
        """Columns of a user's table in which a condition is given."""
        return [name]

    @classmethod
    def as_registered(cls, table: pd.DataFrame, state: State) -> pd.DataFrame:
        """A user's table as registration would read it."""
        return table

    def validate_field(self, adata: AnnData | MuData) -> None:
        """Raise if the columns cannot be coded."""
        self.read(adata)

    def register_field(self, adata: AnnData | MuData) -> dict[str, Any]:
        """Code the cells by what occurs in them; return the state."""
        return self._coded(adata, None, extend=False)

    def transfer_field(
        self, state_registry: State, adata_target: AnnData | MuData, extend_categories: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Code other cells by an earlier state; ``kwargs`` are what the manager tells all fields."""
        return self._coded(adata_target, state_registry, extend=extend_categories)

    def get_summary_stats(self, state_registry: State) -> dict[str, int]:
        """Count what is registered."""
        return {f"n_{self.registry_key}": len(state_registry[self.counted])}

    def view_state_registry(self, state_registry: State) -> rich.table.Table:
        """The state as a table to print: categories, names and nodes stand beside their codes."""
        table = rich.table.Table("Entry", "Code", "Value", title=f"{self.registry_key} State Registry")
        for entry, value in state_registry.items():
            several = isinstance(value, list | tuple | np.ndarray)  # lists become tuples in a registry
            for code, each in enumerate(value if several else [value]):
                row = entry if code == 0 else "", str(code) if several else "", str(each)
                table.add_row(*map(escape, row))  # names may hold brackets, which rich would read as markup
        return table

    def raise_if_same_spelling(self, column: str, new: Iterable[Any], known: Iterable[Any]) -> None:
        """Raise if a new category is a registered one of another type, such as ``"0"`` beside 0."""
        by_spelling = {_spelling(name): plain(name) for name in known}
        for name in map(plain, new):
            twin = by_spelling.get(_spelling(name), name)
            if type(twin) is not type(name):
                raise ValueError(
                    f"`{self.argument}`, column {column!r}: {name!r} is spelled as the registered category {twin!r} of "
                    f"another type. Did you mean {twin!r}? Write the column in the registered type "
                    f"({type(twin).__name__}), or rename the category."
                )

    def raise_if_changed(self, cells: AnnData | MuData, state: State) -> None:
        """Raise if the columns, as far as they are there, no longer hold what the cells were coded by."""
        if not set(self.columns) <= set(cells.obs) - {self.attr_key}:
            return
        with warnings.catch_warnings(action="ignore"):  # they were given at registration
            codes, _ = self.code(self.read(cells), state, extend=False)
        stored = np.asarray(getattr(cells, self.attr_name)[self.attr_key])
        if not np.array_equal(codes.reshape(stored.shape), stored, equal_nan=stored.dtype.kind == "f"):
            raise ValueError(
                f"{listed(self.columns)} of `adata.obs` changed after the cells were registered (`{self.argument}`). "
                "Restore the values, or register the cells again and make a new model."
            )

    def _coded(self, cells: AnnData | MuData, known: State | None, *, extend: bool) -> dict[str, Any]:
        """Write the codes beside the cells; return the state."""
        values = self.read(cells)
        if known is None:
            known = {**self.fit(values), **({} if self.is_number else categories_in_order(cells.obs, self.columns))}
        codes, state = self.code(values, known, extend=extend)
        getattr(cells, self.attr_name)[self.attr_key] = codes[:, 0] if self.attr_name == "obs" else codes
        return {**known, **state}


def obs_column(cells: AnnData | MuData, key: str, argument: str) -> pd.Series:
    """The column of ``.obs`` that a user names by an argument."""
    if key not in cells.obs.columns:
        modality, _, own = str(key).rpartition(":")
        for name, part in getattr(cells, "mod", {}).items():
            if modality in ("", name) and own in part.obs.columns:
                raise KeyError(
                    f"`{argument}={key!r}` is a column of the modality {name!r}, and not of `mdata.obs`. "
                    f"Write `mdata.obs[{own!r}] = mdata[{name!r}].obs[{own!r}]` first."
                )
        raise KeyError(f"`{argument}`: {unknown_name('column of `adata.obs`', key, list(cells.obs.columns))}")
    column = cells.obs[key]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"`{argument}={key!r}`: `adata.obs` has {column.shape[1]} columns of that name. Rename them.")
    return column


def categories_in_order(obs: pd.DataFrame, columns: Sequence[str]) -> State:
    """What a state remembers of categorical columns: their categories that occur, and whether these are ordered."""
    typed = [column for column in columns if column in obs and isinstance(obs[column].dtype, pd.CategoricalDtype)]
    used = [obs[column].cat.remove_unused_categories().cat for column in typed]
    return {
        "categorical_columns": typed,
        "categorical_values": [each.categories.to_numpy(copy=True) for each in used],
        "categorical_ordered": [bool(each.ordered) for each in used],
    }


def typed_as_registered(table: pd.DataFrame, state: State) -> pd.DataFrame:
    """A table in which categorical columns have the registered categories, then those that are new, in their order."""
    stored = (state.get(f"categorical_{name}", ()) for name in ("columns", "values", "ordered"))
    for column, known, ordered in zip(*stored, strict=True):
        if column in table:
            every = dict.fromkeys([*known, *table[column].dropna().unique()])
            table = table.assign(**{column: table[column].astype(pd.CategoricalDtype(list(every), ordered))})
    return table


def _spelling(name: Any) -> Any:
    """One spelling of a category in any type: of numbers and truth values their value, else the text."""
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name).strip()
    try:
        return float({"true": "1", "false": "0"}.get(text.casefold(), text))
    except ValueError:
        return text.casefold()


def requested_column(table: pd.DataFrame, name: str) -> pd.Series:
    """The column of a request; all is missing where it has none."""
    return table[name] if name in table else pd.Series(np.nan, index=table.index, name=name)


def raise_if_missing(columns: Sequence[pd.Series], place: str, way_out: str) -> None:
    """Raise if a cell has a value in none of the columns; ``place`` is the argument as the user wrote it."""
    missing = np.all([column.isna().to_numpy(dtype=bool) for column in columns], axis=0)
    if missing.any():
        n, first = int(missing.sum()), columns[0].index[missing.argmax()]
        raise ValueError(
            f"{place}: {counted(n, 'cell')} of {len(missing):,} {'has' if n == 1 else 'have'} no value "
            f"(first: cell {first!r}). {way_out}"
        )


def entries_of(column: pd.Series) -> list[Any]:
    """The entries of a column as plain Python values, None where one is missing."""
    entries = column.astype(object)
    return [plain(entry) for entry in entries.where(entries.notna(), None)]


def numbers(column: pd.Series, argument: str) -> np.ndarray:
    """A column as float64, NaN where an entry is missing; numbers that are written as text are read."""
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
    return values + 0.0  # -0 is 0
