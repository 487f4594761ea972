"""Matrices on disk, one below the other, as one matrix that is not in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from anndata.abc import CSRDataset
from scipy import sparse

if TYPE_CHECKING:
    import h5py
    import zarr


class StackedRows(CSRDataset):
    """Rows of several matrices, read when they are asked for.

    Parameters
    ----------
    matrices
        (cells, genes) datasets with the same genes: ``h5py.Dataset``, ``zarr.Array``, or AnnData's sparse datasets.

    Examples
    --------
    >>> stacked = StackedRows([np.eye(2), np.full((1, 2), 3.0)])
    >>> stacked.shape, stacked[1:3].toarray().tolist()
    ((3, 2), [[0.0, 1.0], [3.0, 3.0]])
    """

    backend = "hdf5"

    def __init__(self, matrices: Sequence[h5py.Dataset | zarr.Array | CSRDataset]) -> None:
        self._matrices = list(matrices)
        self._starts = np.cumsum([0, *(matrix.shape[0] for matrix in matrices)])
        self.shape = (int(self._starts[-1]), int(matrices[0].shape[1]))
        self.dtype = np.result_type(*(matrix.dtype for matrix in matrices))

    def __getitem__(self, index: Any) -> sparse.csr_matrix:
        """Read rows, by a slice, positions or a mask; of them, columns in the same way."""
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        if isinstance(rows, slice):
            positions = np.arange(self.shape[0])[rows]
        else:
            positions = np.atleast_1d(np.asarray(rows))
            positions = np.flatnonzero(positions) if positions.dtype == bool else positions % self.shape[0]
        return self._read(positions)[:, columns]

    def to_memory(self) -> sparse.csr_matrix:
        """Read all rows."""
        return self[:]

    def _read(self, positions: np.ndarray) -> sparse.csr_matrix:
        """Rows at some positions, of which the span within each file is read at once."""
        file_of = np.searchsorted(self._starts, positions, side="right") - 1
        parts, places = [sparse.csr_matrix((0, self.shape[1]), dtype=self.dtype)], []
        for file in np.unique(file_of):
            place = np.flatnonzero(file_of == file)
            within = positions[place] - self._starts[file]
            span = self._matrices[file][int(within.min()) : int(within.max()) + 1]
            parts.append(sparse.csr_matrix(span, dtype=self.dtype)[within - within.min()])
            places.append(place)
        stacked = sparse.vstack(parts, format="csr")
        return stacked[np.argsort(np.concatenate(places))] if len(places) > 1 else stacked
