"""Genes to tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CountEncoder(nn.Module):
    """Two-layer perceptron from counts to tokens, with a sparse first layer.

    The first layer sums, for each cell, one row of weights per gene that has molecules: its cost follows the non-zeros,
    not the genes.

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
    """

    def __init__(
        self, n_genes: int, n_tokens: int, token_dim: int, n_hidden: int, conditioning_dim: int, dropout: float
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_genes, n_hidden) * 0.1)
        self.shift = nn.Linear(conditioning_dim, n_hidden)
        self.norm = nn.LayerNorm(n_hidden)
        self.dropout = nn.Dropout(dropout)
        self.to_tokens = nn.Linear(n_hidden, n_tokens * token_dim)
        self.shape = (n_tokens, token_dim)

    def forward(self, gene_sums: Tensor, conditioning: Tensor, n_tokens: int | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)``, or only the first, from :meth:`sum_genes` and the conditioning."""
        hidden = self.dropout(F.silu(self.norm(gene_sums + self.shift(conditioning))))
        n_outputs = None if n_tokens is None else n_tokens * self.shape[1]
        tokens = F.linear(hidden, self.to_tokens.weight[:n_outputs], self.to_tokens.bias[:n_outputs])
        return tokens.unflatten(1, (-1, self.shape[1]))

    def sum_genes(self, counts: Tensor) -> Tensor:
        """First layer: ``log1p(counts) @ weight`` ``(cells, hidden)`` of CSR or dense counts ``(cells, genes)``."""
        if counts.layout == torch.strided:
            return torch.log1p(counts) @ self.weight
        return F.embedding_bag(
            counts.col_indices(),
            self.weight,
            counts.crow_indices(),
            per_sample_weights=torch.log1p(counts.values()),
            mode="sum",
            include_last_offset=True,
        )
