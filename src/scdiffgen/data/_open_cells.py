"""AnnData of cells in files, with counts on disk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import zarr
from anndata import AnnData
from anndata.abc import CSRDataset
from scipy import sparse

from scdiffgen._messages import did_you_mean, listed

FILE_COLUMN = "file"


def open_cells(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, layer: str | None = None
) -> AnnData:
    """Open cells in one or several files, with counts on disk.

    Only ``.obs``, ``.var`` and the ``.uns`` of the first file are read into memory. Models read the counts block by
    block when they need them.

    Parameters
    ----------
    paths
        Path or paths of ``.h5ad`` files and ``.zarr`` folders, or addresses such as ``"s3://bucket/atlas.zarr"``.
        Several files need the same genes in the same order.
    layer
        Layer of the counts; ``None`` is ``X``. The counts become the ``.X`` of the result.

    Returns
    -------
    The cells, to register by :func:`scdiffgen.model.setup_anndata`. For several files, ``.obs["file"]`` names the file
    of each cell; if cell names are not unique, the name of the file is appended to all of them.

    Raises
    ------
    FileNotFoundError
        If a file does not exist.
    KeyError
        If a file lacks the layer.
    ValueError
        If a file is neither ``.h5ad`` nor ``.zarr``, or the genes differ between files.

    Examples
    --------
    >>> import scdiffgen, tempfile
    >>> path = tempfile.mkdtemp() + "/cells.h5ad"
    >>> scdiffgen.datasets.pbmc68k().write_h5ad(path)
    >>> cells = scdiffgen.model.open_cells(path, layer="counts")
    >>> cells.shape, type(cells.X).__name__
    ((700, 765), '_CSRDataset')
    """
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not files:
        raise ValueError("`paths` is empty: pass at least one file.")
    opened = [_open(str(file)) for file in files]
    matrices = [_matrix(file, str(path), layer) for file, path in zip(opened, files, strict=True)]
    genes = [ad.io.read_elem(file["var"]) for file in opened]
    cells = [ad.io.read_elem(file["obs"]) for file in opened]
    uns = ad.io.read_elem(opened[0]["uns"]) if "uns" in opened[0] else {}
    if len(files) == 1:
        return AnnData(X=matrices[0], obs=cells[0], var=genes[0], uns=uns)
    first = genes[0].index
    for path, own in zip(files, genes, strict=True):
        if not first.equals(own.index):
            lacking = first.difference(own.index)
            how = f"{path} lacks {listed(lacking)}" if len(lacking) else "another order, or further genes"
            raise ValueError(
                f"`paths`: the genes of {files[0]} and {path} differ: {how}. Write files with the same genes in the "
                "same order, such as by `anndata.read_h5ad(path)[:, genes].write_h5ad(...)`."
            )
    return AnnData(X=StackedRows(matrices), obs=_joined(cells, files), var=genes[0], uns=uns)


def _open(path: str) -> h5py.File | zarr.Group:
    is_address = "://" in path
    if not (is_address or Path(path).exists()):
        raise FileNotFoundError(f"`paths`: there is no {path}.")
    try:
        return zarr.open_group(path, mode="r") if is_address or Path(path).is_dir() else h5py.File(path, "r")
    except (OSError, ValueError) as error:
        raise ValueError(f"`paths`: {path} is neither an .h5ad file nor a .zarr folder ({error}).") from error


def _matrix(file: Any, path: str, layer: str | None) -> Any:
    if layer is not None and layer not in file.get("layers", {}):
        layers = list(file["layers"]) if "layers" in file else []
        raise KeyError(f"`layer={layer!r}` is not in {path} ({listed(layers) or 'none'}).{did_you_mean(layer, layers)}")
    if layer is None and "X" not in file:
        raise ValueError(f"`paths`: {path} has no X. Name the layer that holds the counts, `layer=`.")
    stored = file["X"] if layer is None else file["layers"][layer]
    return stored if isinstance(stored, h5py.Dataset | zarr.Array) else ad.io.sparse_dataset(stored)


def _joined(cells: Sequence[pd.DataFrame], files: Sequence[str | os.PathLike[str]]) -> pd.DataFrame:
    """Concatenate ``.obs`` of all files, with the union of categories."""
    stems = [Path(file).stem for file in files]
    repeated = {stem for stem, n in Counter(stems).items() if n > 1}
    names = [str(file) if stem in repeated else stem for file, stem in zip(files, stems, strict=True)]
    unique = pd.Index(np.concatenate([obs.index for obs in cells])).is_unique
    annotated = {name: AnnData(obs=obs) for name, obs in zip(names, cells, strict=True)}
    return ad.concat(annotated, join="outer", label=FILE_COLUMN, index_unique=None if unique else "-").obs


class StackedRows(CSRDataset):
    """Row-wise concatenation of matrices ``(cells, genes)`` on disk, read on demand."""

    backend = "hdf5"

    def __init__(self, matrices: Sequence[h5py.Dataset | zarr.Array | CSRDataset]) -> None:
        self._matrices = list(matrices)
        self._starts = np.cumsum([0, *(matrix.shape[0] for matrix in matrices)])
        self.shape = (int(self._starts[-1]), int(matrices[0].shape[1]))
        self.dtype = np.result_type(*(matrix.dtype for matrix in matrices))

    def __getitem__(self, index: Any) -> sparse.csr_matrix:
        """Read rows, and optionally columns, by a slice, positions or a mask; reads one span of rows per file."""
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        if isinstance(rows, slice):
            positions = np.arange(self.shape[0])[rows]
        else:
            positions = np.atleast_1d(np.asarray(rows))
            positions = np.flatnonzero(positions) if positions.dtype == bool else positions % self.shape[0]
        file_of = np.searchsorted(self._starts, positions, side="right") - 1
        parts, places = [sparse.csr_matrix((0, self.shape[1]), dtype=self.dtype)], []
        for file in np.unique(file_of):
            place = np.flatnonzero(file_of == file)
            within = positions[place] - self._starts[file]
            span = self._matrices[file][int(within.min()) : int(within.max()) + 1]
            parts.append(sparse.csr_matrix(span, dtype=self.dtype)[within - within.min()])
            places.append(place)
        stacked = sparse.vstack(parts, format="csr")
        in_order = stacked[np.argsort(np.concatenate(places))] if len(places) > 1 else stacked
        return in_order[:, columns]

    def to_memory(self) -> sparse.csr_matrix:
        return self[:]
