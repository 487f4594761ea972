"""Read-outs that are not additive over the tokens: for comparison, without loadings."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class JointReadout(nn.Module):
    """A read-out that looks at all tokens together; what it shares with others is the bias of the genes."""

    def __init__(self, n_genes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_genes))

    @abstractmethod
    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the genes ``(cells, genes)`` from tokens ``(cells, tokens, dim)``, all or only the first."""

    def penalty(self) -> Tensor:
        """What the form adds to the loss: nothing."""
        return self.bias.new_zeros(())

    @torch.no_grad()
    def initialise_bias(self, gene_frequencies: Tensor) -> None:
        """Start from the average cell: set the bias to the log of ``gene_frequencies`` ``(genes,)``."""
        self.bias.copy_(gene_frequencies.clamp(min=1e-8).log())


class PerceptronReadout(JointReadout):
    """Two-layer perceptron on the tokens side by side.

    Parameters
    ----------
    n_genes, n_tokens, token_dim
        Shapes of the output and of the input.
    n_hidden
        Width of the hidden layer.
    """

    def __init__(self, n_genes: int, n_tokens: int, token_dim: int, n_hidden: int) -> None:
        super().__init__(n_genes)
        self.hidden_layer = nn.Linear(n_tokens * token_dim, n_hidden)
        self.gene_weights = nn.Parameter(torch.randn(n_hidden, n_genes) * 0.01)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the genes ``(cells, genes)`` from tokens ``(cells, tokens, dim)``, all or only the first."""
        side_by_side = tokens.flatten(1)
        hidden = F.linear(side_by_side, self.hidden_layer.weight[:, : side_by_side.shape[1]], self.hidden_layer.bias)
        return torch.addmm(self.bias, F.silu(hidden), self.gene_weights)


class AttentionReadout(JointReadout):
    """Every gene has a query that attends to the tokens, and a direction along which it reads what it saw.

    Parameters
    ----------
    n_genes, token_dim
        Shapes of the output and of the input.
    n_heads
        Attention heads.
    """

    def __init__(self, n_genes: int, token_dim: int, n_heads: int) -> None:
        super().__init__(n_genes)
        self.n_heads = n_heads
        self.queries = nn.Parameter(torch.randn(n_genes, token_dim))
        self.key_value = nn.Linear(token_dim, 2 * token_dim)
        self.gene_weights = nn.Parameter(torch.randn(n_genes, token_dim) * 0.01)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the genes ``(cells, genes)`` from tokens ``(cells, tokens, dim)``, all or only the first."""
        key, value = self.key_value(tokens).unflatten(2, (2, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        query = self.queries.unflatten(1, (self.n_heads, -1)).transpose(0, 1).expand(len(tokens), -1, -1, -1)
        seen = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return self.bias + (seen * self.gene_weights).sum(2)
