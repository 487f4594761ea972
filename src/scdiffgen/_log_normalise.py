"""Library sizes and log-normalisation."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

TARGET_SUM = 1e4


def library_sizes(counts: Any) -> NDArray[np.float64]:
    """Sum the molecules of each cell ``(cells,)``."""
    return np.asarray(counts.sum(axis=1, dtype=np.float64)).ravel()


def log_normalise(
    counts: NDArray | sparse.spmatrix | sparse.sparray,
    target_sum: float = TARGET_SUM,
    *,
    library: NDArray | None = None,  # library sizes (cells,), by default the sums of counts
    dtype: DTypeLike = np.float64,  # type of scaled counts before the logarithm; scaling is in double precision
) -> Any:
    """Compute log(1 + counts per ``target_sum``) ``(cells, genes)``, dense or CSR like the counts."""
    if not sparse.issparse(counts):
        counts = np.asarray(counts)
    total = library_sizes(counts) if library is None else np.asarray(library, dtype=np.float64).ravel()
    scale = np.divide(target_sum, total, out=np.zeros_like(total), where=total > 0)
    if not sparse.issparse(counts):
        return np.log1p((counts * scale[:, None]).astype(dtype))
    expression = sparse.csr_matrix(sparse.diags(scale) @ counts).astype(dtype)
    np.log1p(expression.data, out=expression.data)
    return expression
