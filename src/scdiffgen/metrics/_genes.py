"""Statistics over genes, pairs of genes and library sizes, beside those of real cells."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from scdiffgen.metrics._input import (
    EXPRESSION,
    CountsLike,
    Matrix,
    Points,
    as_count_pair,
    as_features,
    enough_cells,
    to_dense,
)
from scdiffgen.metrics._resampling import Weights, unit_weights

MOMENTS = ("mean", "variance", "zero_fraction")
STATISTICS = tuple(f"{moment}_{kind}" for moment in MOMENTS for kind in ("slope", "correlation"))
GeneMoments: TypeAlias = dict[str, NDArray[np.float64]]  # one (rows, genes) array a statistic


def gene_correlation_error(real: Points, generated: Points, *, genes: ArrayLike | None = None) -> float:
    """Mean absolute error of the gene-gene correlation matrix, over pairs of different genes.

    A gene that does not vary in a sample correlates with no other there.

    Parameters
    ----------
    real, generated
        Expression, (cells, genes).
    genes
        Positions of the genes compared, usually ``space.most_variable_genes(200)``; ``None`` compares all.

    Returns
    -------
    The error, between 0 and 2; NaN, with a warning, for fewer than three cells on a side. Positive for finite samples
    of one population: compare at equal numbers of cells.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    >>> round(gene_correlation_error(x, x * [1, -1]), 6)
    2.0
    """
    x, y = as_features(real, "real", EXPRESSION), as_features(generated, "generated", EXPRESSION)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"`real` has {x.shape[1]} genes and `generated` {y.shape[1]}. Map both through one space.")
    if not enough_cells("gene_correlation_error", 3, real=x.shape[0], generated=y.shape[0]):
        return float("nan")
    columns = np.arange(x.shape[1]) if genes is None else np.asarray(genes)
    x, y = x[:, columns], y[:, columns]
    return float(correlation_error_resampled(x, y, unit_weights(x.shape[0]), unit_weights(y.shape[0]))[0])


def library_size_ks(real: CountsLike, generated: CountsLike, *, layer: str | None = None) -> float:
    """Kolmogorov-Smirnov distance between the distributions of molecules per cell.

    Parameters
    ----------
    real, generated
        Counts, (cells, genes), over the same genes; AnnData objects are aligned by name.
    layer
        Layer of AnnData objects that holds the counts.

    Returns
    -------
    The largest difference of the two distribution functions, between 0 and 1; NaN, with a warning, for an empty side.

    Examples
    --------
    >>> import numpy as np
    >>> library_size_ks(np.array([[1, 1], [2, 1]]), np.array([[9, 1], [0, 2]]))
    0.5
    """
    x, y = (library_sizes(counts) for counts in as_count_pair(real, generated, layer=layer))
    if not enough_cells("library_size_ks", 1, real=len(x), generated=len(y)):
        return float("nan")
    return float(ks_resampled(x, y, unit_weights(len(x)), unit_weights(len(y)))[0])


def library_sizes(counts: sparse.csr_matrix) -> NDArray[np.float64]:
    """Molecules per cell, (cells,)."""
    return np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()


def gene_moments(expression: Matrix, weights: Weights) -> GeneMoments:
    """Mean, variance and fraction of zeros of every gene under each row of weights."""
    matrix = sparse.csr_matrix(expression).astype(np.float64)
    total = weights.sum(axis=1, keepdims=True)
    mean = weights @ matrix / total
    variance = np.clip(weights @ matrix.multiply(matrix).tocsr() / total - mean**2, 0, None)
    zeros = 1 - weights @ (matrix != 0).astype(np.float64) / total
    return {"mean": mean, "variance": variance, "zero_fraction": zeros}


def statistics_resampled(real: GeneMoments, generated: GeneMoments) -> dict[str, NDArray[np.float64]]:
    """Agreement over genes of mean, variance and fraction of zeros: least-squares slope and Pearson correlation.

    One value a row of moments; 1 if all genes are right. Correlations of means are no evidence of quality: independent
    Poisson counts score .99.
    """
    scores = {}
    for moment in MOMENTS:
        x, y = (side[moment] - side[moment].mean(axis=1, keepdims=True) for side in (real, generated))
        cross, square_x, square_y = (x * y).sum(axis=1), (x * x).sum(axis=1), (y * y).sum(axis=1)
        scores[f"{moment}_slope"] = _ratio(cross, square_x)
        scores[f"{moment}_correlation"] = _ratio(cross, np.sqrt(square_x * square_y))
    return scores


def correlation_error_resampled(x: Matrix, y: Matrix, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """`gene_correlation_error` under each row of weights, (rows,)."""
    dense_x, dense_y = (to_dense(m) for m in (x, y))
    upper = np.triu_indices(dense_x.shape[1], k=1)
    errors = [
        np.abs(correlation(dense_x, a)[upper] - correlation(dense_y, b)[upper]).mean()
        for a, b in zip(wx, wy, strict=True)
    ]
    return np.array(errors)


def ks_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Kolmogorov-Smirnov distance of two samples of numbers under each row of weights, (rows,)."""
    at = np.unique(np.concatenate([x, y]))
    return np.abs(_distribution(x, wx, at) - _distribution(y, wy, at)).max(axis=1)


def _distribution(values: NDArray, weights: Weights, at: NDArray) -> NDArray[np.float64]:
    order = np.argsort(values, kind="stable")
    below = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights[:, order], axis=1)], axis=1)
    return below[:, np.searchsorted(values[order], at, side="right")] / weights.sum(axis=1, keepdims=True)


def correlation(expression: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Pearson correlations of the columns under weights of the rows; a constant column correlates with none."""
    centred = expression - weights @ expression / weights.sum()
    covariance = (centred * weights[:, None]).T @ centred
    deviation = np.sqrt(np.diag(covariance))
    return _ratio(covariance, np.outer(deviation, deviation))


def _ratio(numerator: NDArray, denominator: NDArray) -> NDArray[np.float64]:
    return np.divide(numerator, denominator, out=np.zeros_like(denominator, dtype=float), where=denominator > 1e-12)
