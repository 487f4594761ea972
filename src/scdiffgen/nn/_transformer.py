"""The token transformer: pre-norm blocks modulated by the conditioning, whole in one file.

The noise level always modulates the blocks. Conditions do, too (``"adaln"``), or are read by cross-attention
(``"cross_attention"``), or are further tokens (``"concat"``).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._options import AttentionKind, ConditioningKind


def modulate(tokens: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Scale and shift every token ``(cells, tokens, dim)`` of a cell by the cell's own ``(cells, dim)``."""
    return tokens * (1 + scale[:, None]) + shift[:, None]


class Attention(nn.Module):
    """Self-attention of the tokens of a row, such as a cell; rows never see each other."""

    def __init__(self, dim: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.project = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens ``(rows, tokens, dim)`` to tokens of the same shape."""
        query, key, value = self._heads(tokens)
        attended = F.scaled_dot_product_attention(query, key, value)
        return self.out(attended.transpose(1, 2).flatten(2))

    def weights(self, tokens: Tensor) -> Tensor:
        """Share that each token takes from each: ``(cells, heads, tokens, tokens)``, summing to 1 over the last."""
        query, key, _ = self._heads(tokens)
        return (query @ key.transpose(2, 3) * key.shape[3] ** -0.5).softmax(3)

    def _heads(self, tokens: Tensor) -> Tensor:
        """Queries, keys and values ``(3, cells, heads, tokens, dim / heads)``."""
        return self.project(tokens).unflatten(2, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)


class CrossAttention(nn.Module):
    """Tokens read the vectors of the conditions, behind a zero-initialised gate: a fresh one is the identity."""

    def __init__(self, dim: int, n_heads: int, conditioning_dim: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, dim)
        self.key_value = nn.Linear(conditioning_dim, 2 * dim)
        self.out = nn.Linear(dim, dim)
        self.gate = nn.Parameter(torch.zeros(dim))

    def forward(self, tokens: Tensor, sequence: Tensor) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` and vectors ``(cells, vectors, conditioning_dim)`` to tokens."""
        query = self.query(self.norm(tokens)).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
        key, value = self.key_value(sequence).unflatten(2, (2, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value)
        return tokens + self.gate * self.out(attended.transpose(1, 2).flatten(2))


class CellAttention(nn.Module):
    """Each token reads the same token of all cells, behind a zero-initialised gate: a fresh one is the identity."""

    def __init__(self, dim: int, n_heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, n_heads)
        self.gate = nn.Parameter(torch.zeros(dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` to tokens; the order of the cells does not matter."""
        return tokens + self.gate * self.attention(self.norm(tokens).transpose(0, 1)).transpose(0, 1)


class Block(nn.Module):
    """Attention and perceptron, each behind a zero-initialised gate (AdaLN-Zero, :cite:p:`peebles2023dit`).

    A fresh block is the identity.
    """

    def __init__(self, dim: int, n_heads: int, conditioning_dim: int, dropout: float) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(dim, elementwise_affine=False)
        self.attention = Attention(dim, n_heads)
        self.norm_mlp = nn.LayerNorm(dim, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim), nn.Dropout(dropout))
        self.modulation = nn.Linear(conditioning_dim, 6 * dim)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, tokens: Tensor, conditioning: Tensor) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` and conditioning ``(cells, conditioning_dim)`` to tokens."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.modulation(conditioning).chunk(6, dim=1)
        attended = self.attention(modulate(self.norm_attention(tokens), shift_1, scale_1))
        tokens = tokens + gate_1[:, None] * attended
        return tokens + gate_2[:, None] * self.mlp(modulate(self.norm_mlp(tokens), shift_2, scale_2))


class TokenTransformer(nn.Module):
    """Blocks over the tokens of one cell, conditioned on noise level and conditions.

    Parameters
    ----------
    dim, n_layers, n_heads
        Length of a token, number of blocks, number of attention heads (divides ``dim``).
    conditioning_dim
        Length of the conditioning vector.
    dropout
        Share of hidden units dropped while training.
    kind
        Where the conditions are: in the conditioning vector (``"adaln"``); or a sequence of vectors, which a sublayer
        before each block reads (``"cross_attention"``) or which are tokens of the cell until the end (``"concat"``).
    attention
        ``"within"``: cells never see each other. ``"across"``: after each block, each token attends to the same token
        of all cells.
    """

    def __init__(
        self,
        dim: int,
        n_layers: int,
        n_heads: int,
        conditioning_dim: int,
        dropout: float,
        kind: ConditioningKind = "adaln",
        attention: AttentionKind = "within",
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, n_heads, conditioning_dim, dropout) for _ in range(n_layers))
        self.norm = nn.LayerNorm(dim)
        self.to_token = nn.Linear(conditioning_dim, dim) if kind == "concat" else None
        self.readers = nn.ModuleList(
            CrossAttention(dim, n_heads, conditioning_dim) for _ in self.blocks if kind == "cross_attention"
        )
        self.across = nn.ModuleList(CellAttention(dim, n_heads) for _ in self.blocks if attention == "across")

    def forward(self, tokens: Tensor, conditioning: Tensor, sequence: Tensor | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` to tokens.

        Conditioning is ``(cells, conditioning_dim)``, and the sequence ``(cells, vectors, conditioning_dim)``, which
        there is unless conditions are in the conditioning.
        """
        n_tokens = tokens.shape[1]
        if self.to_token is not None:
            tokens = torch.cat([tokens, self.to_token(sequence)], dim=1)
        for layer, block in enumerate(self.blocks):
            if self.readers:
                tokens = self.readers[layer](tokens, sequence)
            tokens = block(tokens, conditioning)
            if self.across:
                tokens = self.across[layer](tokens)
        return self.norm(tokens[:, :n_tokens])
