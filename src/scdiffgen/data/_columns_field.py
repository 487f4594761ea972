"""Strict reading of ``.obs`` columns, and the base class of fields that encode them."""

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

LARGEST = 1e30  # larger numbers overflow in single precision when squared or scaled


class ColumnsField(BaseAnnDataField):
    """Base class of fields that encode columns of ``.obs`` in ``.obsm``, and requests, by a state of plain data."""

    registry_key = ""
    attr_name = "obsm"
    attr_key = ""
    is_empty = False
    is_number = False
    missing_as_text = ("nan", "none", "null", "<na>")
    argument = ""  # argument that names the columns
    counted = ""  # name of the list in the state that is counted by the summary statistic

    def __init__(self, registry_key: str, columns: Sequence[str]) -> None:
        super().__init__()
        self.registry_key = registry_key
        self.attr_key = f"_scvi_{registry_key}"
        self.columns = list(columns)

    @abstractmethod
    def read(self, cells: AnnData | MuData) -> Any:
        """Read the columns; raise if they cannot be encoded."""

    @abstractmethod
    def fit(self, values: Any) -> State:
        """Compute the state from the cells that are registered first."""

    @abstractmethod
    def code(self, values: Any, state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        """Return codes ``(cells, columns)`` and the state, extended by unseen values if ``extend``; raise otherwise."""

    @classmethod
    @abstractmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
        """Return the conditions that a state describes to the networks."""

    @classmethod
    @abstractmethod
    def code_request(cls, table: pd.DataFrame, state: State) -> np.ndarray:
        """Encode a requested table like :meth:`code`, ``(rows, columns)``; entries may be missing."""

    @classmethod
    def request_columns(cls, name: str, state: State) -> list[str]:
        """Return the columns of a requested table that give a condition."""
        return [name]

    @classmethod
    def as_registered(cls, table: pd.DataFrame, state: State) -> pd.DataFrame:
        """Convert a requested table to the form that registration reads."""
        return table

    def validate_field(self, adata: AnnData | MuData) -> None:
        """Raise if the columns cannot be encoded."""
        self.read(adata)

    def register_field(self, adata: AnnData | MuData) -> dict[str, Any]:
        """Encode cells by a state fitted to them; return the state."""
        return self._coded(adata, None, extend=False)

    def transfer_field(
        self, state_registry: State, adata_target: AnnData | MuData, extend_categories: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Encode other cells by an earlier state; the manager passes ``kwargs`` to all fields."""
        return self._coded(adata_target, state_registry, extend=extend_categories)

    def get_summary_stats(self, state_registry: State) -> dict[str, int]:
        """Count registered entries."""
        return {f"n_{self.registry_key}": len(state_registry[self.counted])}

    def view_state_registry(self, state_registry: State) -> rich.table.Table:
        """Format the state as a table of categories, names or nodes with their codes."""
        table = rich.table.Table("Entry", "Code", "Value", title=f"{self.registry_key} State Registry")
        for entry, value in state_registry.items():
            several = isinstance(value, list | tuple | np.ndarray)  # lists become tuples in a registry
            for code, item in enumerate(value if several else [value]):
                row = entry if code == 0 else "", str(code) if several else "", str(item)
                table.add_row(*map(escape, row))  # rich would interpret brackets in names as markup
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
        """Raise if existing columns no longer hold the values by which the cells were encoded."""
        if not set(self.columns) <= set(cells.obs) - {self.attr_key}:
            return
        with warnings.catch_warnings(action="ignore"):  # warnings were already shown at registration
            codes, _ = self.code(self.read(cells), state, extend=False)
        stored = np.asarray(getattr(cells, self.attr_name)[self.attr_key])
        if not np.array_equal(codes.reshape(stored.shape), stored, equal_nan=stored.dtype.kind == "f"):
            raise ValueError(
                f"{listed(self.columns)} of `adata.obs` changed after the cells were registered (`{self.argument}`). "
                "Restore the values, or register the cells again and create a new model."
            )

    def _coded(self, cells: AnnData | MuData, known: State | None, *, extend: bool) -> dict[str, Any]:
        """Write the codes into the AnnData; return the state."""
        values = self.read(cells)
        if known is None:
            known = {**self.fit(values), **({} if self.is_number else categories_in_order(cells.obs, self.columns))}
        codes, state = self.code(values, known, extend=extend)
        getattr(cells, self.attr_name)[self.attr_key] = codes[:, 0] if self.attr_name == "obs" else codes
        return {**known, **state}


def obs_column(cells: AnnData | MuData, key: str, argument: str) -> pd.Series:
    """Return the column of ``.obs`` that an argument names."""
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
    """Return the state of categorical columns: occurring categories, and whether they are ordered."""
    typed = [column for column in columns if column in obs and isinstance(obs[column].dtype, pd.CategoricalDtype)]
    used = [obs[column].cat.remove_unused_categories().cat for column in typed]
    return {
        "categorical_columns": typed,
        "categorical_values": [column.categories.to_numpy(copy=True) for column in used],
        "categorical_ordered": [bool(column.ordered) for column in used],
    }


def typed_as_registered(table: pd.DataFrame, state: State) -> pd.DataFrame:
    """Convert categorical columns to the registered categories in their order, followed by new ones."""
    stored = (state.get(f"categorical_{name}", ()) for name in ("columns", "values", "ordered"))
    for column, known, ordered in zip(*stored, strict=True):
        if column in table:
            every = dict.fromkeys([*known, *table[column].dropna().unique()])
            table = table.assign(**{column: table[column].astype(pd.CategoricalDtype(list(every), ordered))})
    return table


def _spelling(name: Any) -> Any:
    """Normalise the spelling of a category: the value of numbers and booleans, else the text."""
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name).strip()
    try:
        return float({"true": "1", "false": "0"}.get(text.casefold(), text))
    except ValueError:
        return text.casefold()


def requested_column(table: pd.DataFrame, name: str) -> pd.Series:
    """Return a column of a request; all missing if there is none."""
    return table[name] if name in table else pd.Series(np.nan, index=table.index, name=name)


def raise_if_missing(columns: Sequence[pd.Series], place: str, way_out: str) -> None:
    """Raise if a cell has no value in any column; ``place`` names the argument in the error."""
    missing = np.all([column.isna().to_numpy(dtype=bool) for column in columns], axis=0)
    if missing.any():
        n, first = int(missing.sum()), columns[0].index[missing.argmax()]
        raise ValueError(
            f"{place}: {counted(n, 'cell')} of {len(missing):,} {'has' if n == 1 else 'have'} no value "
            f"(first: cell {first!r}). {way_out}"
        )


def entries_of(column: pd.Series) -> list[Any]:
    """Return the entries of a column as Python values, ``None`` where missing."""
    entries = column.astype(object)
    return [plain(entry) for entry in entries.where(entries.notna(), None)]


def numbers(column: pd.Series, argument: str) -> np.ndarray:
    """Convert a column to float64, NaN where missing; numbers written as text are parsed."""
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
                f"{and_others(int(bad.sum()) - 1, 'cell')} is {fault}. Pass finite numbers, or NaN where unknown."
            )
    return values + 0.0  # -0 is 0
