"""From corrupted cells to tokens: noise level and library size, encoder, transformer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ._encoder import CountEncoder, GeneEncoder, LinearEncoder
from ._gene_attention import GeneAttentionEncoder
from ._number_kinds import log_count_embedding
from ._numbers import SinusoidalEmbedding
from ._options import InputKind, NetworkSize
from ._transformer import TokenTransformer

ENCODERS: dict[str, Callable[[int, NetworkSize, InputKind], GeneEncoder]] = {
    "mlp": lambda n_genes, size, reads: CountEncoder(
        n_genes, size.n_tokens, size.token_dim, size.n_hidden, size.conditioning_dim, size.dropout, reads
    ),
    "linear": lambda n_genes, size, reads: LinearEncoder(
        n_genes, size.n_tokens, size.token_dim, size.conditioning_dim, reads
    ),
    "cross_attention": lambda n_genes, size, reads: GeneAttentionEncoder(
        n_genes, size.n_tokens, size.token_dim, size.n_heads, size.conditioning_dim, reads
    ),
}


def fixed_positions(size: NetworkSize) -> Tensor:
    """Position of each token ``(tokens, dim)`` that is not learned: sines and cosines of its number, or nothing."""
    if size.options.positions == "none":
        return torch.zeros(size.n_tokens, size.token_dim)
    waves = SinusoidalEmbedding(size.token_dim, min_period=2 * math.pi, max_period=2e4 * math.pi)
    return waves(torch.arange(size.n_tokens, dtype=torch.float32))


class Conditioning(NamedTuple):
    """What encoder, transformer and read-out are conditioned on."""

    vector: Tensor  # (cells, conditioning_dim), of noise level and library size; with "adaln" also of the conditions
    sequence: Tensor | None = None  # (cells, vectors, conditioning_dim), of the conditions otherwise


class TokenTrunk(nn.Module):
    """Encoder and transformer, conditioned on noise level, library size and conditions.

    Parameters
    ----------
    n_genes
        Number of genes.
    size
        Widths and depths.
    reads
        What a corrupted cell is. ``"counts"``: molecules; of them and of the noise level, which is their number, the
        logarithm is taken. ``"values"``: numbers of order one, dense, and a level that is a logarithm already.
    """

    positions: Tensor

    def __init__(self, n_genes: int, size: NetworkSize, reads: InputKind = "counts") -> None:
        super().__init__()
        dim = size.conditioning_dim
        self.reads = reads
        self.kind = size.options.conditioning
        self.embed_level = log_count_embedding(size.options.level_embedding, dim)
        self.embed_library = log_count_embedding(size.options.level_embedding, dim)
        n_joined = 2 * size.n_levels + (self.kind == "adaln")
        self.join = nn.Sequential(nn.Linear(n_joined * dim, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU())
        self.encoder = ENCODERS[size.options.encoder](n_genes, size, reads)
        if size.options.positions == "learned":
            self.positions = nn.Parameter(torch.randn(size.n_tokens, size.token_dim) * 0.02)
        else:
            self.register_buffer("positions", fixed_positions(size))
        self.nested = size.nested_tokens
        self.transformer = TokenTransformer(
            size.token_dim, size.n_layers, size.n_heads, dim, size.dropout, self.kind, size.options.attention
        )

    def conditioning(self, level: Tensor, library: Tensor, condition: Tensor) -> Conditioning:
        """Join noise level and library size ``(cells,)``, or several ``(cells, levels)``, with the conditions.

        Conditions are one vector a cell ``(cells, conditioning_dim)`` with ``"adaln"``, otherwise several ``(cells,
        vectors, conditioning_dim)``. Cross-attention has the level beside them, so that there is always one to read.
        """
        noise = self.embed_level(torch.log1p(level) if self.reads == "counts" else level).flatten(1)
        depth = self.embed_library(torch.log1p(library)).flatten(1)
        if self.kind == "adaln":
            return Conditioning(self.join(torch.cat([noise, depth, condition], dim=1)))
        vector = self.join(torch.cat([noise, depth], dim=1))
        if self.kind == "cross_attention":
            condition = torch.cat([condition, vector[:, None]], dim=1)
        return Conditioning(vector, condition)

    def forward(self, gene_sums: Tensor, conditioning: Conditioning) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` from the encoder's first layer and the conditioning, both a row a cell.

        While nested tokens are trained there may be fewer: the leading ones.
        """
        positions = self.positions[: self._n_active()]
        tokens = self.encoder(gene_sums, conditioning.vector, len(positions)) + positions
        return self.transformer(tokens, *conditioning)

    def _n_active(self) -> int:
        """Number of leading tokens to compute: all, or for nested tokens, in half of the minibatches, any number."""
        n_tokens = len(self.positions)
        if not (self.nested and self.training) or torch.rand(()) < 0.5:
            return n_tokens
        return int(torch.randint(1, n_tokens + 1, ()))
