"""Fields of ``.obs``: strict reading and encoding of categories, text descriptions, numbers and hierarchies.

A node of a hierarchy is a path from the root; codes of a hierarchy are ids of nodes from root to leaf.
"""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
import rich.table
from anndata import AnnData
from mudata import MuData
from rich.markup import escape
from scvi.data.fields import BaseAnnDataField

from scdiffgen._messages import and_others, counted, did_you_mean, listed, plain, unknown_name, warn_user
from scdiffgen._text import TEXT_DIM, embed_texts
from scdiffgen.conditions import Code, ConditionSpec, NumberTransform

State = Mapping[str, Any]
Values = TypeVar("Values")  # entries of the columns, as a field reads them

LARGEST_NUMBER = 1e30  # larger numbers overflow in single precision when squared or scaled
LABEL_TYPES = (str, bytes, bool, int, float, np.generic)
Node = tuple[Any, ...]  # names on the path from the root
NAME = "hierarchy"  # name of the condition


class ColumnsField(BaseAnnDataField, Generic[Values]):
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
    def read(self, cells: AnnData | MuData) -> Values:
        """Read the columns; raise if they cannot be encoded."""

    @abstractmethod
    def fit(self, values: Values) -> State:
        """Compute the state from the cells that are registered first."""

    @abstractmethod
    def code(self, values: Values, state: State, *, extend: bool) -> tuple[np.ndarray, State]:
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


def _spelling(name: object) -> float | str:
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
        f"larger than {LARGEST_NUMBER:g}": np.abs(values) > LARGEST_NUMBER,
    }
    for fault, bad in faults.items():
        if bad.any():
            first = int(bad.argmax())
            raise ValueError(
                f"`{argument}={column.name!r}`: {entries.iloc[first]!r} in cell {column.index[first]!r}"
                f"{and_others(int(bad.sum()) - 1, 'cell')} is {fault}. Pass finite numbers, or NaN where unknown."
            )
    return values + 0.0  # -0 is 0


class CategoricalCovariatesField(ColumnsField[list[pd.Series]]):
    """Field of several columns of categories, which are encoded independently; unseen categories are rejected."""

    counted = "field_keys"
    argument = "categorical_covariate_keys"

    def read(self, cells: AnnData | MuData) -> list[pd.Series]:
        """Read the columns; raise for containers, dates and intervals, which could not be requested later."""
        columns = [obs_column(cells, key, self.argument) for key in self.columns]
        for column in columns:
            place, name = f"`{self.argument}={column.name!r}`", f"adata.obs[{column.name!r}]"
            way_out = "Give these cells a category of their own (for example 'unknown'), or leave them out."
            raise_if_missing([column], place, way_out)
            entries = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
            odd = [entry for entry in entries if not isinstance(entry, LABEL_TYPES)]
            if odd:
                raise ValueError(
                    f"{place}: {odd[0]!r} is a {type(odd[0]).__name__}, and categories are text, numbers or truth "
                    f"values. Write them as text: `{name} = {name}.astype(str)`."
                )
        return columns

    def fit(self, values: list[pd.Series]) -> State:
        """Collect the occurring categories, in their order if categorical, sorted otherwise."""
        fitted = []
        for column in values:
            used = column.astype("category").cat.remove_unused_categories()
            categories = used.cat.categories.to_numpy(copy=True)
            singletons = categories[np.bincount(used.cat.codes, minlength=len(categories)) == 1]
            if len(singletons) and len(column) > 1:
                n_singletons = counted(len(singletons), "category", "categories")
                warn_user(
                    f"`{self.argument}={column.name!r}`: {n_singletons} with a single cell ({listed(singletons)}): "
                    "little can be learned from one cell, so merge or remove such categories."
                )
            if missing := [name for name in categories if str(name).casefold() in self.missing_as_text]:
                n_cells = counted(int(used.isin(missing).sum()), "cell")
                warn_user(
                    f"`{self.argument}={column.name!r}`: {listed(missing)} ({n_cells}) is probably a missing value "
                    "written as text. Leave these cells out, or rename the category if it is meant."
                )
            fitted.append(categories)
        return self.pack(fitted)

    def code(self, values: list[pd.Series], state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        codes, extended = [], []
        for column, known in zip(values, self.categories(state).values(), strict=True):
            positions, unseen = look_up(column, known)
            if len(unseen) and not extend:
                raise ValueError(
                    f"`{self.argument}={column.name!r}`: {counted(len(unseen), 'unseen category', 'unseen categories')}"
                    f" ({listed(unseen)}); the registered ones are {listed(known)}.{did_you_mean(unseen[0], known)} "
                    "Leave these cells out, rename the category, or add it to a trained model (`load_query_data`)."
                )
            self.raise_if_same_spelling(str(column.name), unseen, known)
            # numbers are never converted to text
            dtype = known.dtype if not len(unseen) or known.dtype == unseen.dtype else np.dtype(object)
            codes.append(positions)
            extended.append(np.concatenate([known.astype(dtype), unseen.astype(dtype)]))
        return np.stack(codes, axis=1), self.pack(extended)

    def pack(self, categories: Sequence[np.ndarray]) -> State:
        """Return the state in the format of scvi-tools."""
        counts = [len(column) for column in categories]
        return {"field_keys": list(self.columns), "mappings": list(categories), "n_cats_per_key": counts}

    @classmethod
    def categories(cls, state: State) -> dict[str, np.ndarray]:
        """Return the categories of each column in the order of their codes."""
        by_name = zip(state["field_keys"], state["mappings"], strict=True)
        return {str(name): np.asarray(categories) for name, categories in by_name}

    @classmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
        n_features = state["features"].shape[1] if "features" in state else 0
        counts = [(name, len(categories)) for name, categories in cls.categories(state).items()]
        return [
            ConditionSpec(name, "category", registry_key=key, column=column, n_categories=n, n_features=n_features)
            for column, (name, n) in enumerate(counts)
        ]

    @classmethod
    def code_request(cls, table: pd.DataFrame, state: State) -> np.ndarray:
        codes = []
        for name, known in cls.categories(state).items():
            positions, unseen = look_up(requested_column(table, name), known)
            if len(unseen):
                raise ValueError(
                    f"Condition {name!r}: {listed(unseen)} was not registered; the registered categories are "
                    f"{listed(known)}.{did_you_mean(unseen[0], known)}"
                )
            codes.append(positions)
        return np.stack(codes, axis=1)


class StrictCategoricalObsField(CategoricalCovariatesField):
    """Field of one column of categories in ``.obs``; without a column, all cells have one category (no condition)."""

    attr_name = "obs"
    counted = "categorical_mapping"

    def __init__(self, registry_key: str, column: str | None, argument: str) -> None:
        super().__init__(registry_key, [f"_scvi_{registry_key}" if column is None else column])
        self.argument = argument

    def read(self, cells: AnnData | MuData) -> list[pd.Series]:
        if self.columns == [self.attr_key]:
            return [pd.Series(0, index=cells.obs_names, name=self.attr_key)]
        return super().read(cells)

    def code(self, values: list[pd.Series], state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        registered = state["original_key"]
        if self.columns == [self.attr_key] and registered != self.attr_key:
            raise ValueError(
                f"`{self.argument}=None`, but categories are registered, by `{self.argument}={registered!r}` "
                f"({listed(state['categorical_mapping'])}). Name the column that holds them in these cells, "
                f"`{self.argument}={registered!r}`, or register these cells anew, without `source_registry`."
            )
        return super().code(values, state, extend=extend)

    def pack(self, categories: Sequence[np.ndarray]) -> State:
        return {"categorical_mapping": categories[0], "original_key": self.columns[0]}

    @classmethod
    def categories(cls, state: State) -> dict[str, np.ndarray]:
        return {state["original_key"]: np.asarray(state["categorical_mapping"])}

    @classmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
        return [] if state["original_key"] == f"_scvi_{key}" else super().specs(key, state)


class TextField(StrictCategoricalObsField):
    """Field of one column of text descriptions, each encoded as a category and embedded once by a sentence encoder."""

    def code(self, values: list[pd.Series], state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        """Encode descriptions; only new ones are embedded."""
        codes, coded = super().code(values, state, extend=extend)
        known = state.get("features", np.zeros((0, TEXT_DIM), dtype=np.float32))
        new = coded["categorical_mapping"][len(known) :]
        invalid = [text for text in new if not isinstance(text, str)]
        if invalid:
            raise ValueError(
                f"`{self.argument}={self.columns[0]!r}`: {plain(invalid[0])!r} is no text. Register such "
                "columns as `categorical_covariate_keys` or `continuous_covariate_keys`."
            )
        return codes, {**coded, "features": np.concatenate([known, embed_texts(new)])}


class ContinuousCovariatesField(ColumnsField[np.ndarray]):
    """Field of columns of numbers; NaN is missing."""

    is_number = True
    counted = "columns"
    argument = "continuous_covariate_keys"

    def read(self, cells: AnnData | MuData) -> np.ndarray:
        columns = [obs_column(cells, key, self.argument) for key in self.columns]
        return np.stack([numbers(column, self.argument) for column in columns], axis=1)

    def fit(self, values: np.ndarray) -> State:
        """Fit the transforms of the columns (scvi-tools allows no list of dicts, and no dots in a key)."""
        for key, has_numbers in zip(self.columns, ~np.isnan(values).all(axis=0), strict=True):
            if not has_numbers:
                raise ValueError(f"`{self.argument}`: column {key!r} has no number. Leave it out.")
        fitted = [NumberTransform.fit(column, "standardise") for column in values.T]
        means, scales = [transform.mean for transform in fitted], [transform.scale for transform in fitted]
        return {"columns": list(self.columns), "means": means, "scales": scales}

    def code(self, values: np.ndarray, state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        return values.astype(np.float32), state

    @staticmethod
    def transforms(state: State) -> dict[str, NumberTransform]:
        fitted = zip(state["columns"], state["means"], state["scales"], strict=True)
        return {str(name): NumberTransform("standardise", mean, scale) for name, mean, scale in fitted}

    @classmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
        return [
            ConditionSpec(name, "number", registry_key=key, column=column, has_values=True, transform=transform)
            for column, (name, transform) in enumerate(cls.transforms(state).items())
        ]

    @classmethod
    def as_registered(cls, table: pd.DataFrame, state: State) -> pd.DataFrame:
        texts = [name for name in state["columns"] if name in table and table[name].dtype.kind not in "iuf"]
        return table.assign(**{name: numbers(table[name], "conditions") for name in texts})

    @classmethod
    def code_request(cls, table: pd.DataFrame, state: State) -> np.ndarray:
        columns = [numbers(requested_column(table, name), "conditions") for name in state["columns"]]
        return np.stack(columns, axis=1).astype(np.float32)


def look_up(column: pd.Series, categories: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return indices ``(cells,)`` into the categories with unseen ones appended, and the unseen categories."""
    values = column.astype("category").cat.remove_unused_categories()
    own = values.cat.categories
    positions = pd.Index(categories).get_indexer(own)
    unseen = own[positions < 0].to_numpy()
    positions[positions < 0] = len(categories) + np.arange(len(unseen))
    with_missing = np.append(positions, Code.MISSING)  # pandas encodes missing entries as -1, the last position
    return with_missing[values.cat.codes.to_numpy()].astype(np.int64), unseen


class HierarchyField(ColumnsField[list[Node]]):
    """Field of paths in a hierarchy, which may end above a leaf; codes are -1 below the end."""

    counted = "nodes"
    argument = "hierarchy_keys"

    def read(self, cells: AnnData | MuData) -> list[Node]:
        """Read the path of each cell from the root; missing entries at the lower end shorten it."""
        levels = [obs_column(cells, key, self.argument) for key in self.columns]
        root = levels[0]
        place = f"`{self.argument}`, column {root.name!r}"
        raise_if_missing([root], place, "Only levels below the root may be missing.")
        paths = []
        for cell, entries in enumerate(zip(*(entries_of(level) for level in levels), strict=True)):
            depth = entries.index(None) if None in entries else len(entries)
            below = [level.name for level, entry in zip(levels, entries, strict=True) if entry is not None][depth:]
            if below:
                raise ValueError(
                    f"`{self.argument}`: cell {root.index[cell]!r} has a {below[0]!r} but no {levels[depth].name!r} "
                    "above it. Fill the levels from the root down without a gap."
                )
            paths.append(entries[:depth])
        return paths

    def fit(self, values: list[Node]) -> State:
        return {"columns": list(self.columns), "nodes": nodes_of(values)}

    def code(self, values: list[Node], state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        """Encode nodes; unseen nodes become their last known parent, with a warning; unseen roots raise."""
        nodes = _nodes(state)
        known = set(nodes)
        unseen = [node for node in nodes_of(values) if node not in known]
        unseen_roots = [node[0] for node in unseen if len(node) == 1]
        for level, column in enumerate(self.columns):
            names, new = ({node[-1] for node in group if len(node) == level + 1} for group in (nodes, unseen))
            self.raise_if_same_spelling(column, new - names, names)
        if extend:
            nodes += unseen
        elif unseen_roots:
            roots = [node[0] for node in nodes if len(node) == 1]
            raise ValueError(
                f"`{self.argument}`: {counted(len(unseen_roots), 'unseen root')} ({listed(unseen_roots)}) in column "
                f"{self.columns[0]!r}; the registered ones are {listed(roots)}.{did_you_mean(unseen_roots[0], roots)} "
                "Leave these cells out, or rename the root."
            )
        elif unseen:
            warn_user(
                f"`{self.argument}`: {counted(len(unseen), 'unseen node')} ({listed(unseen)}); these cells get the "
                "last known parent."
            )
        return encode_paths(values, nodes, len(self.columns)), {**state, "nodes": nodes}

    @classmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
        n_nodes, n_levels = len(state["nodes"]), len(state["columns"])
        return [ConditionSpec(NAME, "hierarchy", registry_key=key, n_categories=n_nodes, n_slots=n_levels)]

    @classmethod
    def request_columns(cls, name: str, state: State) -> list[str]:
        return list(state["columns"])

    @classmethod
    def code_request(cls, table: pd.DataFrame, state: State) -> np.ndarray:
        """Encode nodes of a request, in which levels may be omitted."""
        levels, nodes = list(state["columns"]), _nodes(state)
        given = {level: entries_of(table[level]) for level in levels if level in table}
        paths: list[Node] = []
        for row in range(len(table)):
            entries = {level: column[row] for level, column in given.items() if column[row] is not None}
            try:
                paths.append(find_node(entries, levels, nodes) if entries else ())
            except ValueError as error:
                raise ValueError(f"Condition {NAME!r}, row {row}: {error}") from None
        return encode_paths(paths, nodes, len(levels))


def nodes_of(paths: Sequence[Node]) -> list[Node]:
    """List all nodes on given paths, level by level; the position of a node is its id."""
    nodes = {path[: depth + 1] for path in set(paths) for depth in range(len(path))}
    return sorted(nodes, key=lambda node: (len(node), [(type(name).__name__, name) for name in node]))


def encode_paths(paths: Sequence[Node], nodes: Sequence[Node], n_levels: int) -> np.ndarray:
    """Encode paths as node ids ``(cells, n_levels)`` int64, -1 below the last known node."""
    ids = {node: code for code, node in enumerate(nodes)}
    row_of_path = {}
    for path in set(paths):
        row = [ids.get(path[: depth + 1], -1) for depth in range(len(path))]
        row_of_path[path] = row + [-1] * (n_levels - len(path))
    return np.array([row_of_path[path] for path in paths], dtype=np.int64).reshape(len(paths), n_levels)


def find_node(given: Mapping[str, Any], levels: Sequence[str], nodes: Sequence[Node]) -> Node:
    """Find the node named by at least one level; higher levels may be omitted if the node is unique."""
    positions = {levels.index(level): plain(name) for level, name in given.items()}
    depth = max(positions) + 1
    same_level = [node for node in nodes if len(node) == depth]
    matching = [node for node in same_level if all(node[level] == name for level, name in positions.items())]
    if len(matching) == 1:
        return matching[0]
    requested = ", ".join(f"{levels[level]}={name!r}" for level, name in sorted(positions.items()))
    if matching:
        raise ValueError(f"{requested} is at several nodes: {listed(matching)}. Pass {levels[0]!r}, too.")
    names = list(dict.fromkeys(node[-1] for node in same_level))
    elsewhere = [node[:-1] for node in same_level if node[-1] == positions[depth - 1]]
    if elsewhere:
        raise ValueError(
            f"There is no node {requested}; {positions[depth - 1]!r} is registered under {listed(elsewhere)}."
        )
    raise ValueError(
        f"There is no node {requested}; the registered {levels[depth - 1]!r} are {listed(names)}."
        f"{did_you_mean(positions[depth - 1], names)} Leave the level out to request its parent."
    )


def _nodes(state: State) -> list[Node]:
    return [tuple(node) for node in state["nodes"]]
