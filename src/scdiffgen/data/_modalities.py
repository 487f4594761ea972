"""Modalities of a MuData: each is counts of its own, and some cells may lack some of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scvi.data.fields import BaseMuDataWrapperClass

from scdiffgen._messages import did_you_mean, listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.data._counts_field import CountsField
from scdiffgen.data._registry import as_registry, required_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anndata import AnnData
    from mudata import MuData
    from scvi.data import AnnDataManager

    from scdiffgen.data._registry import Registry


class ModalityCountsField(BaseMuDataWrapperClass):
    """Molecule counts of one modality, checked as those of an AnnData are.

    Other cells may lack the modality: they are taken for cells without a molecule of it.

    Parameters
    ----------
    registry_key
        Name of the field in the registry.
    layer
        Layer of the modality that holds the counts; None for its ``.X``.
    modality
        Key in ``mdata.mod``.
    may_be_empty
        Whether cells may have no molecule, because they have some of other modalities.

    Examples
    --------
    >>> import anndata as ad, mudata
    >>> mdata = mudata.MuData({"prot": ad.AnnData(np.array([[3.0, 0.0], [1.0, 2.0]]))})
    >>> ModalityCountsField("X", None, "prot").register_field(mdata)["n_vars"]
    2
    """

    def __init__(self, registry_key: str, layer: str | None, modality: str, *, may_be_empty: bool = False) -> None:
        super().__init__(mod_key=modality, mod_required=True)
        self._adata_field = CountsField(registry_key, layer, may_be_empty=may_be_empty)

    def register_field(self, mdata: MuData) -> dict[str, Any]:
        """Check the counts, and store them by rows.

        Parameters
        ----------
        mdata
            Cells.

        Returns
        -------
        The field's state: numbers of cells and genes, names of the genes.
        """
        with self._named():
            return super().register_field(mdata)

    def transfer_field(self, state_registry: dict[str, Any], mdata_target: MuData, **kwargs: Any) -> dict[str, Any]:
        """Register other cells, which have the same genes in the same order, or lack the modality.

        Parameters
        ----------
        state_registry
            The field's state on the cells it was first registered on.
        mdata_target
            The other cells.
        **kwargs
            What the manager tells other fields; not looked at.

        Returns
        -------
        The field's state on these cells.
        """
        if self.mod_key not in mdata_target.mod or not mdata_target.mod[self.mod_key].n_obs:
            return dict(state_registry)
        with self._named():
            return super().transfer_field(state_registry, mdata_target, **kwargs)

    def check_the_rest(self, mdata: MuData) -> None:
        """Raise if a modality that is not in memory holds no counts, of which some were looked at before.

        Parameters
        ----------
        mdata
            Registered cells.
        """
        if self.mod_key in mdata.mod:
            with self._named():
                self._adata_field.check_the_rest(mdata.mod[self.mod_key])

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say of what modality a message speaks."""
        try:
            yield
        except (KeyError, ValueError) as error:
            message = error.args[0] if error.args else ""
            raise type(error)(f"Modality {self.mod_key!r} (`adata` is `mdata[{self.mod_key!r}]`): {message}") from error


def modality_fields(modalities: Sequence[str], layers: Mapping[str, str | None]) -> list[ModalityCountsField]:
    """Make the fields that register the counts of all modalities.

    Parameters
    ----------
    modalities
        Keys in ``mdata.mod``.
    layers
        Layer of the counts of a modality; those left out have them in ``.X``.

    Returns
    -------
    The fields. The counts of the first are where an AnnData's are in a minibatch.

    Examples
    --------
    >>> [field.registry_key for field in modality_fields(["rna", "prot"], {})]
    ['X', 'X_prot']
    """
    several = len(modalities) > 1
    keys = _registry_keys(modalities)
    return [ModalityCountsField(keys[name], layers.get(name), name, may_be_empty=several) for name in modalities]


def modality_names(registry: Registry | AnnDataManager) -> list[str]:
    """The modalities that were registered, in their order.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.

    Returns
    -------
    Keys in ``mdata.mod``; none if the cells were an AnnData.

    Examples
    --------
    >>> modality_names({"setup_method_name": "setup_anndata", "setup_args": {}})
    []
    """
    registry = as_registry(registry)
    if registry.get("setup_method_name") != "setup_mudata":
        return []
    return list(registry["setup_args"]["modalities"])


def counts_keys(registry: Registry | AnnDataManager) -> dict[str, int]:
    """Where the counts are in a minibatch, and how many genes each of them has.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.

    Returns
    -------
    Number of genes by registry key: one, or one for each modality in their order.
    """
    keys = list(_registry_keys(modality_names(registry)).values()) or [REGISTRY_KEYS.X]
    return {key: int(required_state(registry, key)["n_vars"]) for key in keys}


def feature_names(registry: Registry | AnnDataManager) -> dict[str, np.ndarray]:
    """Names of the genes, proteins or peaks of each modality.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.
    """
    keys = _registry_keys(modality_names(registry))
    return {name: np.asarray(required_state(registry, key)["column_names"]) for name, key in keys.items()}


def check_modalities(
    mdata: MuData, modalities: Sequence[str] | None, layers: Mapping[str, str | None] | None, *, transfer: bool
) -> list[str]:
    """Raise unless the modalities can be registered.

    Parameters
    ----------
    mdata
        Cells.
    modalities
        Keys in ``mdata.mod``; None for all.
    layers
        Layers by modality.
    transfer
        Whether the modalities were registered before, on other cells: these may lack some.

    Returns
    -------
    Keys of the modalities to register.

    Raises
    ------
    TypeError
        If an argument is of another type.
    ValueError
        If a modality is not there or named twice, a layer is for none of them, or cells are named twice.

    Examples
    --------
    >>> import anndata as ad, mudata
    >>> mdata = mudata.MuData({"rna": ad.AnnData(np.ones((2, 1)))})
    >>> check_modalities(mdata, None, None, transfer=False)
    ['rna']
    """
    if isinstance(modalities, str):
        raise TypeError(f"`modalities={modalities!r}` must be a list: write `modalities=[{modalities!r}]`.")
    if not (layers is None or isinstance(layers, Mapping)):
        raise TypeError(f"`layers` is {layers!r}: pass a layer for each modality that has one, {{'rna': 'counts'}}.")
    names = list(mdata.mod) if modalities is None else list(modalities)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"`modalities` is {names}: name each modality once, of {listed(mdata.mod)}.")
    missing = [name for name in names if name not in mdata.mod]
    if len(missing) == len(names) or (missing and not transfer):
        raise ValueError(
            f"`modalities` names {missing[0]!r}, but `mdata.mod` has {listed(mdata.mod) or 'none'}."
            f"{did_you_mean(missing[0], mdata.mod)}"
        )
    unknown = [name for name in layers or {} if name not in names]
    if unknown:
        raise ValueError(f"`layers` names {unknown[0]!r}, which is none of the modalities ({listed(names)}).")
    if mdata.axis != 0:
        raise ValueError(f"`mdata.axis` is {mdata.axis}: pass a MuData whose modalities share cells, `axis=0`.")
    if not mdata.obs_names.is_unique:
        twice = mdata.obs_names[mdata.obs_names.duplicated()].unique()
        raise ValueError(f"`mdata.obs_names` are not unique: {listed(twice)} occur more than once. Rename these cells.")
    return names


def rows_in(modality: AnnData, cells: pd.Index) -> np.ndarray:
    """Row of each cell in a modality.

    Parameters
    ----------
    modality
        The modality.
    cells
        Names of the cells.

    Returns
    -------
    (cells,) rows; -1 for a cell that lacks the modality.

    Examples
    --------
    >>> import anndata as ad
    >>> cells = ad.AnnData(np.ones((2, 1)), obs=pd.DataFrame(index=["c1", "c0"]))
    >>> rows_in(cells, pd.Index(["c0", "c1", "c2"]))
    array([ 1,  0, -1])
    """
    return modality.obs_names.get_indexer(cells)


def _registry_keys(modalities: Sequence[str]) -> dict[str, str]:
    """Registry key of each modality's counts; the first has that of an AnnData's."""
    first = REGISTRY_KEYS.X
    return {name: f"{first}_{name}" if position else first for position, name in enumerate(modalities)}
