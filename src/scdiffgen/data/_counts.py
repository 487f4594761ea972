"""Is a matrix one of molecule counts? It is looked at block by block: a file need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import h5py
import numpy as np
import zarr
from anndata.abc import CSCDataset, CSRDataset
from scipy import sparse

History = Literal["divided", "scaled", "log-normalised", "normalised", "estimated"]

BLOCK_VALUES = 2**24  # values looked at together: 128 MiB as float64
N_BLOCKS_LOOKED_AT = 8  # of a matrix that is not in memory, unless all of it is to be read
N_CELLS_LOOKED_AT = 100  # to tell what was done to values that are no counts
LARGEST_LIBRARY = 2**24  # molecules of a cell: float32 holds no odd number beyond
LARGEST_LOG = 20.0  # exp(20) molecules are more than any cell has


@dataclass
class CountReport:
    """What is wrong with a matrix as counts: nothing, if ``n_bad`` is 0 and no cell is empty or too full."""

    n_negative: int = 0
    n_fractional: int = 0
    n_not_finite: int = 0
    first: tuple[int, int, float] | None = None  # cell, gene and value of the first bad value found
    looks: History | None = None  # what was done to values that are no counts
    empty_cells: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    full_cells: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # more than LARGEST_LIBRARY

    @property
    def n_bad(self) -> int:
        """How many values are not finite non-negative integers."""
        return self.n_negative + self.n_fractional + self.n_not_finite


def check_counts(matrix: Any, *, whole: bool = True) -> CountReport:
    """Look at the values of a matrix; of one that is not in memory, if not ``whole``, at blocks spread over it."""
    report = CountReport()
    totals, looked_at = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[0], dtype=bool)
    for row, column, block in blocks(matrix, whole=whole):
        looked_at[row : row + block.shape[0]] = True
        totals[row : row + block.shape[0]] += np.asarray(block.sum(axis=1, dtype=np.float64)).ravel()
        _add_faults(report, row, column, block)
        if report.n_bad and report.looks is None:
            report.looks = _history(block)
    report.empty_cells = np.flatnonzero((totals == 0) & looked_at)
    report.full_cells = np.flatnonzero(totals > LARGEST_LIBRARY)
    return report


def blocks(matrix: Any, *, whole: bool = True) -> Iterator[tuple[int, int, Any]]:
    """First row, first column and values of blocks, cut along the direction in which a matrix is stored."""
    lazy = hasattr(matrix, "compute")
    in_memory = isinstance(matrix, np.ndarray) or sparse.issparse(matrix)
    if not (in_memory or lazy or isinstance(matrix, h5py.Dataset | zarr.Array | CSRDataset | CSCDataset)):
        raise TypeError(f"a {type(matrix).__module__}.{type(matrix).__name__} is not read as counts")
    if np.dtype(matrix.dtype).kind not in "biuf":
        raise TypeError(f"values of dtype {matrix.dtype} are no counts")
    if sparse.issparse(matrix) and matrix.format not in ("csr", "csc"):
        matrix = matrix.tocsr()
    if sparse.issparse(matrix):
        matrix = alike_indices(matrix)
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


def _add_faults(report: CountReport, row: int, column: int, block: Any) -> None:
    values = block.data if sparse.issparse(block) else block.ravel()
    if values.dtype.kind in "bu":
        return
    negative = values < 0
    not_finite = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=bool)
    fractional = (values != np.floor(values)) & ~negative & ~not_finite
    bad = negative | not_finite | fractional
    report.n_negative += int((negative & ~not_finite).sum())
    report.n_fractional += int(fractional.sum())
    report.n_not_finite += int(not_finite.sum())
    if report.first is None and bad.any():
        place = int(bad.argmax())
        if sparse.issparse(block):
            entries = block.tocoo()  # in the order of `block.data`
            within = (int(entries.row[place]), int(entries.col[place]))
        else:
            within = divmod(place, block.shape[1])
        report.first = (row + within[0], column + within[1], values[place].item())


def _history(block: Any) -> History:
    """Guess from some cells what was done to their counts.

    Normalisation for depth leaves every value of a cell an integer multiple of the cell's smallest one (that of a
    single molecule), and these smallest values differ between cells.
    """
    cells = block[:N_CELLS_LOOKED_AT]
    cells = np.asarray(cells.toarray() if sparse.issparse(cells) else cells, dtype=np.float64)
    cells = np.where(np.isfinite(cells), cells, 0.0)
    if (cells < 0).any():
        return "scaled"
    if (cells == np.floor(cells)).all():
        return "divided"
    if cells.max() <= LARGEST_LOG:
        undone = np.expm1(cells)
        whole = np.mean(np.abs(undone - np.rint(undone)) < 0.01) > 0.9
        if whole or _multiples_of_the_smallest(undone):
            return "log-normalised"
    if _multiples_of_the_smallest(cells):
        return "normalised"
    return "estimated"


def _multiples_of_the_smallest(cells: np.ndarray) -> bool:
    cells = cells[cells.max(axis=1) > 0]
    if not len(cells):
        return False
    unit = np.where(cells > 0, cells, np.inf).min(axis=1, keepdims=True)
    ratio = (cells / unit)[cells > 0]
    return bool(np.mean(np.abs(ratio - np.rint(ratio)) < 0.01) > 0.9 and np.ptp(unit) > 0)
