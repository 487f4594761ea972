r"""A token in one number a cell: its activation, and the loading of every gene on it.

The read-out is additive, so token :math:`k` contributes exactly :math:`W_k^\top h_k` to the log-rates of a cell. Over
the training cells, this contribution has a first principal component: its axis over the genes times its standard
deviation is the token's *loading*, its score over the standard deviation is the token's *activation*. So a loading is
the change of a gene's log-rate per standard deviation of activation. It does not depend on how the network happens to
parametrise :math:`h_k`. Loadings are centred over the genes, because a constant added to all log-rates changes nothing.
Tokens are sorted by the variance of their whole contribution and oriented so that their largest loadings are positive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class HiddenMoments(NamedTuple):
    """Moments of the read-out's hidden vectors over some cells."""

    n_cells: int
    total: np.ndarray  # (tokens, readout_dim)
    squares: np.ndarray  # (tokens, readout_dim, readout_dim)

    @classmethod
    def of(cls, hidden: np.ndarray) -> HiddenMoments:
        """Moments of hidden vectors ``(cells, tokens, readout_dim)``."""
        hidden = hidden.astype(np.float64)
        return cls(len(hidden), hidden.sum(0), np.einsum("ctr,cts->trs", hidden, hidden))

    def merge(self, other: HiddenMoments) -> HiddenMoments:
        """Moments of both sets of cells."""
        return HiddenMoments(self.n_cells + other.n_cells, self.total + other.total, self.squares + other.squares)


class TokenBasis(NamedTuple):
    """Directions and loadings of the tokens, sorted; plain arrays, saved with the model."""

    order: np.ndarray  # (tokens,) position of each sorted token in the network
    mean: np.ndarray  # (tokens, readout_dim)
    directions: np.ndarray  # (tokens, readout_dim), divided by the standard deviation
    loadings: np.ndarray  # (genes, tokens)
    explained: np.ndarray  # (tokens,) share of the variance of all contributions that this token makes
    first_direction: np.ndarray  # (tokens,) share of the token's own variance along its first direction

    def activation(self, hidden: np.ndarray) -> np.ndarray:
        """Activations ``(cells, tokens)`` of hidden vectors ``(cells, tokens, readout_dim)`` in the network's order."""
        return np.einsum("ctr,tr->ct", hidden[:, self.order] - self.mean, self.directions).astype(np.float32)


def token_basis(moments: HiddenMoments, weights: np.ndarray, *, by_variance: bool = True) -> TokenBasis:
    """Directions and loadings from moments of the training cells and weights ``(tokens, readout_dim, genes)``.

    Tokens are sorted by the variance that they explain; nested ones keep their order.
    """
    weights = weights - weights.mean(2, keepdims=True)
    mean = moments.total / moments.n_cells
    covariance = moments.squares / moments.n_cells - np.einsum("tr,ts->trs", mean, mean)
    # Directions are principal in gene space: the contribution W^T h has the covariance W^T C W.
    gram = np.einsum("trg,tsg->trs", weights, weights)
    variance = np.einsum("trs,trs->t", gram, covariance)
    order = np.argsort(-variance, kind="stable") if by_variance else np.arange(len(variance))
    directions, loadings, first = [], [], []
    for token in order:
        direction, loading = _first_direction(covariance[token], weights[token])
        directions.append(direction)
        loadings.append(loading)
        first.append(loading @ loading / max(variance[token], 1e-30))
    share = variance[order] / max(variance.sum(), 1e-30)
    stacked = np.stack(loadings, axis=1).astype(np.float32)
    return TokenBasis(order, mean[order], np.stack(directions), stacked, share, np.array(first))


def loadings_in_group(basis: TokenBasis, moments: HiddenMoments, weights: np.ndarray) -> np.ndarray:
    """Loadings ``(genes, tokens)`` within a group of cells, in the order of the basis and along its loadings."""
    found = token_basis(moments, weights)
    loadings = found.loadings[:, np.argsort(found.order)][:, basis.order]
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
