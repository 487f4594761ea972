"""scvi-tools' AnnDataManager with two faults mended, and a way round its trap for copies."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

from mudata import MuData
from scvi.data import AnnDataManager

from scdiffgen._messages import did_you_mean
from scdiffgen.data._counts_field import CountsField

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    from anndata import AnnData

    from scdiffgen.data._registry import Registry

_TRANSFER_OPTIONS = ("allow_missing_labels", "extend_categories")
_KEPT_BY_TRANSFER = ("model_name", "setup_method_name", "setup_args")
_UUID = "_scvi_uuid"
_PREFIX = "_scvi_"


class Manager(AnnDataManager):
    """Registers the fields of a model on data.

    Unlike its parent it leaves the data as they were when a field raises, and remembers through a transfer which setup
    method was called (otherwise a model given new MuData saves a file that cannot be loaded).

    Examples
    --------
    >>> import anndata as ad, numpy as np
    >>> from scdiffgen.data import CountsField
    >>> manager = Manager(fields=[CountsField("X", layer=None)])
    >>> manager.register_fields(ad.AnnData(np.array([[3.0, 0.0], [1.0, 2.0]])))
    >>> manager.summary_stats.n_vars
    2
    """

    def register_fields(
        self, adata: AnnData | MuData, source_registry: dict[str, Any] | None = None, **transfer_kwargs: Any
    ) -> None:
        """Register all fields, or none of them if one raises.

        Parameters
        ----------
        adata
            Cells.
        source_registry
            Registry of earlier cells whose codes are kept.
        **transfer_kwargs
            ``extend_categories=True`` appends unseen categories instead of raising.

        Raises
        ------
        TypeError
            If an argument is unknown.
        """
        for name in transfer_kwargs:
            if name not in _TRANSFER_OPTIONS:
                known = self._registry.get("setup_args", {})
                setup = self._registry.get("setup_method_name", "setup_anndata")
                raise TypeError(f"`{setup}` has no argument {name!r}.{did_you_mean(name, known)}")
        with unchanged_on_error(adata):
            super().register_fields(adata, source_registry, **transfer_kwargs)

    def transfer_fields(self, adata_target: AnnData | MuData, **kwargs: Any) -> Manager:
        """Register other cells as these are; the counts of cells without layers, as generated ones are, are in ``.X``.

        Parameters
        ----------
        adata_target
            The other cells.
        **kwargs
            As in :meth:`register_fields`.

        Returns
        -------
        Their manager.
        """
        reading = copy(self)
        reading.fields = [
            field.where_counts_are(adata_target) if isinstance(field, CountsField) else field for field in self.fields
        ]
        return super(Manager, reading).transfer_fields(adata_target, **kwargs)

    def with_registry(self, registry: Registry) -> Manager:
        """Another manager of the same cells, with an extended registry.

        Parameters
        ----------
        registry
            This manager's registry with further categories; the codes of the known ones are the same.

        Returns
        -------
        The manager with that registry; this one is not changed.
        """
        extended = copy(self)
        extended._registry = registry
        extended._source_registry = deepcopy(registry)  # what the cells are coded by when they are registered again
        return extended

    def _get_setup_method_args(self) -> dict[str, Any]:
        return {key: self._registry[key] for key in _KEPT_BY_TRANSFER if key in self._registry}


def forget_copied_setup(adata: AnnData | MuData, managers: Mapping[str, AnnDataManager]) -> None:
    """Let a copy of registered data be registered as data of its own.

    ``adata.copy()`` also copies the identifier by which scvi-tools finds the registration, and registering the copy
    then invalidates the original.

    Parameters
    ----------
    adata
        Data about to be registered; its identifier is removed if it belongs to other data.
    managers
        The registrations known so far, by identifier: ``Model._setup_adata_manager_store``.

    Examples
    --------
    >>> import anndata as ad, numpy as np
    >>> from scdiffgen.data import CountsField
    >>> cells = ad.AnnData(np.array([[3.0, 0.0], [1.0, 2.0]]))
    >>> manager = Manager(fields=[CountsField("X", layer=None)])
    >>> manager.register_fields(cells)
    >>> copied = cells.copy()
    >>> forget_copied_setup(copied, {manager.adata_uuid: manager})
    >>> "_scvi_uuid" in copied.uns, "_scvi_uuid" in cells.uns
    (False, True)
    """
    manager = managers.get(adata.uns.get(_UUID))
    if manager is not None and manager.adata is not adata:
        del adata.uns[_UUID]


@contextmanager
def unchanged_on_error(data: AnnData | MuData) -> Iterator[None]:
    """Leave what scvi-tools' fields write as it was, if the block raises.

    Parameters
    ----------
    data
        Data about to be registered.
    """
    parts = [data, *data.mod.values()] if isinstance(data, MuData) else [data]
    parts = [part for part in parts if not part.is_view]  # views are refused before anything is written
    before = [_snapshot(part) for part in parts]
    try:
        yield
    except Exception:
        for part, kept in zip(parts, before, strict=True):
            _restore(part, kept)
        raise


def _snapshot(data: AnnData | MuData) -> tuple[pd.DataFrame, dict[str, Any], dict[str | None, Any]]:
    """What the fields may write: columns of `obs`, entries of `obsm`, and matrices, which are not copied."""
    obs = data.obs[[column for column in data.obs.columns if str(column).startswith(_PREFIX)]].copy()
    obsm = {key: data.obsm[key] for key in data.obsm.keys() if key.startswith(_PREFIX)}
    matrices: dict[str | None, Any] = {}
    if not isinstance(data, MuData):
        matrices = {key: matrix for key, matrix in data.layers.items() if key is not None}
        if not data.isbacked:
            matrices[None] = data.X
    return obs, obsm, matrices


def _restore(data: AnnData | MuData, kept: tuple[pd.DataFrame, dict[str, Any], dict[str | None, Any]]) -> None:
    obs, obsm, matrices = kept
    for column in [column for column in data.obs.columns if str(column).startswith(_PREFIX)]:
        del data.obs[column]
    for column in obs.columns:
        data.obs[column] = obs[column]
    for key in [key for key in data.obsm.keys() if key.startswith(_PREFIX)]:
        del data.obsm[key]
    for key, values in obsm.items():
        data.obsm[key] = values
    for layer, matrix in matrices.items():
        current = data.X if layer is None else data.layers[layer]
        if current is not matrix and layer is None:
            data.X = matrix
        elif current is not matrix:
            data.layers[layer] = matrix
