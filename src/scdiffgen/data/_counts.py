"""Fields of counts, which check counts block by block, so that a file need not fit in memory, and store them as CSR."""

from __future__ import annotations

import logging
from collections import Counter
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

from scdiffgen._arguments import LARGEST_LIBRARY
from scdiffgen._messages import counted, did_you_mean, listed, plain, raise_if_not_unique, warn_user
from scdiffgen._names import SYMBOLS_KEY, symbols_of
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ADDED

BLOCK_VALUES = 2**24  # values per block: 128 MiB as float64
N_BLOCKS_LOOKED_AT = 8  # number of blocks of a matrix on disk, unless all of it is checked
N_CELLS_LOOKED_AT = 100  # number of cells to detect rounded values


@dataclass
class CountReport:
    """Faults of a count matrix, which is valid without a ``first`` fault, empty cells and full cells."""

    faults: dict[str, int]  # number of values by fault ("negative", "fractional", ...)
    first: tuple[int, int, float] | None  # cell, gene and value of the first fault
    advice: str  # how to fix the values, by their probable transformation
    rounded: str  # why values seem normalised and then rounded, if so
    empty_cells: np.ndarray
    full_cells: np.ndarray  # cells with more molecules than LARGEST_LIBRARY


def check_counts(matrix: Any, *, whole: bool = True) -> CountReport:
    """Check the values of a matrix; unless ``whole``, only evenly spaced blocks of a matrix on disk."""
    faults: Counter[str] = Counter()
    first: tuple[int, int, float] | None = None
    advice = rounded = ""
    totals, looked_at = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[0], dtype=bool)
    for row, column, block in blocks(matrix, whole=whole):
        looked_at[row : row + block.shape[0]] = True
        totals[row : row + block.shape[0]] += row_totals(block)
        rounded = rounded or (_sign_of_rounding(block) if (row, column) == (0, 0) else "")
        block_faults = _faults(block)
        for fault, where in block_faults.items():
            faults[fault] += int(where.sum())
        bad = np.any(list(block_faults.values()), axis=0)
        if first is None and bad.any():
            cell, gene, value = _entry(block, int(bad.argmax()))
            first, advice = (row + cell, column + gene, value), _advice(block_faults, value)
    empty, full = np.flatnonzero((totals == 0) & looked_at), np.flatnonzero(totals > LARGEST_LIBRARY)
    return CountReport(+faults, first, advice, rounded, empty, full)


def holds_counts(matrix: Any) -> bool:
    """Test whether a matrix holds counts, by a sample of its blocks."""
    try:
        report = check_counts(matrix, whole=False)
    except TypeError:
        return False
    return report.first is None and not (report.rounded or len(report.full_cells))


def row_totals(block: Any) -> np.ndarray:
    """Sum the rows ``(rows,)`` in double precision, because 64-bit integers would overflow."""
    summable = block.astype(np.float64) if sparse.issparse(block) else block
    return np.asarray(summable.sum(axis=1, dtype=np.float64)).ravel()


def blocks(matrix: Any, *, whole: bool = True) -> Iterator[tuple[int, int, Any]]:
    """Yield first row, first column and values of blocks, cut along the storage order of the matrix."""
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
        matrix = with_one_index_type(each_once(matrix))
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


def with_one_index_type(matrix: Any) -> Any:
    """Convert the indices of a CSR or CSC matrix to one type; otherwise SciPy copies them for each slice."""
    if matrix.indices.dtype == matrix.indptr.dtype:
        return matrix
    return type(matrix)((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)


def each_once(matrix: Any) -> Any:
    """Sort and sum duplicate entries of a CSR or CSC matrix, in a copy if necessary."""
    if matrix.has_canonical_format:
        return matrix
    matrix = matrix.copy()
    matrix.sum_duplicates()
    return matrix


def _faults(block: Any) -> dict[str, np.ndarray]:
    """Mark stored values that are not counts, by fault."""
    values = block.data if sparse.issparse(block) else block.ravel()
    finite, most = np.isfinite(values), np.float32(LARGEST_LIBRARY)  # too large for half precision
    fractional = (values != np.floor(values)) & (values >= 0)
    faults = {"negative": values < 0, "fractional": fractional, f"larger than {most:,.0f}": values > most}
    return {**{fault: where & finite for fault, where in faults.items()}, "not finite": ~finite}


def _entry(block: Any, place: int) -> tuple[int, int, float]:
    """Return row, column and value of one stored value."""
    if not sparse.issparse(block):
        row, column = divmod(place, block.shape[1])
        return row, column, block[row, column].item()
    entries = block.tocoo()  # in the order of `block.data`
    return int(entries.row[place]), int(entries.col[place]), entries.data[place].item()


def _advice(faults: dict[str, np.ndarray], value: float) -> str:
    """Advise on values that are not counts, by their faults and the first value."""
    if value > LARGEST_LIBRARY:
        return (
            "Single precision does not count them exactly. In an unsigned type, they may be negative differences, as "
            "after ambient correction: subtract in a signed type, and set negative values to 0. If they are sums of "
            f"cells, thin them: `sc.pp.downsample_counts(adata, counts_per_cell={LARGEST_LIBRARY})`. Pass raw counts"
        )
    if faults["negative"].any():
        return "They look scaled or centred. Pass raw counts"
    if not faults["fractional"].any():
        return "NaN and infinite values result from division by zero. Pass raw counts"
    return (
        "Only estimated counts (of CellBender or RSEM) may be rounded: `adata.layers['counts'] = np.rint(...)`, and "
        "`layer='counts'`. If they are normalised or log-transformed, do not round them. Pass raw counts"
    )


def _sign_of_rounding(block: Any) -> str:
    """Describe why the first cells seem normalised and then rounded; empty for counts."""
    first = block[:N_CELLS_LOOKED_AT]
    dense = np.asarray(first.toarray() if sparse.issparse(first) else first, dtype=np.float64)
    cells = [np.unique(cell[cell > 0], return_counts=True) for cell in dense]
    # multiples of a unit above 1 skip small whole numbers: of many genes in a cell, or of few in nearly all cells
    gaps = [(np.diff(values, prepend=0) >= 2, values, n_genes) for values, n_genes in cells]
    many = [values[gap & (n_genes >= 10)] for gap, values, n_genes in gaps]
    n_tied = sum(n_genes[(values > 1) & (n_genes >= 3)].sum() for _, values, n_genes in gaps)
    n_after_gap = sum(n_genes[gap & (n_genes >= 3)].sum() for gap, _, n_genes in gaps)
    if np.mean([len(values) > 0 for values in many] or 0) > 0.25 or n_after_gap > max(0.9 * n_tied, 200):
        value = next(values[gap & (n_genes >= 3)][0] for gap, values, n_genes in gaps if (gap & (n_genes >= 3)).any())
        return f"some whole numbers are missing below frequent ones, such as {value - 1:g} below {value:g}"
    if len(dense) < 20 or not 1 < np.abs(dense).max() < np.inf:
        return ""
    totals, means = dense.sum(axis=1), dense.mean(axis=0)
    # sums of counts vary at least as the Poisson distribution; after thinning to one depth, they do not vary at all
    if 0 < totals.var() < 0.2 * totals.mean() and (totals > np.median(totals)).any():
        return f"cells sum to {totals.mean():,.0f} with a standard deviation of only {totals.std():.2g}"
    frequent = dense[:, (means > 1) & (dense.var(axis=0) > 0)]
    ratio = float(np.median(frequent.var(axis=0) / frequent.mean(axis=0))) if frequent.shape[1] >= 5 else 1.0
    return f"genes vary less than sampling allows (median variance / mean: {ratio:.2f})" if ratio < 0.6 else ""


logger = logging.getLogger(__name__)


class CountsField(LayerField):
    """Field of molecule counts in ``adata.X`` or a layer: finite nonnegative integers, as CSR with one index type."""

    def __init__(self, registry_key: str, layer: str | None, *, may_be_empty: bool = False) -> None:
        super().__init__(registry_key, layer, is_count_data=True, correct_data_format=False)
        self._may_be_empty = may_be_empty

    def validate_field(self, adata: AnnData) -> None:
        """Raise if the data are not counts; only some blocks of data on disk are checked."""
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
        if sign := self._raise_unless_counts(adata, matrix, whole=False).rounded:
            warn_user(
                f"{self._place} looks normalised or log-transformed, and rounded: {sign}. Pass raw counts"
                f"{_where_counts_are(adata, self.attr_key)}."
            )

    def where_counts_are(self, adata: AnnData) -> CountsField:
        """Return the field of new cells: ``.X`` for cells without layers, such as generated cells."""
        if self.attr_key is None or any(name is not None for name in adata.layers):
            return self
        if not set(ADDED) & set(adata.obs):
            warn_user(
                f"`adata` has no layers, so counts are read from `adata.X` instead of `layer={self.attr_key!r}`, as of "
                f"generated cells. Pass the counts as `adata.layers[{self.attr_key!r}]` if `adata.X` is another matrix."
            )
        return CountsField(self.registry_key, None, may_be_empty=self._may_be_empty)

    def check_again(self, adata: AnnData) -> None:
        """Raise if the data are not, or no longer, counts; all values are checked."""
        self._raise_unless_counts(adata, self.get_field_data(adata), whole=True)

    def _raise_unless_counts(self, adata: AnnData, matrix: Any, *, whole: bool) -> CountReport:
        try:
            report = check_counts(matrix, whole=whole)
        except TypeError as error:
            raise ValueError(
                f"{self._place}: {error}. Pass a numeric array or a CSR matrix in memory (`adata.to_memory()`), or "
                "open the file with `anndata.read_h5ad(path, backed='r')`."
            ) from error
        if report.first is not None:
            faults = ", ".join(f"{n:,} {fault}" for fault, n in report.faults.items() if n)
            cell, gene, value = report.first
            raise ValueError(
                f"{self._place} does not hold molecule counts: {faults} of its values (first: {value:g} in cell "
                f"{adata.obs_names[cell]!r}, gene {adata.var_names[gene]!r}). {report.advice}"
                f"{_where_counts_are(adata, self.attr_key)}."
            )
        if len(report.full_cells):
            names = adata.obs_names[report.full_cells]
            raise ValueError(
                f"{self._place}: {counted(len(names), 'cell')} with more than {LARGEST_LIBRARY:,} molecules "
                f"({listed(names)}), which are not counted exactly in single precision. If they are sums of many "
                f"cells, thin them: `sc.pp.downsample_counts(adata, counts_per_cell={LARGEST_LIBRARY})`."
            )
        if len(report.empty_cells) and not self._may_be_empty:
            names = adata.obs_names[report.empty_cells]
            way_out = "sc.pp.filter_cells(adata, min_counts=1)"  # reads `.X`
            if self.attr_key is not None:
                way_out = f"adata = adata[adata.layers[{self.attr_key!r}].sum(axis=1) > 0].copy()"
            raise ValueError(
                f"{self._place}: {counted(len(names), 'cell')} without a molecule ({listed(names)}). "
                f"Remove them first: `{way_out}`."
            )
        return report

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Check the counts, and store them by rows."""
        state = super().register_field(adata)
        if adata.uns.get(SYMBOLS_KEY) in adata.var:
            state["gene_symbols"] = symbols_of(adata, None).to_numpy(object)
        matrix = by_rows = self.get_field_data(adata)
        if isinstance(matrix, CSCDataset):
            warn_user(
                f"{self._place} is stored by columns on disk, so each minibatch reads all of it. Write it by rows "
                "(`adata.X = adata.X.tocsr()` before `adata.write_h5ad(path)`)."
            )
        elif isinstance(matrix, np.ndarray):
            by_rows = np.asanyarray(matrix, order="C")
        elif sparse.issparse(matrix):
            by_rows = matrix if isinstance(matrix, sparse.csr_matrix) else sparse.csr_matrix(matrix)
            by_rows = with_one_index_type(each_once(by_rows))
        if by_rows is not matrix:
            logger.info("%s is stored by rows, with the same values.", self._place)
            if self.attr_key is None:
                adata.X = by_rows
            else:
                adata.layers[self.attr_key] = by_rows
        return state

    def transfer_field(self, state_registry: dict[str, Any], adata_target: AnnData, **kwargs: Any) -> dict[str, Any]:
        """Register other cells with the same genes in the same order."""
        expected, genes = np.asarray(state_registry[self.COLUMN_NAMES_KEY]), np.asarray(adata_target.var_names)
        missing = expected[~np.isin(expected, genes)]
        way_out = "Reorder them by `adata = adata[:, model.get_var_names()].copy()`."
        if len(missing) == len(expected):
            raise ValueError(
                f"No registered gene is in `adata.var_names` (first: {plain(genes[0])!r}, registered: "
                f"{plain(expected[0])!r}): use the same type of identifier."
            )
        if len(missing):
            raise ValueError(
                f"{counted(len(missing), 'gene')} of the {len(expected):,} registered ones are missing from "
                f"`adata.var_names` ({listed(missing)}). "
                "`TokenDiffusion.prepare_query_anndata(adata, model)` fills them with zeros, read as unexpressed."
            )
        if len(genes) > len(expected):
            raise ValueError(f"`adata` has {len(genes):,} genes, {len(expected):,} are registered. {way_out}")
        if not np.array_equal(expected, genes):
            raise ValueError(f"The genes of `adata` are the registered ones in another order. {way_out}")
        state = super().transfer_field(state_registry, adata_target, **kwargs)
        return state | {name: known for name, known in state_registry.items() if name == "gene_symbols"}

    @property
    def _place(self) -> str:
        return "`adata.X` (`layer=None`)" if self.attr_key is None else f"`layer={self.attr_key!r}`"


def _where_counts_are(adata: AnnData, layer: str | None) -> str:
    """Name other matrices of the cells that hold counts, and how to register them."""
    layers = [name for name in adata.layers if name not in (None, layer) and holds_counts(adata.layers[name])]
    places = [f"{listed(layers)} are in `adata.layers` (pass `layer=`)"] if layers else []
    if layer is not None and holds_counts(adata.X):
        places.append("`adata.X` holds counts (pass `layer=None`)")
    if adata.raw is not None and holds_counts(adata.raw.X):
        places.append("`adata.raw` holds counts (register `adata.raw.to_adata()`)")
    return f": {'; '.join(places)}" if places else ", for example as a layer"


class ModalityCountsField(BaseMuDataWrapperClass):
    """Field of molecule counts of one modality; new cells without the modality have empty counts."""

    def __init__(self, registry_key: str, layer: str | None, modality: str, *, may_be_empty: bool = False) -> None:
        super().__init__(mod_key=modality, mod_required=True)
        self._adata_field = CountsField(registry_key, layer, may_be_empty=may_be_empty)

    def register_field(self, mdata: MuData) -> dict[str, Any]:
        """Check the counts, and store them by rows."""
        with self._named():
            return super().register_field(mdata)

    def transfer_field(self, state_registry: dict[str, Any], mdata_target: MuData, **kwargs: Any) -> dict[str, Any]:
        """Register other cells with the same genes in the same order, or without the modality."""
        if self.mod_key not in mdata_target.mod or not mdata_target.mod[self.mod_key].n_obs:
            return dict(state_registry)
        with self._named():
            return super().transfer_field(state_registry, mdata_target, **kwargs)

    def check_again(self, mdata: MuData) -> None:
        """Raise if the modality does not, or no longer, hold counts."""
        if self.mod_key in mdata.mod and mdata.mod[self.mod_key].n_obs:
            with self._named():
                self._adata_field.check_again(mdata.mod[self.mod_key])

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the modality in errors."""
        try:
            yield
        except (KeyError, ValueError) as error:
            message = error.args[0] if error.args else ""
            raise type(error)(f"Modality {self.mod_key!r} (`adata` is `mdata[{self.mod_key!r}]`): {message}") from error


def modality_fields(modalities: Sequence[str], layers: Mapping[str, str | None]) -> list[ModalityCountsField]:
    """Create the count fields of all modalities; the first has the registry key of an AnnData's counts."""
    several = len(modalities) > 1
    keys = counts_key_of(modalities)
    return [ModalityCountsField(key, layers.get(name), name, may_be_empty=several) for name, key in keys.items()]


def check_counts_again(manager: AnnDataManager) -> None:
    """Raise if registered cells do not, or no longer, hold counts; all values are checked."""
    for field in manager.fields:
        if isinstance(field, CountsField | ModalityCountsField):
            field.check_again(manager.adata)


def counts_key_of(modalities: Sequence[str]) -> dict[str, str]:
    """Map modalities to registry keys of their counts; the first has the key of an AnnData's counts."""
    first = REGISTRY_KEYS.X
    return {name: f"{first}_{name}" if position else first for position, name in enumerate(modalities)}
