"""Read-outs to compare with the additive one: their tokens have no loadings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from scdiffgen.nn._attention import Attention
from scdiffgen.nn._options import NetworkSize
from scdiffgen.nn._readouts import Readout
from scdiffgen.nn._shapes import Genes, Tokens


class PerceptronReadout(Readout):
    """Two-layer perceptron on the concatenated tokens."""

    def __init__(self, n_genes: int, size: NetworkSize) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_genes))
        self.hidden_layer = nn.Linear(size.n_tokens * size.token_dim, size.n_hidden)
        self.gene_weights = nn.Parameter(torch.randn(size.n_hidden, n_genes) * 0.01)

    def forward(self, tokens: Tokens) -> Genes:
        concatenated = tokens.flatten(1)
        hidden = F.linear(concatenated, self.hidden_layer.weight[:, : concatenated.shape[1]], self.hidden_layer.bias)
        return torch.addmm(self.bias, F.silu(hidden), self.gene_weights)


class AttentionReadout(Readout):
    """Every gene has a query that attends to the tokens, and weights of what it takes."""

    def __init__(self, n_genes: int, size: NetworkSize) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_genes))
        self.queries = nn.Parameter(torch.randn(n_genes, size.token_dim))
        self.attention = Attention(size.token_dim, size.n_heads, size.token_dim, learned_queries=True)
        self.gene_weights = nn.Parameter(torch.randn(n_genes, size.token_dim) * 0.01)

    def forward(self, tokens: Tokens) -> Genes:
        attended = self.attention(self.queries, tokens)
        return self.bias + (attended * self.gene_weights).sum(2)
