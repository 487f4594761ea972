"""Expression as scanpy's users expect it in ``X``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


def log_per_10k(counts: sparse.csr_matrix, library: NDArray[np.float64]) -> sparse.csr_matrix:
    """Counts per 10,000 molecules, ``log1p``, as float32; ``library`` ``(cells,)`` are the molecules of each cell."""
    return sparse.csr_matrix(sparse.diags(1e4 / library) @ counts).log1p().astype(np.float32)
