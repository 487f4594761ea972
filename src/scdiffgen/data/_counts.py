"""The registered counts: checked value by value, block by block (a file need not fit in memory), and stored by rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import zarr
from anndata import AnnData
from anndata.abc import CSCDataset, CSRDataset
from mudata import MuData
from scipy import sparse
from scvi.data import AnnDataManager
from scvi.data.fields import BaseMuDataWrapperClass, LayerField

from scdiffgen._messages import counted, did_you_mean, listed, raise_if_not_unique, warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS

logger = logging.getLogger(__name__)

BLOCK_VALUES = 2**24  # values looked at together: 128 MiB as float64
N_BLOCKS_LOOKED_AT = 8  # of a matrix that is not in memory, unless all of it is to be read
N_CELLS_LOOKED_AT = 100  # to tell what was done to values that are no counts
LARGEST_LIBRARY = 2**24  # molecules of a cell: float32 holds no odd number beyond
LARGEST_LOG = 20.0  # exp(20) molecules are more than any cell has


@dataclass
class CountReport:
    """What is wrong with a matrix as counts: nothing if there is no ``first`` fault and no empty or full cell."""

    faults: dict[str, int]  # how many values are "negative", "fractional", "not finite"
    first: tuple[int, int, float] | None  # cell, gene and value of the first bad value found
    advice: str  # by what seems to have been done to values that are no counts
    empty_cells: np.ndarray
    full_cells: np.ndarray  # with more molecules than LARGEST_LIBRARY


def check_counts(matrix: Any, *, whole: bool = True) -> CountReport:
    """Look at the values of a matrix; of one that is not in memory, if not ``whole``, at blocks spread over it."""
    faults = dict.fromkeys(("negative", "fractional", "not finite"), 0)
    first: tuple[int, int, float] | None = None
    advice = ""
    totals, looked_at = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[0], dtype=bool)
    for row, column, block in blocks(matrix, whole=whole):
        looked_at[row : row + block.shape[0]] = True
        totals[row : row + block.shape[0]] += np.asarray(block.sum(axis=1, dtype=np.float64)).ravel()
        found = _faults(block)
        for fault, where in found.items():
            faults[fault] += int(where.sum())
        bad = np.any(list(found.values()), axis=0)
        if first is None and bad.any():
            cell, gene, value = _entry(block, int(bad.argmax()))
            first, advice = (row + cell, column + gene, value), _advice(block)
    empty, full = np.flatnonzero((totals == 0) & looked_at), np.flatnonzero(totals > LARGEST_LIBRARY)
    return CountReport(faults, first, advice, empty, full)


def blocks(matrix: Any, *, whole: bool = True) -> Iterator[tuple[int, int, Any]]:
    """First row, first column and values of blocks, cut along the direction in which a matrix is stored."""
    lazy = hasattr(matrix, "compute")
    in_memory = isinstance(matrix, np.ndarray) or sparse.issparse(matrix)
    if isinstance(matrix, np.ma.MaskedArray):
        raise TypeError("an array with masked values is not read as counts: fill them, `counts.filled(0)`")
    if not (in_memory or lazy or isinstance(matrix, h5py.Dataset | zarr.Array | CSRDataset | CSCDataset)):
        raise TypeError(f"a {type(matrix).__module__}.{type(matrix).__name__} is not read as counts")
    if np.dtype(matrix.dtype).kind not in "biuf":
        raise TypeError(f"values of dtype {matrix.dtype} are no counts")
    if sparse.issparse(matrix) and matrix.format not in ("csr", "csc"):
        matrix = matrix.tocsr()
    if sparse.issparse(matrix):
        matrix = alike_indices(each_once(matrix))
    by_column = getattr(matrix, "format", None) == "csc"
    length, width = matrix.shape[::-1] if by_column else matrix.shape
    step = max(1, BLOCK_VALUES // max(1, width))
    starts = list(range(0, length, step))
    if not (in_memory or whole or by_column):
        spread = np.linspace(0, len(starts) - 1, min(N_BLOCKS_LOOKED_AT, len(starts))).astype(int)
        starts = [starts[place] for place in spread]
    for start in starts:
        span = slice(start, start + step)
        block = matrix[:, span] if by_column else matrix[span]
        block = block.compute(scheduler="synchronous") if lazy else block
        yield (0, start, block) if by_column else (start, 0, block)


def alike_indices(matrix: Any) -> Any:
    """The same CSR or CSC matrix with indices of one type, where SciPy would copy all of them for a slice.

    Values are shared, and so are indices if they are small enough.
    """
    if matrix.indices.dtype == matrix.indptr.dtype:
        return matrix
    return type(matrix)((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)


def each_once(matrix: Any) -> Any:
    """The same CSR or CSC matrix with every entry stored once and in order; a copy if it is not so already."""
    if matrix.has_canonical_format:
        return matrix
    matrix = matrix.copy()
    matrix.sum_duplicates()
    return matrix


def _faults(block: Any) -> dict[str, np.ndarray]:
    """Which stored values are no counts, by what is wrong with them."""
    values = block.data if sparse.issparse(block) else block.ravel()
    if values.dtype.kind in "bu":
        return {}
    finite = np.isfinite(values)
    fractional = (values != np.floor(values)) & (values >= 0) & finite
    return {"negative": (values < 0) & finite, "fractional": fractional, "not finite": ~finite}


def _entry(block: Any, place: int) -> tuple[int, int, float]:
    """Row, column and value of one stored value."""
    if not sparse.issparse(block):
        row, column = divmod(place, block.shape[1])
        return row, column, block[row, column].item()
    entries = block.tocoo()  # in the order of `block.data`
    return int(entries.row[place]), int(entries.col[place]), entries.data[place].item()


def _advice(block: Any) -> str:
    """Guess from some cells what was done to their counts, and say the way back.

    Normalisation for depth leaves every value of a cell an integer multiple of the cell's smallest one (that of a
    single molecule), and these smallest values differ between cells.
    """
    cells = block[:N_CELLS_LOOKED_AT]
    cells = np.asarray(cells.toarray() if sparse.issparse(cells) else cells, dtype=np.float64)
    cells = np.where(np.isfinite(cells), cells, 0.0)
    if (cells < 0).any():
        return "They look scaled or centred. Pass raw counts"
    if (cells == np.floor(cells)).all():
        return "NaN and infinite values come of dividing by zero. Pass raw counts"
    if cells.max() <= LARGEST_LOG:
        undone = np.expm1(cells)
        whole = np.mean(np.abs(undone - np.rint(undone)) < 0.01) > 0.9
        if whole or _multiples_of_the_smallest(undone):
            return "They look log-normalised. Pass raw counts"
    if _multiples_of_the_smallest(cells):
        return "They look normalised for sequencing depth. Pass raw counts"
    return (
        "If they are estimated counts (as CellBender or RSEM give), round them: "
        "`adata.layers['counts'] = np.rint(...)`, and pass `layer='counts'`. Otherwise pass raw counts"
    )


def _multiples_of_the_smallest(cells: np.ndarray) -> bool:
    cells = cells[cells.max(axis=1) > 0]
    if not len(cells):
        return False
    unit = np.where(cells > 0, cells, np.inf).min(axis=1, keepdims=True)
    ratio = (cells / unit)[cells > 0]
    return bool(np.mean(np.abs(ratio - np.rint(ratio)) < 0.01) > 0.9 and np.ptp(unit) > 0)


class CountsField(LayerField):
    """Molecule counts in ``adata.X`` or a layer: finite non-negative integers, stored by rows as loaders read them.

    A CSR matrix is replaced too if its two indices are of different types (as in files that were written piece by
    piece; SciPy would bring them to one type for every mini-batch), or entries are stored twice or out of order. Cells
    without a molecule are taken if they ``may_be_empty``.
    """

    def __init__(self, registry_key: str, layer: str | None, *, may_be_empty: bool = False) -> None:
        super().__init__(registry_key, layer, is_count_data=True, correct_data_format=False)
        self._may_be_empty = may_be_empty

    def validate_field(self, adata: AnnData) -> None:
        """Raise if the data are no counts, of which only some blocks are looked at if they are not in memory."""
        if self.attr_key is not None and self.attr_key not in adata.layers:
            layers = [name for name in adata.layers if name is not None]
            raise KeyError(
                f"`layer={self.attr_key!r}` is not in `adata.layers` (which has {listed(layers) or 'none'})."
                f"{did_you_mean(self.attr_key, layers)} Pass `layer=None` for `adata.X`."
            )
        if 0 in adata.shape:
            empty = "cells" if adata.n_obs == 0 else "genes"
            raise ValueError(f"{self._place} has no {empty} (shape {adata.shape}): was everything filtered out?")
        for axis, names in (("obs", adata.obs_names), ("var", adata.var_names)):
            way_out = f"Make them unique with `adata.{axis}_names_make_unique()`."
            raise_if_not_unique(names, f"`adata.{axis}_names`", way_out)
        matrix = self.get_field_data(adata)
        if matrix is None:
            raise ValueError(f"{self._place} is empty. Name the layer that holds the counts (`layer=`).")
        self._raise_unless_counts(adata, matrix, whole=False)

    def where_counts_are(self, adata: AnnData) -> CountsField:
        """The field of cells that a model is shown: ``.X`` where they have no layers, as generated cells have none."""
        if self.attr_key is None or any(name is not None for name in adata.layers):
            return self
        return CountsField(self.registry_key, None, may_be_empty=self._may_be_empty)

    def check_again(self, adata: AnnData) -> None:
        """Raise if the data are no counts (any more): on disk some were looked at, in memory all may be replaced."""
        self._raise_unless_counts(adata, self.get_field_data(adata), whole=True)

    def _raise_unless_counts(self, adata: AnnData, matrix: Any, *, whole: bool) -> None:
        try:
            report = check_counts(matrix, whole=whole)
        except TypeError as error:
            raise ValueError(
                f"{self._place}: {error}. Give a numeric array or a CSR matrix in memory (`adata.to_memory()`), or "
                "open the file with `anndata.read_h5ad(path, backed='r')`."
            ) from error
        if report.first is not None:
            raise ValueError(f"{self._place} {_not_counts(report, report.first, adata, self.attr_key)}")
        if len(report.full_cells):
            names = adata.obs_names[report.full_cells]
            raise ValueError(
                f"{self._place}: {counted(len(names), 'cell')} with more than {LARGEST_LIBRARY:,} molecules "
                f"({listed(names)}), which are not counted exactly in single precision. If they are sums of many "
                f"cells, thin them: `sc.pp.downsample_counts(adata, counts_per_cell={LARGEST_LIBRARY})`."
            )
        if len(report.empty_cells) and not self._may_be_empty:
            names = adata.obs_names[report.empty_cells]
            raise ValueError(
                f"{self._place}: {counted(len(names), 'cell')} without a single molecule ({listed(names)}). "
                "Remove them first: `sc.pp.filter_cells(adata, min_counts=1)`."
            )

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Check the counts, and store them by rows."""
        state = super().register_field(adata)
        matrix = by_rows = self.get_field_data(adata)
        if isinstance(matrix, CSCDataset):
            warn_user(
                f"{self._place} is stored by columns on disk: every mini-batch will read all of it. Write it by rows "
                "(`adata.X = adata.X.tocsr()` before `adata.write_h5ad(path)`)."
            )
        elif isinstance(matrix, np.ndarray):
            by_rows = np.asanyarray(matrix, order="C")
        elif sparse.issparse(matrix):
            by_rows = matrix if isinstance(matrix, sparse.csr_matrix) else sparse.csr_matrix(matrix)
            by_rows = alike_indices(each_once(by_rows))
        if by_rows is not matrix:
            logger.info("%s is stored by rows, with the same values.", self._place)
            if self.attr_key is None:
                adata.X = by_rows
            else:
                adata.layers[self.attr_key] = by_rows
        return state

    def transfer_field(self, state_registry: dict[str, Any], adata_target: AnnData, **kwargs: Any) -> dict[str, Any]:
        """Register other cells, which must have the same genes in the same order."""
        expected, found = np.asarray(state_registry[self.COLUMN_NAMES_KEY]), np.asarray(adata_target.var_names)
        missing = expected[~np.isin(expected, found)]
        way_out = "Bring them in order with `adata = adata[:, model.get_var_names()].copy()`."
        if len(missing):
            raise ValueError(
                f"{counted(len(missing), 'gene')} of the {len(expected):,} registered ones are missing from "
                f"`adata.var_names` ({listed(missing)}). Use the same gene names; "
                "`scvi.model.SCVI.prepare_query_anndata(adata, model)` adds genes that were not measured as zeros."
            )
        if len(found) > len(expected):
            raise ValueError(f"`adata` has {len(found):,} genes, {len(expected):,} are registered. {way_out}")
        if not np.array_equal(expected, found):
            raise ValueError(f"The genes of `adata` are the registered ones in another order. {way_out}")
        return super().transfer_field(state_registry, adata_target, **kwargs)

    @property
    def _place(self) -> str:
        return "`adata.X` (`layer=None`)" if self.attr_key is None else f"`layer={self.attr_key!r}`"


def _not_counts(report: CountReport, first: tuple[int, int, float], adata: AnnData, layer: str | None) -> str:
    faults = ", ".join(f"{n:,} {fault}" for fault, n in report.faults.items() if n)
    cell, gene, value = first
    others = [name for name in adata.layers if name is not None and name != layer]
    where = f": {listed(others)} are in `adata.layers` (pass `layer=`)" if others else ", for example as a layer"
    return (
        f"does not hold molecule counts: {faults} of its values (first: {value:g} in cell "
        f"{adata.obs_names[cell]!r}, gene {adata.var_names[gene]!r}). {report.advice}{where}."
    )


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

    def check_again(self, mdata: MuData) -> None:
        """Raise if a modality holds no counts (any more)."""
        if self.mod_key in mdata.mod and mdata.mod[self.mod_key].n_obs:
            with self._named():
                self._adata_field.check_again(mdata.mod[self.mod_key])

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
    keys = counts_key_of(modalities)
    return [ModalityCountsField(key, layers.get(name), name, may_be_empty=several) for name, key in keys.items()]


def check_counts_again(manager: AnnDataManager) -> None:
    """Raise if the registered cells hold no counts (any more), all of which are looked at."""
    for field in manager.fields:
        if isinstance(field, CountsField | ModalityCountsField):
            field.check_again(manager.adata)


def counts_key_of(modalities: Sequence[str]) -> dict[str, str]:
    """Registry key of each modality's counts; the first has that of an AnnData's."""
    first = REGISTRY_KEYS.X
    return {name: f"{first}_{name}" if position else first for position, name in enumerate(modalities)}
