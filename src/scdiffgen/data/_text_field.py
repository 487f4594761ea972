"""Descriptions of the cells: categories that are known by the vectors of a sentence encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scdiffgen._messages import plain
from scdiffgen._text import embed_texts
from scdiffgen.data._category_fields import StrictCategoricalObsField

if TYPE_CHECKING:
    from anndata import AnnData


class TextField(StrictCategoricalObsField):
    """One column of descriptions, each distinct one embedded once and kept.

    Parameters
    ----------
    registry_key
        Name of the field in the registry; codes are written to ``adata.obs["_scvi_<registry_key>"]``.
    attr_key
        Column of ``adata.obs``.
    argument
        The argument through which the user names the column.

    Examples
    --------
    >>> import anndata as ad, pandas as pd
    >>> obs = pd.DataFrame({"note": ["a naive T cell", "a hepatocyte"] * 2}, index=[*"abcd"])
    >>> field = TextField("text", "note", argument="text_key")
    >>> field.register_field(ad.AnnData(np.ones((4, 1)), obs=obs))["features"].shape  # doctest: +SKIP
    (2, 384)
    """

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Code the cells by the descriptions that occur, and embed these.

        Parameters
        ----------
        adata
            Cells.

        Returns
        -------
        The field's state: the descriptions in the order of their codes, their vectors, and the column they come from.
        """
        state = super().register_field(adata)
        return {**state, "features": self._embed(state[self.CATEGORICAL_MAPPING_KEY])}

    def transfer_field(
        self, state_registry: dict[str, Any], adata_target: AnnData, extend_categories: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Code other cells by the descriptions registered before; no known description is embedded again.

        Parameters
        ----------
        state_registry
            The field's state on the cells it was first registered on.
        adata_target
            The other cells.
        extend_categories
            Whether unseen descriptions are embedded and appended; they raise otherwise.
        **kwargs
            What the manager tells other fields; not looked at.

        Returns
        -------
        The field's state on these cells.
        """
        state = super().transfer_field(state_registry, adata_target, extend_categories, **kwargs)
        known = state_registry["features"]
        unseen = state[self.CATEGORICAL_MAPPING_KEY][len(known) :]
        return {**state, "features": np.concatenate([known, self._embed(unseen)])}

    def _embed(self, texts: np.ndarray) -> np.ndarray:
        strangers = [text for text in texts if not isinstance(text, str)]
        if strangers:
            raise ValueError(
                f"`{self._argument}={self._original_attr_key!r}`: {plain(strangers[0])!r} is no text. Register such "
                "columns as `categorical_covariate_keys` or `continuous_covariate_keys`."
            )
        return embed_texts(texts)
