"""Genes to tokens: what the network reads of a cell."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._options import InputKind


class GeneEncoder(nn.Module, ABC):
    """Genes to tokens in two parts, of which the first does not see the conditioning."""

    @abstractmethod
    def read(self, state: Tensor) -> Tensor:
        """What is read of corrupted cells ``(cells, genes)``, a row a cell."""

    @abstractmethod
    def forward(self, gene_sums: Tensor, conditioning: Tensor, n_tokens: int | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)``, or only the first, from :meth:`read` and the conditioning."""


def weighted_sum(state: Tensor, weight: Tensor, reads: InputKind) -> Tensor:
    """Sum of one row of ``weight`` ``(genes, width)`` a gene: ``log1p(counts) @ weight``, or ``values @ weight``.

    Of CSR counts its cost follows the non-zeros, not the genes.
    """
    if reads == "values":
        return state @ weight
    if state.layout == torch.strided:
        return torch.log1p(state) @ weight
    return F.embedding_bag(
        state.col_indices(),
        weight,
        state.crow_indices(),
        per_sample_weights=torch.log1p(state.values()),
        mode="sum",
        include_last_offset=True,
    )


class CountEncoder(GeneEncoder):
    """Two-layer perceptron from cells to tokens, with a sparse first layer.

    Of counts, the first layer sums, for each cell, one row of weights per gene that has molecules: its cost follows the
    non-zeros, not the genes.

    Parameters
    ----------
    n_genes, n_tokens, token_dim
        Shapes of the input and of the output.
    n_hidden
        Width of the hidden layer.
    conditioning_dim
        Length of the conditioning vector, which shifts the hidden layer.
    dropout
        Share of hidden units dropped while training.
    reads
        ``"counts"``, of which the logarithm is taken, or ``"values"``.
    """

    def __init__(
        self,
        n_genes: int,
        n_tokens: int,
        token_dim: int,
        n_hidden: int,
        conditioning_dim: int,
        dropout: float,
        reads: InputKind = "counts",
    ) -> None:
        super().__init__()
        self.reads = reads
        self.weight = nn.Parameter(torch.randn(n_genes, n_hidden) * 0.1)
        self.shift = nn.Linear(conditioning_dim, n_hidden)
        self.norm = nn.LayerNorm(n_hidden)
        self.dropout = nn.Dropout(dropout)
        self.to_tokens = nn.Linear(n_hidden, n_tokens * token_dim)
        self.shape = (n_tokens, token_dim)

    def forward(self, gene_sums: Tensor, conditioning: Tensor, n_tokens: int | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)``, or only the first, from :meth:`read` and the conditioning."""
        hidden = self.dropout(F.silu(self.norm(gene_sums + self.shift(conditioning))))
        n_outputs = None if n_tokens is None else n_tokens * self.shape[1]
        tokens = F.linear(hidden, self.to_tokens.weight[:n_outputs], self.to_tokens.bias[:n_outputs])
        return tokens.unflatten(1, (-1, self.shape[1]))

    def read(self, state: Tensor) -> Tensor:
        """First layer ``(cells, hidden)`` of corrupted cells, see :func:`weighted_sum`."""
        return weighted_sum(state, self.weight, self.reads)

    def gene_weights(self, direction: Tensor) -> Tensor:
        """Weights ``(tokens, genes)`` of the genes on directions of tokens ``(tokens, dim)``, along the linear maps."""
        to_tokens = self.to_tokens.weight.unflatten(0, self.shape)  # (tokens, dim, hidden)
        return torch.einsum("td,tdh->th", direction, to_tokens) @ self.weight.T


class LinearEncoder(GeneEncoder):
    """Tokens as weighted sums of the genes, shifted by the conditioning.

    Parameters
    ----------
    n_genes, n_tokens, token_dim
        Shapes of the input and of the output.
    conditioning_dim
        Length of the conditioning vector, which shifts the tokens.
    reads
        ``"counts"``, of which the logarithm is taken, or ``"values"``.
    """

    def __init__(
        self, n_genes: int, n_tokens: int, token_dim: int, conditioning_dim: int, reads: InputKind = "counts"
    ) -> None:
        super().__init__()
        self.reads = reads
        self.shape = (n_tokens, token_dim)
        self.weight = nn.Parameter(torch.randn(n_genes, n_tokens * token_dim) * 0.1)
        self.shift = nn.Linear(conditioning_dim, n_tokens * token_dim)

    def read(self, state: Tensor) -> Tensor:
        """Weighted sums ``(cells, tokens * dim)`` of the genes of corrupted cells, see :func:`weighted_sum`."""
        return weighted_sum(state, self.weight, self.reads)

    def forward(self, gene_sums: Tensor, conditioning: Tensor, n_tokens: int | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)``, or only the first, from :meth:`read` and the conditioning."""
        return (gene_sums + self.shift(conditioning)).unflatten(1, self.shape)[:, :n_tokens]

    def gene_weights(self, direction: Tensor) -> Tensor:
        """Weights ``(tokens, genes)`` of the genes on a direction of each token ``(tokens, dim)``."""
        return torch.einsum("td,gtd->tg", direction, self.weight.unflatten(1, self.shape))
