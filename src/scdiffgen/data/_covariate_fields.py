"""Fields of categories, text descriptions and numbers in ``.obs``."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData

from scdiffgen._messages import counted, did_you_mean, listed, plain, warn_user
from scdiffgen._text import TEXT_DIM, embed_texts
from scdiffgen.conditions import Code, ConditionSpec, NumberTransform
from scdiffgen.data._columns_field import ColumnsField, State, numbers, obs_column, raise_if_missing, requested_column

LABEL_TYPES = (str, bytes, bool, int, float, np.generic)


class CategoricalCovariatesField(ColumnsField):
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


class ContinuousCovariatesField(ColumnsField):
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
        """Return the transform of each column."""
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
