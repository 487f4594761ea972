"""Token transformer of pre-norm blocks that are modulated by the conditioning."""

import torch
from torch import Tensor, nn

from ._attention import Attention
from ._options import NetworkSize
from .variants._table import variant


def modulate(tokens: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Scale and shift the tokens ``(cells, tokens, dim)`` of each cell by vectors ``(cells, dim)``."""
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
        """Update tokens ``(cells, tokens, dim)`` given the conditioning ``(cells, conditioning_dim)``."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.modulation(conditioning).chunk(6, dim=1)
        attended = self.attention(modulate(self.norm_attention(tokens), shift_1, scale_1), angles=angles)
        tokens = tokens + gate_1[:, None] * attended
        return tokens + gate_2[:, None] * self.mlp(modulate(self.norm_mlp(tokens), shift_2, scale_2))


class TokenTransformer(nn.Module):
    """Transformer over the tokens of a cell and, with ``attention="across"``, over the cells of the minibatch."""

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        dim, n_heads, form = size.token_dim, size.n_heads, size.options
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.n_layers))
        self.norm = nn.LayerNorm(dim)
        self.to_token = nn.Linear(size.conditioning_dim, dim) if form.conditioning == "concat" else None
        self.to_conditions = nn.ModuleList(
            variant("conditioning", "cross_attention")(dim, n_heads, size.conditioning_dim)
            for _ in self.blocks
            if form.conditioning == "cross_attention"
        )
        self.to_cells = nn.ModuleList(
            variant("attention", "across")(dim, n_heads) for _ in self.blocks if form.attention == "across"
        )

    def forward(
        self, tokens: Tensor, conditioning: Tensor, sequence: Tensor | None = None, angles: Tensor | None = None
    ) -> Tensor:
        """Update tokens ``(cells, tokens, dim)``; angles rotate the condition vectors ``(cells, vectors, dim)``."""
        n_tokens, in_block = tokens.shape[1], None
        if self.to_token is not None:
            tokens = torch.cat([tokens, self.to_token(sequence)], dim=1)
            if angles is not None:
                of_conditions, of_level = angles[:, :-1], angles[:, -1:]
                in_block = torch.cat([of_level.expand(-1, n_tokens, -1), of_conditions], dim=1)
        for layer, block in enumerate(self.blocks):
            if self.to_conditions:
                tokens = self.to_conditions[layer](tokens, sequence, angles)
            tokens = block(tokens, conditioning, in_block)
            if self.to_cells:
                tokens = self.to_cells[layer](tokens)
        return self.norm(tokens[:, :n_tokens])
