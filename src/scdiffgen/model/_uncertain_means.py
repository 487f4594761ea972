"""Means over cells, and how far they would be off in other cells of the same kind."""

from __future__ import annotations

import numpy as np
from scipy import sparse


def means_with_intervals(
    counts: sparse.csr_matrix, columns: np.ndarray, n_bootstrap: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """``mean`` of the log-normalised expression of some genes, and ``low`` and ``high``: 95 % of the resamples."""
    expression = _log_normalised(counts)[:, columns]
    n_cells = expression.shape[0]
    weights = rng.multinomial(n_cells, np.full(n_cells, 1 / n_cells), n_bootstrap)
    means = np.asarray(sparse.csr_matrix(weights / n_cells) @ expression.toarray())
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return {"mean": np.asarray(expression.mean(0)).ravel(), "low": low, "high": high}


def _log_normalised(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """log1p of counts per 10,000."""
    scale = 1e4 / np.asarray(counts.sum(1)).ravel().clip(min=1)
    normalised = sparse.csr_matrix(counts.multiply(scale[:, None]))
    normalised.data = np.log1p(normalised.data)
    return normalised
