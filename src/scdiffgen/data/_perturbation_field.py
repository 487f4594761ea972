"""Perturbations of the cells: sets of names with their doses, as ids and doses in ``adata.obsm``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scvi import settings

from scdiffgen._messages import counted, did_you_mean, listed
from scdiffgen.conditions import NumberTransform
from scdiffgen.data._cell_treatments import named, names_by_column, read_treatments
from scdiffgen.data._components import component_of_name, components_of_columns, components_of_names
from scdiffgen.data._extend import extended_perturbations
from scdiffgen.data._number_field import pack_transforms
from scdiffgen.data._obsm_field import ObsmOfColumnsField, state_table
from scdiffgen.data._perturbation_features import features_of, read_features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anndata import AnnData
    from rich.table import Table

    from scdiffgen.conditions import PerturbationSyntax
    from scdiffgen.data._cell_treatments import Treatments


class PerturbationField(ObsmOfColumnsField):
    """What was done to each cell: no, one or several perturbations, each at a dose if doses are registered.

    Columns with a part each tell kinds of perturbations apart, such as knock-outs and drugs: columns that share a name
    hold the same kind, a *component*. ``adata.obsm["_scvi_<registry_key>"]`` holds the ids of the parts (-1 is
    padding), then as many doses (0 where unused).

    Parameters
    ----------
    registry_key
        Name of the field in the registry.
    columns
        One column of ``adata.obs`` with entries such as ``"A+B"``, or several columns with a part each.
    syntax
        How perturbations are written.
    dose_columns
        One column of doses for each of ``columns``; none if there are no doses.
    dose_unit
        What doses are measured in.
    features_key
        Key of ``adata.uns`` with a feature vector of each perturbation; None for none.

    Examples
    --------
    >>> import anndata as ad, pandas as pd
    >>> from scdiffgen.conditions import PerturbationSyntax
    >>> cells = ad.AnnData(np.ones((3, 1)), obs=pd.DataFrame({"guide": ["ctrl", "B+A", "A"]}, index=[*"xyz"]))
    >>> field = PerturbationField("perturbation", ["guide"], PerturbationSyntax(control=("ctrl",)))
    >>> field.register_field(cells)["names"].tolist()
    ['A', 'B']
    >>> cells.obsm["_scvi_perturbation"][:, :2].tolist()
    [[-1.0, -1.0], [0.0, 1.0], [0.0, -1.0]]
    """

    def __init__(
        self,
        registry_key: str,
        columns: Sequence[str],
        syntax: PerturbationSyntax,
        *,
        dose_columns: Sequence[str] = (),
        dose_unit: str | None = None,
        features_key: str | None = None,
    ) -> None:
        super().__init__(registry_key)
        self._columns = list(columns)
        self._dose_columns = list(dose_columns)
        self._syntax = syntax
        self._dose_unit = dose_unit
        self._features_key = features_key

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Read perturbations and doses, number the names, and fit the transform of the doses.

        Parameters
        ----------
        adata
            Cells.

        Returns
        -------
        The field's state: names in the order of their ids, their doses, components and features, and how they are
        written.
        """
        treatments = read_treatments(adata, self._columns, self._dose_columns, self._syntax)
        if not treatments.names:
            raise ValueError(
                f"{named(self._columns)}: every cell is a control ({listed(self._syntax.control)}). Leave it out."
            )
        if all(treatments.distinct):
            self._warn_of_no_control(treatments)
        state = {
            "columns": self._columns,
            "dose_columns": self._dose_columns,
            "control": list(self._syntax.control),
            "separator": self._syntax.separator,
            "n_slots": treatments.n_slots,
            **self._numbered(adata, treatments.names),
        }
        columns = self._names_by_column(adata, treatments)
        state["column_components"] = components_of_columns(columns)
        known = component_of_name(columns, state["column_components"])
        state["components"] = components_of_names(state["names"], known, state["features"])
        state["dose_min"], state["dose_max"] = treatments.dose_ranges(state["names"])
        state["dose_transform"] = None
        if self._dose_columns:
            transform = NumberTransform.fit(treatments.doses, "log1p", self._dose_unit)
            state["dose_transform"] = pack_transforms([transform])
        self._write(adata, treatments.coded(_ids(state), state["n_slots"]))
        return state

    def transfer_field(
        self, state_registry: dict[str, Any], adata_target: AnnData, extend_categories: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Read perturbations and doses of other cells by the names registered before.

        Parameters
        ----------
        state_registry
            The field's state on the cells it was first registered on.
        adata_target
            The other cells.
        extend_categories
            Whether unseen perturbations are appended (with their feature vectors, if features are registered); they
            raise otherwise.
        **kwargs
            What the manager tells other fields; not looked at.

        Returns
        -------
        The field's state on these cells.
        """
        treatments = read_treatments(adata_target, self._columns, self._dose_columns, self._syntax)
        state = dict(state_registry)
        unseen = [name for name in treatments.names if name not in set(state["names"])]
        if unseen and not extend_categories:
            raise ValueError(
                f"{named(self._columns)}: {counted(len(unseen), 'unseen perturbation')} ({listed(unseen)}); the "
                f"registered ones are {listed(state['names'])}.{did_you_mean(unseen[0], state['names'])} Leave these "
                "cells out, or rename the perturbation."
            )
        if unseen:
            columns = self._names_by_column(adata_target, treatments)
            components = component_of_name(columns, state["column_components"])
            vectors = self._vectors(adata_target, unseen)
            state = extended_perturbations(
                state,
                unseen,
                vectors,
                f"`perturbation_features_key={self._features_key!r}`",
                {name: components[name] for name in unseen},
            )
            for bound, values in zip(("dose_min", "dose_max"), treatments.dose_ranges(unseen), strict=True):
                state[bound][-len(unseen) :] = values
        state["n_slots"] = max(state["n_slots"], treatments.n_slots)
        self._write(adata_target, treatments.coded(_ids(state), state["n_slots"]))
        return state

    def get_summary_stats(self, state_registry: dict[str, Any]) -> dict[str, int]:
        """Count the names.

        Parameters
        ----------
        state_registry
            The field's state.

        Returns
        -------
        ``n_<registry_key>``.
        """
        return {f"n_{self.registry_key}": len(state_registry["names"])}

    def view_state_registry(self, state_registry: dict[str, Any]) -> Table:
        """Show names and ranges of doses.

        Parameters
        ----------
        state_registry
            The field's state.

        Returns
        -------
        A table to print.
        """
        rows = [
            (str(name), str(code), "" if np.isnan(low) else f"{low:g} to {high:g}")
            for code, (name, low, high) in enumerate(
                zip(state_registry["names"], state_registry["dose_min"], state_registry["dose_max"], strict=True)
            )
        ]
        source = ", ".join(f"adata.obs[{column!r}]" for column in state_registry["columns"])
        return state_table(self.registry_key, (f"Perturbation ({source})", "Code", "Doses"), rows)

    def _numbered(self, adata: AnnData, names: Sequence[str]) -> dict[str, Any]:
        """Names in the order of their ids, those of `adata` and all with a feature vector, and the vectors."""
        if self._features_key is None:
            return {"names": np.array(names, dtype=object), "features": None}
        table = read_features(adata.uns, self._features_key, self._syntax)
        features_of(names, table, self._features_key)
        every = sorted({*names, *table.index})
        return {
            "names": np.array(every, dtype=object),
            "features": features_of(every, table, self._features_key),
        }

    def _vectors(self, adata: AnnData, names: Sequence[str]) -> np.ndarray | None:
        if self._features_key is None:
            return None
        return features_of(names, read_features(adata.uns, self._features_key, self._syntax), self._features_key)

    def _names_by_column(self, adata: AnnData, treatments: Treatments) -> list[set[str]]:
        if len(self._columns) == 1:
            return [set(treatments.names)]
        return names_by_column(adata, self._columns, self._syntax)

    def _warn_of_no_control(self, treatments: Treatments) -> None:
        warnings.warn(
            f"{named(self._columns)}: no cell is a control (`control` is {listed(self._syntax.control)}). Effects are "
            f"measured against controls; if one of {listed(treatments.names)} is the control, name it in `control`."
            f"{did_you_mean(self._syntax.control[0], treatments.names)}",
            UserWarning,
            stacklevel=settings.warnings_stacklevel,
        )


def _ids(state: dict[str, Any]) -> dict[str, int]:
    return {name: code for code, name in enumerate(state["names"])}
