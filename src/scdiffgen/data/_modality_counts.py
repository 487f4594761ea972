"""Modalities of a MuData: each is counts of its own, and some cells may lack some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from mudata import MuData
from scvi.data import AnnDataManager
from scvi.data.fields import BaseMuDataWrapperClass

from scdiffgen._messages import did_you_mean, listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.data._counts_field import CountsField
from scdiffgen.data._registry import Registry, as_registry, required_state


class ModalityCountsField(BaseMuDataWrapperClass):
    """Molecule counts of one modality, checked as those of an AnnData are.

    Other cells may lack the modality: they are taken for cells without a molecule of it.
    """

    def __init__(self, registry_key: str, layer: str | None, modality: str, *, may_be_empty: bool = False) -> None:
        super().__init__(mod_key=modality, mod_required=True)
        self._adata_field = CountsField(registry_key, layer, may_be_empty=may_be_empty)

    def register_field(self, mdata: MuData) -> dict[str, Any]:
        """Check the counts, and store them by rows."""
        with self._named():
            return super().register_field(mdata)

    def transfer_field(self, state_registry: dict[str, Any], mdata_target: MuData, **kwargs: Any) -> dict[str, Any]:
        """Register other cells, which have the same genes in the same order, or lack the modality."""
        if self.mod_key not in mdata_target.mod or not mdata_target.mod[self.mod_key].n_obs:
            return dict(state_registry)
        with self._named():
            return super().transfer_field(state_registry, mdata_target, **kwargs)

    def check_the_rest(self, mdata: MuData) -> None:
        """Raise if a modality that is not in memory holds no counts, of which some were looked at before."""
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
    """The fields of the counts of all modalities; those of the first are where an AnnData's are in a minibatch."""
    several = len(modalities) > 1
    keys = _registry_keys(modalities)
    return [ModalityCountsField(keys[name], layers.get(name), name, may_be_empty=several) for name in modalities]


def modality_names(registry: Registry | AnnDataManager) -> list[str]:
    """The modalities that were registered, in their order; none if the cells were an AnnData."""
    registry = as_registry(registry)
    if registry.get("setup_method_name") != "setup_mudata":
        return []
    return list(registry["setup_args"]["modalities"])


def counts_keys(registry: Registry | AnnDataManager) -> dict[str, int]:
    """Number of genes by registry key of the counts: one, or one for each modality in their order."""
    keys = list(_registry_keys(modality_names(registry)).values()) or [REGISTRY_KEYS.X]
    return {key: int(required_state(registry, key)["n_vars"]) for key in keys}


def feature_names(registry: Registry | AnnDataManager) -> dict[str, np.ndarray]:
    """Names of the genes, proteins or peaks of each modality."""
    keys = _registry_keys(modality_names(registry))
    return {name: np.asarray(required_state(registry, key)["column_names"]) for name, key in keys.items()}


def check_modalities(
    mdata: MuData, modalities: Sequence[str] | None, layers: Mapping[str, str | None] | None, *, transfer: bool
) -> list[str]:
    """Modalities to register, of None all; in a ``transfer`` from other cells, these may lack some."""
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


def _registry_keys(modalities: Sequence[str]) -> dict[str, str]:
    """Registry key of each modality's counts; the first has that of an AnnData's."""
    first = REGISTRY_KEYS.X
    return {name: f"{first}_{name}" if position else first for position, name in enumerate(modalities)}
