"""The token transformer: attention, and pre-norm blocks modulated by the conditioning."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._numbers import rotate
from ._options import NetworkSize
from ._rotations import NOT_ROTATED, Angles


class Attention(nn.Module):
    """Multi-head attention within a row, or to sources; learned queries and their output are not projected."""

    def __init__(self, dim: int, n_heads: int, source_dim: int | None = None, *, learned_queries: bool = False) -> None:
        super().__init__()
        self.n_heads = n_heads
        if source_dim is None:
            self.project = nn.Linear(dim, 3 * dim)
        else:
            self.query = nn.Identity() if learned_queries else nn.Linear(dim, dim)
            self.key_value = nn.Linear(source_dim, 2 * dim)
        self.out = nn.Identity() if learned_queries else nn.Linear(dim, dim)

    def forward(
        self, queries: Tensor, sources: Tensor | None = None, mask: Tensor | None = None, angles: Tensor | None = None
    ) -> Tensor:
        """What each query ``(cells, queries, dim)``, or ``(queries, dim)``, takes from the sources where ``mask``.

        Keys, and queries without separate sources, are rotated by angles ``(cells, sources, dim / heads / 2)``.
        """
        query, key, value = self._heads(queries, sources, angles)
        mask = None if mask is None else mask[:, None, None]
        is_slow = key.device.type == "cpu" and key.dtype.itemsize < 4  # attention in half precision on a CPU
        if is_slow:
            query, key, value = query.float(), key.float(), value.float()
        with torch.autocast("cpu", enabled=False) if is_slow else nullcontext():
            attended = F.scaled_dot_product_attention(query.expand(len(key), -1, -1, -1), key, value, attn_mask=mask)
        return self.out(attended.transpose(1, 2).flatten(2))

    def weights(self, tokens: Tensor, angles: Tensor | None = None) -> Tensor:
        """Share that each token takes from each: ``(cells, heads, tokens, tokens)``, summing to 1 over the last."""
        query, key, _ = self._heads(tokens, None, angles)
        return (query @ key.transpose(2, 3) * key.shape[3] ** -0.5).softmax(3)

    def _heads(self, queries: Tensor, sources: Tensor | None, angles: Tensor | None) -> tuple[Tensor, ...]:
        """Queries, keys and values ``(cells, heads, vectors, dim / heads)``; of learned queries without the cells."""
        if sources is None:
            projected = self.project(queries).chunk(3, dim=2)
        else:
            projected = self.query(queries), *self.key_value(sources).chunk(2, dim=2)
        query, key, value = (vectors.unflatten(-1, (self.n_heads, -1)).transpose(-3, -2) for vectors in projected)
        if angles is not None:
            key = rotate(key, angles[:, None]).to(value)
            query = rotate(query, angles[:, None]).to(value) if sources is None else query
        return query, key, value


class GatedAttention(nn.Module):
    """Attention behind a zero-initialised gate: to the conditions, or without these to the same token of all cells."""

    def __init__(self, dim: int, n_heads: int, source_dim: int | None = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, n_heads, source_dim)
        self.gate = nn.Parameter(torch.zeros(dim))

    def forward(self, tokens: Tensor, sources: Tensor | None = None, angles: Tensor | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` to tokens; angles ``(cells, sources, planes)`` or ``(1, cells, planes)``."""
        normed = self.norm(tokens)
        if sources is None:
            return tokens + self.gate * self.attention(normed.transpose(0, 1), angles=angles).transpose(0, 1)
        return tokens + self.gate * self.attention(normed, sources, angles=angles)


def modulate(tokens: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Scale and shift every token ``(cells, tokens, dim)`` of a cell by the cell's own ``(cells, dim)``."""
    return tokens * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    """Attention and perceptron, each behind a zero-initialised gate (AdaLN-Zero, :cite:p:`peebles2023dit`)."""

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        dim = size.token_dim
        self.norm_attention = nn.LayerNorm(dim, elementwise_affine=False)
        self.attention = Attention(dim, size.n_heads)
        self.norm_mlp = nn.LayerNorm(dim, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim), nn.Dropout(size.dropout))
        self.modulation = nn.Linear(size.conditioning_dim, 6 * dim)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, tokens: Tensor, conditioning: Tensor, angles: Tensor | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` and conditioning ``(cells, conditioning_dim)`` to tokens."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.modulation(conditioning).chunk(6, dim=1)
        attended = self.attention(modulate(self.norm_attention(tokens), shift_1, scale_1), angles=angles)
        tokens = tokens + gate_1[:, None] * attended
        return tokens + gate_2[:, None] * self.mlp(modulate(self.norm_mlp(tokens), shift_2, scale_2))


class TokenTransformer(nn.Module):
    """Blocks over the tokens of one cell; with ``attention="across"`` each is followed by attention over the cells."""

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        dim, n_heads, form = size.token_dim, size.n_heads, size.options
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.n_layers))
        self.norm = nn.LayerNorm(dim)
        self.to_token = nn.Linear(size.conditioning_dim, dim) if form.conditioning == "concat" else None
        self.to_conditions = nn.ModuleList(
            GatedAttention(dim, n_heads, size.conditioning_dim)
            for _ in self.blocks
            if form.conditioning == "cross_attention"
        )
        self.to_cells = nn.ModuleList(GatedAttention(dim, n_heads) for _ in self.blocks if form.attention == "across")

    def forward(
        self, tokens: Tensor, conditioning: Tensor, sequence: Tensor | None = None, angles: Angles = NOT_ROTATED
    ) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` to tokens; the sequence, of conditions, is ``(cells, vectors, dim)``."""
        n_tokens, in_block = tokens.shape[1], None
        if self.to_token is not None:
            tokens = torch.cat([tokens, self.to_token(sequence)], dim=1)
            if angles.sequence is not None:
                of_conditions, of_level = angles.sequence[:, :-1], angles.sequence[:, -1:]
                in_block = torch.cat([of_level.expand(-1, n_tokens, -1), of_conditions], dim=1)
        for layer, block in enumerate(self.blocks):
            if self.to_conditions:
                tokens = self.to_conditions[layer](tokens, sequence, angles.sequence)
            tokens = block(tokens, conditioning, in_block)
            if self.to_cells:
                tokens = self.to_cells[layer](tokens, angles=angles.cells)
        return self.norm(tokens[:, :n_tokens])
