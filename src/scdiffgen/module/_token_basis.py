r"""Activations of tokens in cells, and gene loadings of tokens.

Token :math:`k` contributes :math:`W_k^\top h_k` to the log-rates of a cell. The first principal axis of the
contributions over training cells, times its standard deviation, is the *loading*; the standardised score is the
*activation*. A loading is the change of a log-rate per SD of activation. It is centred over genes, with positive skew.

The genes of a token are also found by ridge regression of standardised log expression on the standardised activations
of all tokens, :math:`\beta_g = (R + \lambda I)^{-1} r_g`, with the correlations :math:`R` between activations
and :math:`r_g` of the gene with the activations; without the penalty, this is the ranking of cNMF
:cite:p:`kotliar2019identifying`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import ArpackError
from torch import Tensor

from scdiffgen.diffusion import Blocks

from ._diffusion_module import DiffusionModule
from ._linear_start import fit_pca, varimax
from ._process_options import Given


class HiddenMoments(NamedTuple):
    """Moments of the hidden vectors of the read-out over cells."""

    n_cells: int
    total: np.ndarray  # (tokens, width)
    squares: np.ndarray  # (tokens, width, width)

    @classmethod
    def of(cls, hidden: np.ndarray) -> HiddenMoments:
        """Compute the moments of hidden vectors ``(cells, tokens, width)``."""
        hidden = hidden.astype(np.float64)
        return cls(len(hidden), hidden.sum(0), np.einsum("ctr,cts->trs", hidden, hidden))

    def merge(self, other: HiddenMoments) -> HiddenMoments:
        return HiddenMoments(self.n_cells + other.n_cells, self.total + other.total, self.squares + other.squares)

    def take(self, order: np.ndarray) -> HiddenMoments:
        return HiddenMoments(self.n_cells, self.total[order], self.squares[order])

    def covariance(self) -> tuple[np.ndarray, np.ndarray]:
        """Compute the mean ``(tokens, width)`` and covariance ``(tokens, width, width)``."""
        mean = self.total / self.n_cells
        return mean, self.squares / self.n_cells - np.einsum("tr,ts->trs", mean, mean)

    def explained(self, weights: np.ndarray) -> np.ndarray:
        """Compute the variance of the contributions of each token ``(tokens,)``: the trace of ``W^T C W``."""
        weights = weights - weights.mean(2, keepdims=True)
        return np.einsum("trs,trs->t", np.einsum("trg,tsg->trs", weights, weights), self.covariance()[1])


class TokenBasis(NamedTuple):
    """Directions and loadings of the tokens, as plain arrays that are saved with the model."""

    mean: np.ndarray  # (tokens, width)
    directions: np.ndarray  # (tokens, width), divided by the standard deviation
    loadings: np.ndarray  # (genes, tokens)
    explained: np.ndarray  # (tokens,): share of the token in the variance of all contributions
    first_direction: np.ndarray  # (tokens,): share of the variance of the token along its first direction

    def activation(self, hidden: np.ndarray) -> np.ndarray:
        """Compute activations ``(cells, tokens)`` from hidden vectors ``(cells, tokens, width)``."""
        return np.einsum("ctr,tr->ct", hidden - self.mean, self.directions).astype(np.float32)


def token_basis(moments: HiddenMoments, weights: np.ndarray) -> TokenBasis:
    """Compute directions and loadings from moments of training cells and weights ``(tokens, width, genes)``."""
    variance = moments.explained(weights)
    weights = weights - weights.mean(2, keepdims=True)
    mean, covariance = moments.covariance()
    # Directions are principal axes in gene space, where the contribution W^T h has the covariance W^T C W.
    pairs = [_first_direction(*token) for token in zip(covariance, weights, strict=True)]
    directions, loadings = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    first = (loadings**2).sum(1) / variance.clip(min=1e-30)
    share = variance / max(variance.sum(), 1e-30)
    return TokenBasis(mean, directions, loadings.T.astype(np.float32), share, first)


def loadings_in_group(basis: TokenBasis, moments: HiddenMoments, weights: np.ndarray) -> np.ndarray:
    """Compute loadings ``(genes, tokens)`` within a group of cells, with signs matched to the basis."""
    loadings = token_basis(moments, weights).loadings
    return loadings * np.where((loadings * basis.loadings).sum(0) < 0, -1, 1).astype(np.float32)


def _first_direction(covariance: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the weights ``(width,)`` of ``h - mean`` in the activation, and the loadings ``(genes,)``."""
    scale, axes = np.linalg.eigh(covariance)
    half = axes * np.sqrt(scale.clip(min=0))  # half @ half.T is the covariance
    gene_space = half.T @ weights  # maps the whitened hidden vector to genes
    _, vectors = np.linalg.eigh(gene_space @ gene_space.T)
    whitened = vectors[:, -1]
    loading = gene_space.T @ whitened
    sign = 1.0 if (loading**3).sum() >= 0 else -1.0
    inverse = axes / np.sqrt(np.where(scale > scale.max() * 1e-8, scale, np.inf))
    return sign * inverse @ whitened, sign * loading


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


class Contributions(NamedTuple):
    """Additive decomposition of gene scores; terms are centred over the genes of a modality, and sum to ``total``."""

    total: Tensor  # (cells, genes)
    tokens: Tensor  # (cells, tokens, genes)
    conditions: dict[str, Tensor]  # (cells, genes): read-out of conditions, and offsets of rare labels
    constant: Tensor  # (genes,)


@torch.no_grad()
def contributions(module: DiffusionModule, counts: Tensor, conditions: Given, genes: Tensor) -> Contributions:
    """Decompose the gene scores of ``genes`` (column positions) in uncorrupted cells, CSR ``(cells, genes)``."""
    total, of_conditions = module.code.gene_scores(module.ema_denoiser, counts, conditions)
    hidden, weights = module.hidden(counts, conditions), _centred(module.gene_weights(), module.blocks)
    return Contributions(
        total=_centred(total, module.blocks)[:, genes],
        tokens=torch.einsum("ctr,trg->ctg", hidden, weights[:, :, genes]),
        conditions={name: _centred(scores, module.blocks)[:, genes] for name, scores in of_conditions.items()},
        constant=_centred(module.readout().bias, module.blocks)[genes],
    )


def _centred(scores: Tensor, blocks: Blocks) -> Tensor:
    parts = [part - part.mean(-1, keepdim=True) for part in scores.split(blocks.sizes, -1)]
    return torch.cat(parts, dim=-1)


def activation_gradient(module: DiffusionModule, counts: Tensor, conditions: Given, directions: Tensor) -> Tensor:
    """Differentiate activations along ``directions`` by ``log1p(counts)``, summed over cells ``(tokens, genes)``."""
    encoder, hidden_of = module.code.encoder(module.ema_denoiser, counts, conditions)
    if encoder.functions is not None:
        raise ValueError(
            "An encoder that embeds expression has no gene weights: use `method='readout'`, or make and train "
            "a model with `expression_embedding=None`."
        )
    sums = encoder.read(counts).detach().requires_grad_()
    activation = torch.einsum("ctr,tr->t", hidden_of(sums), directions)
    gradients = [torch.autograd.grad(token, sums, retain_graph=True)[0].sum(0) for token in activation]
    return torch.stack(gradients) @ encoder.weight.T
