"""Categories in ``adata.obs``: one column, or several as one field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scvi.data.fields import CategoricalObsField

from scdiffgen.data._categories import categories_of, encode
from scdiffgen.data._columns import obs_column
from scdiffgen.data._obsm_field import ObsmOfColumnsField, state_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anndata import AnnData
    from rich.table import Table


class StrictCategoricalObsField(CategoricalObsField):
    """One column of categories, coded in the order of the registered categories.

    Unlike its parent it rejects unseen categories of every type (also 0, "" and False), does not count categories
    without cells, and names cells, categories and arguments in its messages.

    Parameters
    ----------
    registry_key
        Name of the field in the registry; codes are written to ``adata.obs["_scvi_<registry_key>"]``.
    attr_key
        Column of ``adata.obs``; None registers all cells as one category.
    argument
        The argument through which the user names the column.

    Examples
    --------
    >>> import anndata as ad, pandas as pd
    >>> cells = ad.AnnData(np.ones((4, 1)), obs=pd.DataFrame({"type": [*"TBTB"]}, index=[*"abcd"]))
    >>> field = StrictCategoricalObsField("labels", "type", argument="labels_key")
    >>> field.register_field(cells)["categorical_mapping"].tolist()
    ['B', 'T']
    >>> cells.obs["_scvi_labels"].tolist()
    [1, 0, 1, 0]
    """

    def __init__(self, registry_key: str, attr_key: str | None, argument: str) -> None:
        super().__init__(registry_key, attr_key)
        self._argument = argument

    def validate_field(self, adata: AnnData) -> None:
        """Raise if the column is missing.

        Parameters
        ----------
        adata
            Cells.
        """
        if not self.is_default:
            obs_column(adata, self._original_attr_key, self._argument)

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Code the cells by the categories that occur.

        Parameters
        ----------
        adata
            Cells.

        Returns
        -------
        The field's state: the categories in the order of their codes, and the column they come from.
        """
        self.validate_field(adata)
        if self.is_default:
            return self._code(adata, np.zeros(1, dtype=np.int64), extend=False)
        column = obs_column(adata, self._original_attr_key, self._argument)
        return self._code(adata, categories_of(column, self._argument), extend=False)

    def transfer_field(
        self, state_registry: dict[str, Any], adata_target: AnnData, extend_categories: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Code other cells by the categories registered before.

        Parameters
        ----------
        state_registry
            The field's state on the cells it was first registered on.
        adata_target
            The other cells.
        extend_categories
            Whether unseen categories are appended; they raise otherwise.
        **kwargs
            What the manager tells other fields; not looked at.

        Returns
        -------
        The field's state on these cells.
        """
        self.validate_field(adata_target)
        return self._code(adata_target, np.asarray(state_registry[self.CATEGORICAL_MAPPING_KEY]), extend_categories)

    def get_summary_stats(self, state_registry: dict[str, Any]) -> dict[str, int]:
        """Count the categories.

        Parameters
        ----------
        state_registry
            The field's state.

        Returns
        -------
        ``n_<registry_key>``.
        """
        return {self.count_stat_key: len(state_registry[self.CATEGORICAL_MAPPING_KEY])}

    def _code(self, adata: AnnData, categories: np.ndarray, extend: bool) -> dict[str, Any]:
        if self.is_default:
            self._original_attr_key = self.attr_key
            codes = np.zeros(adata.n_obs, dtype=np.int64)
        else:
            column = obs_column(adata, self._original_attr_key, self._argument)
            codes, categories = encode(column, categories, self._argument, extend=extend)
        adata.obs[self.attr_key] = codes
        return {self.CATEGORICAL_MAPPING_KEY: categories, self.ORIGINAL_ATTR_KEY: self._original_attr_key}


class CategoricalCovariatesField(ObsmOfColumnsField):
    """Several columns of categories, each coded on its own, as strict as :class:`StrictCategoricalObsField`.

    Parameters
    ----------
    registry_key
        Name of the field in the registry; codes are written to ``adata.obsm["_scvi_<registry_key>"]``.
    columns
        Columns of ``adata.obs``.

    Examples
    --------
    >>> import anndata as ad, pandas as pd
    >>> obs = pd.DataFrame({"donor": ["d2", "d1"] * 2, "sex": ["f"] * 4}, index=[*"abcd"])
    >>> cells = ad.AnnData(np.ones((4, 1)), obs=obs)
    >>> CategoricalCovariatesField("extra_categorical_covs", ["donor", "sex"]).register_field(cells)["n_cats_per_key"]
    [2, 1]
    """

    _argument = "categorical_covariate_keys"

    def __init__(self, registry_key: str, columns: Sequence[str]) -> None:
        super().__init__(registry_key)
        self._columns = list(columns)

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Code the cells by the categories that occur.

        Parameters
        ----------
        adata
            Cells.

        Returns
        -------
        The field's state: columns, and for each its categories in the order of their codes.
        """
        mappings = [categories_of(obs_column(adata, key, self._argument), self._argument) for key in self._columns]
        return self._code(adata, mappings, extend=False)

    def transfer_field(
        self, state_registry: dict[str, Any], adata_target: AnnData, extend_categories: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Code other cells by the categories registered before.

        Parameters
        ----------
        state_registry
            The field's state on the cells it was first registered on.
        adata_target
            The other cells.
        extend_categories
            Whether unseen categories are appended; they raise otherwise.
        **kwargs
            What the manager tells other fields; not looked at.

        Returns
        -------
        The field's state on these cells.
        """
        return self._code(adata_target, list(state_registry["mappings"]), extend_categories)

    def get_summary_stats(self, state_registry: dict[str, Any]) -> dict[str, int]:
        """Count the columns.

        Parameters
        ----------
        state_registry
            The field's state.

        Returns
        -------
        ``n_<registry_key>``.
        """
        return {f"n_{self.registry_key}": len(state_registry["field_keys"])}

    def view_state_registry(self, state_registry: dict[str, Any]) -> Table:
        """Show columns and categories.

        Parameters
        ----------
        state_registry
            The field's state.

        Returns
        -------
        A table to print.
        """
        rows = [
            (f"adata.obs[{key!r}]" if code == 0 else "", str(category), str(code))
            for key, categories in zip(state_registry["field_keys"], state_registry["mappings"], strict=True)
            for code, category in enumerate(categories)
        ]
        return state_table(self.registry_key, ("Source location", "Categories", "Code"), rows)

    def _code(self, adata: AnnData, mappings: Sequence[np.ndarray], extend: bool) -> dict[str, Any]:
        encoded = [
            encode(obs_column(adata, key, self._argument), categories, self._argument, extend=extend)
            for key, categories in zip(self._columns, mappings, strict=True)
        ]
        self._write(adata, np.stack([codes for codes, _ in encoded], axis=1))
        categories = [extended for _, extended in encoded]
        return {
            "field_keys": list(self._columns),
            "mappings": categories,
            "n_cats_per_key": [len(each) for each in categories],
        }
