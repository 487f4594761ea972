"""Numbers in ``.obs`` (age, time): values as the user gave them, with the transform that the networks apply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData

from scdiffgen.conditions import ConditionSpec, NumberTransform
from scdiffgen.data._columns_field import ColumnsField, State, numbers, obs_column, requested_column


class ContinuousCovariatesField(ColumnsField):
    """Columns of numbers; NaN is missing."""

    counted = "columns"
    titles = ("Source location", "Transform", "Mean", "Scale")
    argument = "continuous_covariate_keys"

    def read(self, cells: AnnData | MuData) -> np.ndarray:
        columns = [obs_column(cells, key, self.argument) for key in self.columns]
        return np.stack([numbers(column, self.argument) for column in columns], axis=1)

    def fit(self, values: np.ndarray) -> State:
        """Columns, and what the transform of each needs (scvi-tools allows no list of dicts, and no dots in a key)."""
        for key, known in zip(self.columns, ~np.isnan(values).all(axis=0), strict=True):
            if not known:
                raise ValueError(f"`{self.argument}`: column {key!r} has no number. Leave it out.")
        fitted = [NumberTransform.fit(column, "standardise") for column in values.T]
        means, scales = [each.mean for each in fitted], [each.scale for each in fitted]
        return {"columns": list(self.columns), "means": means, "scales": scales}

    def code(self, values: np.ndarray, state: State, *, extend: bool) -> tuple[np.ndarray, State]:
        return values.astype(np.float32), state

    @staticmethod
    def transforms(state: State) -> dict[str, NumberTransform]:
        """The transform of each column; data modules of scvi-tools register columns only."""
        names = list(map(str, state["columns"]))
        if "means" not in state:
            return dict.fromkeys(names, NumberTransform())
        fitted = zip(names, state["means"], state["scales"], strict=True)
        return {name: NumberTransform("standardise", mean, scale) for name, mean, scale in fitted}

    @classmethod
    def rows(cls, state: State) -> Iterable[Sequence[str]]:
        return [
            (f"adata.obs[{name!r}]", each.kind, f"{each.mean:g}", f"{each.scale:g}")
            for name, each in cls.transforms(state).items()
        ]

    @classmethod
    def specs(cls, key: str, state: State) -> list[ConditionSpec]:
        return [
            ConditionSpec(name, "number", registry_key=key, column=column, has_values=True, transform=transform)
            for column, (name, transform) in enumerate(cls.transforms(state).items())
        ]

    @classmethod
    def code_request(cls, table: pd.DataFrame, state: State) -> np.ndarray:
        columns = [numbers(requested_column(table, name), "conditions") for name in state["columns"]]
        return np.stack(columns, axis=1).astype(np.float32)
