"""Correlations of genes in two samples of cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen.metrics._input import CountsLike, as_count_pair, gene_names
from scdiffgen.metrics._space import normalise


class GeneCorrelations(NamedTuple):
    """Correlations of the same genes in two samples; see `gene_correlations`.

    Parameters
    ----------
    real
        Pearson correlations in real cells, (genes, genes), named by the genes.
    generated
        The same in generated cells.
    """

    real: pd.DataFrame
    generated: pd.DataFrame


def gene_correlations(
    real: CountsLike, generated: CountsLike, n_genes: int = 200, *, layer: str | None = None
) -> GeneCorrelations:
    """Correlations of the log-normalised expression of the genes that vary most in the real cells.

    A gene that does not vary in a sample correlates with none there, nor with itself.

    Parameters
    ----------
    real
        Real counts, (cells, genes).
    generated
        Generated counts over the same genes; AnnData objects are aligned by name.
    n_genes
        Number of genes; all if there are fewer.
    layer
        Layer of AnnData objects that holds the counts.

    Returns
    -------
    The two matrices, genes in the order of the data.

    Raises
    ------
    ValueError
        If a side has fewer than three cells, or ``n_genes`` is below 2.

    Examples
    --------
    >>> import numpy as np
    >>> real, generated = np.random.default_rng(0).poisson(2.0, size=(2, 50, 9))
    >>> gene_correlations(real, generated, n_genes=4).generated.shape
    (4, 4)
    """
    if n_genes < 2:
        raise ValueError(f"`n_genes` is {n_genes}: pass at least 2.")
    counts = as_count_pair(real, generated, layer=layer)
    for name, matrix in zip(("real", "generated"), counts, strict=True):
        if matrix.shape[0] < 3:
            raise ValueError(f"`{name}` has {matrix.shape[0]} cells; correlations need at least 3.")
    x, y = (normalise(matrix).astype(np.float64) for matrix in counts)
    variance = np.asarray(x.multiply(x).mean(axis=0) - np.square(x.mean(axis=0))).ravel()
    genes = np.sort(np.argsort(-variance, kind="stable")[:n_genes])
    names = gene_names(real)
    labels = pd.Index(genes) if names is None else names[genes]
    return GeneCorrelations(*(pd.DataFrame(_correlation(m[:, genes]), labels, labels) for m in (x, y)))


def _correlation(expression: sparse.csr_matrix) -> NDArray[np.float64]:
    """Pearson correlations of the columns, never dense but for the result."""
    mean = np.asarray(expression.mean(axis=0)).ravel()
    covariance = (expression.T @ expression).toarray() / expression.shape[0] - np.outer(mean, mean)
    deviation = np.sqrt(np.clip(np.diag(covariance), 0, None))
    scale = np.outer(deviation, deviation)
    return np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 1e-12)
