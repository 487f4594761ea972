"""Numbers in ``adata.obs`` (age, time): values as the user gave them, with the transform that the networks apply."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from scdiffgen.conditions import NumberTransform
from scdiffgen.data._columns import numbers, obs_column
from scdiffgen.data._obsm_field import ObsmOfColumnsField, state_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anndata import AnnData
    from rich.table import Table


class ContinuousCovariatesField(ObsmOfColumnsField):
    """Columns of numbers; NaN stands for "not told".

    Parameters
    ----------
    registry_key
        Name of the field in the registry; values are written to ``adata.obsm["_scvi_<registry_key>"]``.
    columns
        Columns of ``adata.obs``.

    Examples
    --------
    >>> import anndata as ad, pandas as pd
    >>> cells = ad.AnnData(np.ones((2, 1)), obs=pd.DataFrame({"age": [30.0, 50.0]}, index=["c0", "c1"]))
    >>> state = ContinuousCovariatesField("extra_continuous_covs", ["age"]).register_field(cells)
    >>> state["transforms"]["mean"], state["transforms"]["scale"]
    ([40.0], [10.0])
    """

    _argument = "continuous_covariate_keys"

    def __init__(self, registry_key: str, columns: Sequence[str]) -> None:
        super().__init__(registry_key)
        self._columns = list(columns)

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Read the numbers and fit their transforms.

        Parameters
        ----------
        adata
            Cells.

        Returns
        -------
        The field's state: columns, and the parameters of their transforms, a list each.
        """
        values = self._read(adata)
        for key, known in zip(self._columns, ~np.isnan(values).all(axis=0), strict=True):
            if not known:
                raise ValueError(f"`{self._argument}`: column {key!r} has no number. Leave it out.")
        transforms = [NumberTransform.fit(column, "standardise") for column in values.T]
        self._write(adata, values.astype(np.float32))
        return {"columns": list(self._columns), "transforms": pack_transforms(transforms)}

    def transfer_field(self, state_registry: dict[str, Any], adata_target: AnnData, **kwargs: Any) -> dict[str, Any]:
        """Read the numbers of other cells; the transforms stay those fitted before.

        Parameters
        ----------
        state_registry
            The field's state on the cells it was first registered on.
        adata_target
            The other cells.
        **kwargs
            What the manager tells other fields; not looked at.

        Returns
        -------
        The field's state on these cells.
        """
        self._write(adata_target, self._read(adata_target).astype(np.float32))
        return dict(state_registry)

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
        return {f"n_{self.registry_key}": len(state_registry["columns"])}

    def view_state_registry(self, state_registry: dict[str, Any]) -> Table:
        """Show columns and transforms.

        Parameters
        ----------
        state_registry
            The field's state.

        Returns
        -------
        A table to print.
        """
        transforms = unpack_transforms(state_registry["transforms"])
        rows = [
            (f"adata.obs[{key!r}]", each.kind, f"{each.mean:g}", f"{each.scale:g}")
            for key, each in zip(state_registry["columns"], transforms, strict=True)
        ]
        return state_table(self.registry_key, ("Source location", "Transform", "Mean", "Scale"), rows)

    def _read(self, adata: AnnData) -> np.ndarray:
        columns = [obs_column(adata, key, self._argument) for key in self._columns]
        return np.stack([numbers(column, self._argument) for column in columns], axis=1)


def pack_transforms(transforms: Sequence[NumberTransform]) -> dict[str, list[Any]]:
    """Transforms as plain lists, one a parameter (scvi-tools allows no list of dicts in a state).

    Parameters
    ----------
    transforms
        Transforms.

    Returns
    -------
    For each parameter its value in every transform.

    Examples
    --------
    >>> unpack_transforms(pack_transforms([NumberTransform("log1p", unit="uM")]))
    [NumberTransform(kind='log1p', mean=0.0, scale=1.0, floor=0.0, unit='uM')]
    """
    names = asdict(NumberTransform())
    return {name: [getattr(transform, name) for transform in transforms] for name in names}


def unpack_transforms(packed: dict[str, list[Any]]) -> list[NumberTransform]:
    """Undo :func:`pack_transforms`.

    Parameters
    ----------
    packed
        For each parameter its value in every transform.

    Returns
    -------
    The transforms.
    """
    parameters = [packed[name] for name in asdict(NumberTransform())]
    return [NumberTransform(*values) for values in zip(*parameters, strict=True)]
