"""Calibrate gene means: compare mean log expression of drawn and training cells, and shrink the difference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]


class ExpressionMoments:
    """Running sums of log expression and its square, for each gene."""

    def __init__(self, n_genes: int) -> None:
        self.n_cells, self.sums, self.squares = 0, np.zeros(n_genes), np.zeros(n_genes)

    def add(self, expression: sparse.csr_matrix) -> None:
        """Add cells ``(cells, genes)``."""
        self.n_cells += expression.shape[0]
        self.sums += np.asarray(expression.sum(axis=0, dtype=np.float64)).ravel()
        self.squares += np.asarray(expression.power(2).sum(axis=0, dtype=np.float64)).ravel()

    @property
    def mean(self) -> Array:
        """Mean log expression ``(genes,)``."""
        return self.sums / self.n_cells

    @property
    def error(self) -> Array:
        """Squared standard error of the mean of each gene ``(genes,)``."""
        return (self.squares / self.n_cells - self.mean**2) / self.n_cells


def mean_change(real: ExpressionMoments, drawn: ExpressionMoments, share: float = 1.0, n_together: int = 400) -> Array:
    """Log ratios of real to drawn means ``(genes,)``, shrunk by empirical Bayes.

    Sampling noise is that of the drawn cells, and of the real cells if they are a ``share`` of all training cells.
    ``n_together`` genes of similar expression share one shrinkage factor.
    """
    least = 0.5 / real.n_cells
    change = np.log((real.mean + least) / (drawn.mean + least))
    noise = drawn.error / (drawn.mean + least) ** 2 + max(1 - share, 0) * real.error / (real.mean + least) ** 2
    order = np.argsort(real.mean, kind="stable")
    for genes in np.array_split(order, -(-len(order) // n_together)):
        change[genes] *= max(1 - noise[genes].mean() / max((change[genes] ** 2).mean(), 1e-12), 0.0)
    return change
