"""scvi-tools' AnnDataManager with two faults mended, and for a MuData in which some cells may lack some modalities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scipy import sparse
from scvi.data import AnnDataManager, AnnDataManagerValidationCheck
from scvi.data.fields import BaseAnnDataField

from scdiffgen._messages import counted, did_you_mean, listed
from scdiffgen.data._counts import blocks
from scdiffgen.data._counts_field import CountsField
from scdiffgen.data._modality_counts import counts_keys, modality_names
from scdiffgen.data._registry import Registry

_TRANSFER_OPTIONS = ("allow_missing_labels", "extend_categories")
_KEPT_BY_TRANSFER = ("model_name", "setup_method_name", "setup_args")
_UUID = "_scvi_uuid"
_PREFIX = "_scvi_"

Snapshot = tuple[pd.DataFrame, dict[str, Any], dict[str | None, Any]]


class Manager(AnnDataManager):
    """Registers the fields of a model on data.

    Unlike its parent it leaves the data as they were when a field raises, and remembers through a transfer which setup
    method was called (otherwise a model given new MuData saves a file that cannot be loaded).
    """

    def register_fields(
        self, adata: AnnData | MuData, source_registry: dict[str, Any] | None = None, **transfer_kwargs: Any
    ) -> None:
        """Register all fields, or none of them if one raises."""
        for name in transfer_kwargs:
            if name not in _TRANSFER_OPTIONS:
                known = self._registry.get("setup_args", {})
                setup = self._registry.get("setup_method_name", "setup_anndata")
                raise TypeError(f"`{setup}` has no argument {name!r}.{did_you_mean(name, known)}")
        with unchanged_on_error(adata):
            super().register_fields(adata, source_registry, **transfer_kwargs)

    def transfer_fields(self, adata_target: AnnData | MuData, **kwargs: Any) -> Manager:
        """Register other cells as these are; counts of cells without layers, as generated ones are, are in ``.X``."""
        reading = copy(self)
        reading.fields = [
            field.where_counts_are(adata_target) if isinstance(field, CountsField) else field for field in self.fields
        ]
        return super(Manager, reading).transfer_fields(adata_target, **kwargs)

    def with_registry(self, registry: Registry) -> Manager:
        """Another manager of the same cells, with an extended registry in which known codes are the same."""
        extended = copy(self)
        extended._registry = registry
        extended._source_registry = deepcopy(registry)  # what the cells are coded by when they are registered again
        return extended

    def _get_setup_method_args(self) -> dict[str, Any]:
        return {key: self._registry[key] for key in _KEPT_BY_TRANSFER if key in self._registry}


class MuDataManager(Manager):
    """Registers the fields of a model on a MuData.

    A cell that lacks a modality is one without a molecule of it; a cell has molecules of some modality.
    """

    def __init__(
        self,
        fields: list[BaseAnnDataField],
        setup_method_args: dict[str, Any] | None = None,
        validation_checks: AnnDataManagerValidationCheck | None = None,
    ) -> None:
        checks = validation_checks or AnnDataManagerValidationCheck(check_fully_paired_mudata=False)
        super().__init__(fields, setup_method_args, checks)

    def register_fields(
        self, adata: MuData, source_registry: dict[str, Any] | None = None, **transfer_kwargs: Any
    ) -> None:
        """Register all fields, or none of them if one raises or a cell has no molecule of any modality."""
        with unchanged_on_error(adata):
            super().register_fields(adata, source_registry, **transfer_kwargs)
            total = np.zeros(adata.n_obs)
            for key in counts_keys(self):
                for row, _, block in blocks(self.get_from_registry(key)):
                    total[row : row + block.shape[0]] += np.asarray(block.sum(axis=1)).ravel()
            empty = adata.obs_names[total == 0]
            if len(empty):
                raise ValueError(
                    f"{counted(len(empty), 'cell')} without a molecule of any modality "
                    f"({listed(modality_names(self))}): {listed(empty)}. Keep the others, "
                    "`mdata = mdata[cells_with_molecules].copy()`."
                )

    def get_from_registry(self, registry_key: str) -> Any:
        """What was registered, a row a cell: also where a modality has cells in another order, or lacks some."""
        modality = self.data_registry[registry_key].get("mod_key")
        if modality is None:
            return super().get_from_registry(registry_key)
        cells = self.adata.obs_names
        if modality not in self.adata.mod or not self.adata.mod[modality].n_obs:
            return sparse.csr_matrix((len(cells), counts_keys(self)[registry_key]), dtype=np.float32)
        rows = self.adata.mod[modality].obs_names.get_indexer(cells)  # -1 for a cell that lacks the modality
        counts = super().get_from_registry(registry_key)
        in_order = np.array_equal(rows, np.arange(counts.shape[0]))
        in_memory = isinstance(counts, np.ndarray | sparse.csr_matrix)
        if not in_memory and not (in_order and len(counts_keys(self)) == 1):
            raise ValueError(
                f"The counts of modality {modality!r} lie in a file, which is read for one modality of all cells only: "
                "read them into memory, `mudata.read_h5mu(path)`."
            )
        return counts if in_order else _with_empty_rows(sparse.csr_matrix(counts), rows)


def forget_copied_setup(adata: AnnData | MuData, managers: Mapping[str, AnnDataManager]) -> None:
    """Let a copy of registered data be registered as data of its own; ``managers`` are those known by identifier.

    ``adata.copy()`` also copies the identifier by which scvi-tools finds the registration, and registering the copy
    then invalidates the original.
    """
    manager = managers.get(adata.uns.get(_UUID))
    if manager is not None and manager.adata is not adata:
        del adata.uns[_UUID]


@contextmanager
def unchanged_on_error(data: AnnData | MuData) -> Iterator[None]:
    """Leave what scvi-tools' fields write as it was, if the block raises."""
    parts = [data, *data.mod.values()] if isinstance(data, MuData) else [data]
    parts = [part for part in parts if not part.is_view]  # views are refused before anything is written
    before = [_snapshot(part) for part in parts]
    try:
        yield
    except Exception:
        for part, kept in zip(parts, before, strict=True):
            _restore(part, kept)
        raise


def _written(keys: Iterable[Any]) -> list[Any]:
    return [key for key in keys if str(key).startswith(_PREFIX)]


def _snapshot(data: AnnData | MuData) -> Snapshot:
    """What the fields may write: columns of `obs`, entries of `obsm`, and matrices, which are not copied."""
    obs = data.obs[_written(data.obs.columns)].copy()
    obsm = {key: data.obsm[key] for key in _written(data.obsm.keys())}
    matrices: dict[str | None, Any] = {}
    if not isinstance(data, MuData):
        matrices = {key: matrix for key, matrix in data.layers.items() if key is not None}
        if not data.isbacked:
            matrices[None] = data.X
    return obs, obsm, matrices


def _restore(data: AnnData | MuData, kept: Snapshot) -> None:
    *annotation, matrices = kept
    for current, before in zip((data.obs, data.obsm), annotation, strict=True):
        for key in _written(current.keys()):
            del current[key]
        for key in before:
            current[key] = before[key]
    for layer, matrix in matrices.items():
        current = data.X if layer is None else data.layers[layer]
        if current is not matrix and layer is None:
            data.X = matrix
        elif current is not matrix:
            data.layers[layer] = matrix


def _with_empty_rows(counts: sparse.csr_matrix, rows: np.ndarray) -> sparse.csr_matrix:
    """Rows of a matrix in another order, -1 for an empty one; in the same order, values are shared and not copied."""
    there = rows >= 0
    if not np.array_equal(rows[there], np.arange(counts.shape[0])):
        counts = counts[rows[there]]
    n_stored = np.zeros(len(rows), dtype=counts.indptr.dtype)
    n_stored[there] = np.diff(counts.indptr)
    indptr = np.concatenate([np.zeros(1, dtype=n_stored.dtype), n_stored.cumsum(dtype=n_stored.dtype)])
    return sparse.csr_matrix((counts.data, counts.indices, indptr), shape=(len(rows), counts.shape[1]))
