"""Registering a MuData, in which some cells may lack some modalities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scvi.data import AnnDataManagerValidationCheck

from scdiffgen._messages import counted, listed
from scdiffgen.data._counts import blocks
from scdiffgen.data._manager import Manager, unchanged_on_error
from scdiffgen.data._modalities import counts_keys, modality_names, rows_in

if TYPE_CHECKING:
    from mudata import MuData
    from scvi.data.fields import BaseAnnDataField


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
        """Register all fields, or none of them if one raises.

        Parameters
        ----------
        adata
            Cells.
        source_registry, **transfer_kwargs
            As in the base class.

        Raises
        ------
        ValueError
            If a cell has no molecule of any modality.
        """
        with unchanged_on_error(adata):
            super().register_fields(adata, source_registry, **transfer_kwargs)
            self._raise_if_empty()

    def get_from_registry(self, registry_key: str) -> Any:
        """What was registered, a row a cell: also where a modality has cells in another order, or lacks some.

        Parameters
        ----------
        registry_key
            Name of the field.
        """
        modality = self.data_registry[registry_key].get("mod_key")
        if modality is None:
            return super().get_from_registry(registry_key)
        cells = self.adata.obs_names
        if modality not in self.adata.mod or not self.adata.mod[modality].n_obs:
            return sparse.csr_matrix((len(cells), counts_keys(self)[registry_key]), dtype=np.float32)
        rows = rows_in(self.adata.mod[modality], cells)
        counts = super().get_from_registry(registry_key)
        in_order = np.array_equal(rows, np.arange(counts.shape[0]))
        in_memory = isinstance(counts, np.ndarray | sparse.csr_matrix)
        if not in_memory and not (in_order and len(counts_keys(self)) == 1):
            raise ValueError(
                f"The counts of modality {modality!r} lie in a file, which is read for one modality of all cells only: "
                "read them into memory, `mudata.read_h5mu(path)`."
            )
        return counts if in_order else _with_empty_rows(sparse.csr_matrix(counts), rows)

    def _raise_if_empty(self) -> None:
        """Raise if cells have no molecules."""
        total = np.zeros(self.adata.n_obs)
        for key in counts_keys(self):
            for row, _, block in blocks(self.get_from_registry(key)):
                total[row : row + block.shape[0]] += np.asarray(block.sum(axis=1)).ravel()
        empty = self.adata.obs_names[total == 0]
        if len(empty):
            raise ValueError(
                f"{counted(len(empty), 'cell')} without a molecule of any modality ({listed(modality_names(self))}): "
                f"{listed(empty)}. Keep the others, `mdata = mdata[cells_with_molecules].copy()`."
            )


def _with_empty_rows(counts: sparse.csr_matrix, rows: np.ndarray) -> sparse.csr_matrix:
    """Rows of a matrix in another order, -1 for an empty one; in the same order, values are shared and not copied."""
    there = rows >= 0
    if not np.array_equal(rows[there], np.arange(counts.shape[0])):
        counts = counts[rows[there]]
    n_stored = np.zeros(len(rows), dtype=counts.indptr.dtype)
    n_stored[there] = np.diff(counts.indptr)
    indptr = np.concatenate([np.zeros(1, dtype=n_stored.dtype), n_stored.cumsum(dtype=n_stored.dtype)])
    return sparse.csr_matrix((counts.data, counts.indices, indptr), shape=(len(rows), counts.shape[1]))
