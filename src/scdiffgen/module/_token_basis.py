r"""Activation of a token in a cell, and the loadings of the genes.

Token :math:`k` contributes :math:`W_k^\top h_k` to the log-rates of a cell. The first principal component of this over
training cells, times its standard deviation, is the *loading*, the standardised score the *activation*: a loading is
the change of a log-rate per standard deviation of activation. Loadings are centred over the genes; the largest are > 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class HiddenMoments(NamedTuple):
    """Moments of the read-out's hidden vectors over some cells."""

    n_cells: int
    total: np.ndarray  # (tokens, width)
    squares: np.ndarray  # (tokens, width, width)

    @classmethod
    def of(cls, hidden: np.ndarray) -> HiddenMoments:
        """Moments of hidden vectors ``(cells, tokens, width)``."""
        hidden = hidden.astype(np.float64)
        return cls(len(hidden), hidden.sum(0), np.einsum("ctr,cts->trs", hidden, hidden))

    def merge(self, other: HiddenMoments) -> HiddenMoments:
        """Moments of both sets of cells."""
        return HiddenMoments(self.n_cells + other.n_cells, self.total + other.total, self.squares + other.squares)

    def take(self, order: np.ndarray) -> HiddenMoments:
        """Moments of the tokens in another order."""
        return HiddenMoments(self.n_cells, self.total[order], self.squares[order])

    def covariance(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean ``(tokens, width)`` and covariance ``(tokens, width, width)``."""
        mean = self.total / self.n_cells
        return mean, self.squares / self.n_cells - np.einsum("tr,ts->trs", mean, mean)

    def explained(self, weights: np.ndarray) -> np.ndarray:
        """Variance of what each token adds to all log-rates ``(tokens,)``: the trace of ``W^T C W``."""
        weights = weights - weights.mean(2, keepdims=True)
        return np.einsum("trs,trs->t", np.einsum("trg,tsg->trs", weights, weights), self.covariance()[1])


class TokenBasis(NamedTuple):
    """Directions and loadings of the tokens; plain arrays, saved with the model."""

    mean: np.ndarray  # (tokens, width)
    directions: np.ndarray  # (tokens, width), divided by the standard deviation
    loadings: np.ndarray  # (genes, tokens)
    explained: np.ndarray  # (tokens,) share of the variance of all contributions that this token makes
    first_direction: np.ndarray  # (tokens,) share of the token's own variance along its first direction

    def activation(self, hidden: np.ndarray) -> np.ndarray:
        """Activations ``(cells, tokens)`` of hidden vectors ``(cells, tokens, width)``."""
        return np.einsum("ctr,tr->ct", hidden - self.mean, self.directions).astype(np.float32)

    def of_width(self, width: int) -> TokenBasis:
        """The same for longer hidden vectors, as those of networks from files of earlier versions."""
        pad = ((0, 0), (0, width - self.mean.shape[1]))
        return self._replace(mean=np.pad(self.mean, pad), directions=np.pad(self.directions, pad))


def token_basis(moments: HiddenMoments, weights: np.ndarray) -> TokenBasis:
    """Directions and loadings from moments of the training cells and weights ``(tokens, width, genes)``."""
    variance = moments.explained(weights)
    weights = weights - weights.mean(2, keepdims=True)
    mean, covariance = moments.covariance()
    # Directions are principal in gene space: the contribution W^T h has the covariance W^T C W.
    found = [_first_direction(*token) for token in zip(covariance, weights, strict=True)]
    directions, loadings = (np.stack(arrays) for arrays in zip(*found, strict=True))
    first = (loadings**2).sum(1) / variance.clip(min=1e-30)
    share = variance / max(variance.sum(), 1e-30)
    return TokenBasis(mean, directions, loadings.T.astype(np.float32), share, first)


def loadings_in_group(basis: TokenBasis, moments: HiddenMoments, weights: np.ndarray) -> np.ndarray:
    """Loadings ``(genes, tokens)`` within a group of cells, along those of the basis."""
    loadings = token_basis(moments, weights).loadings
    return loadings * np.where((loadings * basis.loadings).sum(0) < 0, -1, 1).astype(np.float32)


def _first_direction(covariance: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights that turn ``h - mean`` into the activation ``(readout_dim,)``, and the loadings ``(genes,)``."""
    scale, axes = np.linalg.eigh(covariance)
    half = axes * np.sqrt(scale.clip(min=0))  # half @ half.T is the covariance
    gene_space = half.T @ weights  # whitened hidden vector to genes
    _, vectors = np.linalg.eigh(gene_space @ gene_space.T)
    whitened = vectors[:, -1]
    loading = gene_space.T @ whitened
    sign = 1.0 if (loading**3).sum() >= 0 else -1.0
    inverse = axes / np.sqrt(np.where(scale > scale.max() * 1e-8, scale, np.inf))
    return sign * inverse @ whitened, sign * loading
