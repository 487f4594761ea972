"""Attention across the cells of a minibatch."""

import torch
from torch import nn

from scdiffgen.nn._attention import Attention
from scdiffgen.nn._shapes import Tokens


class CellAttention(nn.Module):
    """Attention of each token to the same token of all cells of the minibatch, with a zero-initialised gate."""

    def __init__(self, dim: int, n_heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, n_heads)
        self.gate = nn.Parameter(torch.zeros(dim))

    def forward(self, tokens: Tokens) -> Tokens:
        """Update the tokens of a set of cells; the order of the cells does not matter."""
        return tokens + self.gate * self.attention(self.norm(tokens).transpose(0, 1)).transpose(0, 1)
