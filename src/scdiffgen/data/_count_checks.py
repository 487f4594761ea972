"""Checks of count matrices, block by block, so that a file need not fit in memory."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import zarr
from anndata.abc import CSCDataset, CSRDataset
from scipy import sparse

BLOCK_VALUES = 2**24  # values per block: 128 MiB as float64
N_BLOCKS_LOOKED_AT = 8  # number of blocks of a matrix on disk, unless all of it is checked
N_CELLS_LOOKED_AT = 100  # number of cells to detect rounded values
LARGEST_LIBRARY = 2**24  # molecules per cell: float32 represents no larger odd number
MANY_GENES = 10  # number of genes with the same value in a cell, above which smaller values must occur as well


@dataclass
class CountReport:
    """Faults of a count matrix, which is valid without a ``first`` fault, empty cells and full cells."""

    faults: dict[str, int]  # number of values by fault ("negative", "fractional", ...)
    first: tuple[int, int, float] | None  # cell, gene and value of the first fault
    advice: str  # how to fix the values, by their probable transformation
    rounded: bool  # whether values seem depth-normalised and then rounded
    empty_cells: np.ndarray
    full_cells: np.ndarray  # cells with more molecules than LARGEST_LIBRARY


def check_counts(matrix: Any, *, whole: bool = True) -> CountReport:
    """Check the values of a matrix; unless ``whole``, only evenly spaced blocks of a matrix on disk."""
    faults: Counter[str] = Counter()
    first: tuple[int, int, float] | None = None
    advice, rounded = "", False
    totals, looked_at = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[0], dtype=bool)
    for row, column, block in blocks(matrix, whole=whole):
        looked_at[row : row + block.shape[0]] = True
        totals[row : row + block.shape[0]] += row_totals(block)
        rounded |= (row, column) == (0, 0) and _is_rounded(block)
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


def are_counts(values: Any) -> bool:
    """Test whether all values of a minibatch are nonnegative integers up to ``LARGEST_LIBRARY``."""
    return bool(((values >= 0) & (values <= LARGEST_LIBRARY) & (values % 1 == 0)).all())


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


def _is_rounded(block: Any) -> bool:
    """Detect depth-normalised and rounded counts: multiples of a unit above 1 skip small whole numbers."""
    first = block[:N_CELLS_LOOKED_AT]
    dense = np.asarray(first.toarray() if sparse.issparse(first) else first, dtype=np.float64)
    cells = [np.unique(cell[cell > 0], return_counts=True) for cell in dense]
    gaps = [((np.diff(values, prepend=0) >= 2) & (n_genes >= MANY_GENES)).any() for values, n_genes in cells]
    return bool(np.mean(gaps) > 0.25) if gaps else False
