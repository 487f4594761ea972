"""Expression space of comparisons: log(1 + counts per 10,000), and principal components of training cells."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.utils.sparsefuncs import mean_variance_axis

from scdiffgen._log_normalise import log_normalise
from scdiffgen._shared_docs import shared_docs

from ._input import CountsLike, Matrix, as_counts, as_features, gene_names, gene_positions


@dataclass(frozen=True)
class ExpressionSpace:
    """Map counts to log-normalised expression and principal components that are fitted once on training cells.

    Create it by `ExpressionSpace.fit`. Counts are normalised to 10,000 molecules per cell, then ``log1p``; principal
    components are centred at the means of the training cells and not scaled. Expression stays sparse.

    Parameters
    ----------
    genes, n_genes
        Names of the genes to which counts are aligned (``None`` if fitted on a matrix without names), and their number.
    mean, variance
        Mean and variance of the genes in the training cells, ``(genes,)``.
    components
        Principal axes, ``(components, genes)``.
    layer
        Layer of the counts in AnnData objects; ``None`` is ``.X``.

    Examples
    --------
    >>> import numpy as np
    >>> cells = np.random.default_rng(0).poisson(2.0, size=(200, 50))
    >>> space = ExpressionSpace.fit(cells, n_pcs=5)
    >>> space.counts(cells).shape, space.expression(cells).shape, space.pcs(cells).shape
    ((200, 50), (200, 50), (200, 5))
    >>> space.reconstruct(space.project(space.expression(cells))).shape, space.most_variable_genes(3).shape
    ((200, 50), (3,))
    """

    genes: pd.Index | None
    n_genes: int
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    components: NDArray[np.float64] = field(repr=False)
    layer: str | None = None

    @classmethod
    @shared_docs
    def fit(cls, counts: CountsLike, *, n_pcs: int = 30, layer: str | None = None, seed: int = 0) -> ExpressionSpace:
        """Fit the space on training cells.

        Parameters
        ----------
        {draws}

        Returns
        -------
        The fitted space; it reads AnnData objects from the same layer.

        Raises
        ------
        ValueError
            If there are fewer than 3 cells or genes, or ``n_pcs`` is below 1.
        """
        if not isinstance(n_pcs, int | np.integer) or n_pcs < 1:
            raise ValueError(f"`n_pcs` is {n_pcs!r}: pass a whole number of at least 1.")
        matrix = as_counts(counts, layer=layer)
        if matrix.shape[0] < 3 or matrix.shape[1] < 3:
            raise ValueError(f"`counts` has shape {matrix.shape}: pass at least 3 cells and 3 genes.")
        expression = log_normalise(matrix, dtype=np.float32)
        mean, variance = (np.asarray(a, dtype=np.float64) for a in mean_variance_axis(expression, axis=0))
        pca = PCA(min(n_pcs, *(n - 1 for n in expression.shape)), svd_solver="arpack", random_state=seed)
        axes = pca.fit(expression.astype(np.float64)).components_
        return cls(gene_names(counts), matrix.shape[1], mean, variance, axes, layer)

    def counts(self, counts: CountsLike, *, name: str = "counts") -> sparse.csr_matrix:
        """Check counts (``name`` in messages) and align them to the genes of the space, (cells, genes)."""
        if self.genes is None and isinstance(counts, AnnData):
            raise TypeError(
                f"`{name}` is an AnnData, but the space was fitted on a matrix without gene names. "
                "Fit the space on an AnnData, or pass a matrix."
            )
        return as_counts(counts, layer=self.layer, genes=self.genes, n_genes=self.n_genes, name=name)

    def expression(self, counts: CountsLike, *, name: str = "counts") -> sparse.csr_matrix:
        """Compute sparse log-normalised expression, (cells, genes), of counts (``name`` in messages)."""
        return log_normalise(self.counts(counts, name=name), dtype=np.float32)

    def of_log_normalised(self, cells: AnnData, *, name: str) -> sparse.csr_matrix:
        """Check log-normalised cells (``name`` in messages) and align them to the genes, (cells, genes)."""
        positions = gene_positions(cells.var_names, cells.var_names if self.genes is None else self.genes, name)
        values = sparse.csr_matrix(as_features(cells.X, name)[:, positions])
        if values.nnz and (values.data == np.rint(values.data)).all():
            raise ValueError(f"`{name}` holds only whole numbers, hence counts: leave it out of `log_normalised`.")
        return values

    def pcs(self, counts: CountsLike, *, name: str = "counts") -> NDArray[np.float64]:
        """Compute principal components, centred at the training mean, (cells, components)."""
        return self.project(self.expression(counts, name=name))

    def project(self, expression: Matrix) -> NDArray[np.float64]:
        """Project expression, (cells, genes), to principal components, (cells, components)."""
        return np.asarray(expression @ self.components.T - self.mean @ self.components.T, dtype=np.float64)

    def reconstruct(self, pcs: NDArray) -> NDArray[np.float64]:
        """Reconstruct dense expression, (cells, genes), from principal components, (cells, components)."""
        return np.asarray(pcs @ self.components + self.mean, dtype=np.float64)

    def most_variable_genes(self, n: int) -> NDArray[np.intp]:
        """Return positions of the ``n`` genes with the largest variance in the training cells."""
        return most_variable(self.variance, n)


def most_variable(variance: NDArray[np.float64], n: int) -> NDArray[np.intp]:
    """Return sorted positions of the ``n`` genes with the largest variance."""
    return np.sort(np.argsort(-variance, kind="stable")[:n])
