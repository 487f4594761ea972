"""How far mean log expression of drawn cells is from that of training cells, as a change of the scores of the genes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]


class ExpressionMoments:
    """Means and variances of the genes over cells, added up."""

    def __init__(self, n_genes: int) -> None:
        self.n_cells, self.sums, self.squares = 0, np.zeros(n_genes), np.zeros(n_genes)

    def add(self, expression: sparse.csr_matrix) -> None:
        """Add cells ``(cells, genes)``."""
        self.n_cells += expression.shape[0]
        self.sums += np.asarray(expression.sum(axis=0, dtype=np.float64)).ravel()
        self.squares += np.asarray(expression.power(2).sum(axis=0, dtype=np.float64)).ravel()

    @property
    def mean(self) -> Array:
        """Mean of each gene ``(genes,)``."""
        return self.sums / self.n_cells

    @property
    def error(self) -> Array:
        """Squared standard error of the mean of each gene ``(genes,)``."""
        return (self.squares / self.n_cells - self.mean**2) / self.n_cells


def mean_change(real: ExpressionMoments, drawn: ExpressionMoments, share: float = 1.0, n_together: int = 400) -> Array:
    """Logarithms ``(genes,)`` of the ratios of means, shrunk as far as they are noise.

    Noise is that of what is drawn, and of real cells that are a ``share`` of those whose mean is wanted. So many genes
    of similar expression are shrunk by one factor.
    """
    least = 0.5 / real.n_cells
    change = np.log((real.mean + least) / (drawn.mean + least))
    noise = drawn.error / (drawn.mean + least) ** 2 + max(1 - share, 0) * real.error / (real.mean + least) ** 2
    order = np.argsort(real.mean, kind="stable")
    for genes in np.array_split(order, -(-len(order) // n_together)):
        change[genes] *= max(1 - noise[genes].mean() / max((change[genes] ** 2).mean(), 1e-12), 0.0)
    return change
