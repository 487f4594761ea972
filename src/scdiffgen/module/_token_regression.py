r"""Genes of a token: ridge regression of standardised log expression on the standardised activations of all tokens.

:math:`\beta_g = (R + \lambda I)^{-1} r_g`, with the correlations :math:`R` between activations and :math:`r_g` of the
gene with the activations; without the penalty, this is the ranking of cNMF :cite:p:`kotliar2019identifying`.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import ArpackError

from ._linear_start import fit_pca, varimax

PENALTY = 0.3  # chosen by the benchmark in docs/user_guide/tokens.md


class TokenGenes(NamedTuple):
    """Regression of expression on activations over training cells, as plain arrays that are saved with the model."""

    loadings: NDArray[np.float32]  # (genes, tokens)
    stability: NDArray[np.float64]  # (tokens,)


def token_genes(activation: NDArray, expression: sparse.csr_matrix) -> TokenGenes:
    """Compute loadings and stability from activations ``(cells, tokens)`` and log expression ``(cells, genes)``."""
    loadings = regression_loadings(activation, expression)
    return TokenGenes(loadings.astype(np.float32), linear_stability(loadings, expression))


def regression_loadings(activation: NDArray, expression: sparse.csr_matrix) -> NDArray[np.float64]:
    """Regress standardised expression on all standardised activations ``(genes, tokens)``; 0 if constant."""
    standard, n_cells = standardised(activation.astype(np.float64)), len(activation)
    mean = np.asarray(expression.mean(0)).ravel()
    variance = np.asarray(expression.multiply(expression).mean(0)).ravel() - mean**2
    spread = np.sqrt(np.where(variance > 1e-12 * (1 + mean**2), variance, np.inf))
    correlation = np.asarray(expression.T @ standard) / n_cells / spread[:, None]
    penalised = standard.T @ standard / n_cells + PENALTY * np.eye(standard.shape[1])
    return np.linalg.solve(penalised, correlation.T).T


def linear_stability(loadings: NDArray, expression: sparse.csr_matrix) -> NDArray[np.float64]:
    """Correlate tokens with matched varimax-rotated principal components of halves of the cells ``(tokens,)``."""
    rng, n_cells, n_tokens = np.random.default_rng(0), expression.shape[0], loadings.shape[1]
    n_components = min(n_tokens, n_cells // 2 - 1, expression.shape[1] - 1)
    matched = np.zeros((4, n_tokens))  # two halves of each of two splits
    if n_components < 1:
        return np.full(n_tokens, np.nan)
    with suppress(ArpackError):  # raised if all cells are equal
        for split in range(2):
            half = rng.permutation(n_cells) < n_cells // 2
            for row, part in enumerate((expression[half], expression[~half])):
                pca = fit_pca(part, n_components)
                axes = varimax(pca.components_ * np.sqrt(pca.explained_variance_)[:, None])
                again = regression_loadings(np.asarray(part @ axes.T), part)
                correlation = np.abs(standardised(loadings).T @ standardised(again)) / len(loadings)
                tokens, components = linear_sum_assignment(correlation, maximize=True)
                matched[2 * split + row, tokens] = correlation[tokens, components]
        return matched.mean(0)
    return np.full(n_tokens, np.nan)


def standardised(values: NDArray) -> NDArray:
    """Standardise columns to mean 0 and standard deviation 1; constant columns become 0."""
    values, spread = values - values.mean(0), values.std(0)
    return values / np.where(spread > 0, spread, np.inf)
