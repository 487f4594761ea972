"""From corrupted cells to tokens: noise level and library size, encoder, transformer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from ._encoder import CountEncoder, GeneEncoder, InputKind, LinearEncoder
from ._gene_attention import GeneAttentionEncoder
from ._number_kinds import NUMBER_EMBEDDINGS, NumberKind, log_count_embedding
from ._numbers import SinusoidalEmbedding
from ._readout_options import ReadoutOptions
from ._transformer import AttentionKind, ConditioningKind, TokenTransformer

EncoderKind = Literal["mlp", "linear", "cross_attention"]
PositionKind = Literal["learned", "sinusoidal", "none"]


@dataclass(frozen=True)
class NetworkSize:
    """Size and form of the network.

    Parameters
    ----------
    n_tokens, token_dim
        A cell is ``n_tokens`` tokens of length ``token_dim``.
    n_layers, n_heads
        Transformer blocks, and attention heads in each.
    n_hidden
        Width of the encoder's hidden layer.
    readout_dim
        Length of what each token says to the genes.
    conditioning_dim
        Length of the conditioning vector.
    dropout
        Share of hidden units dropped while training.
    readout
        Form of the read-out.
    nested_tokens
        Train on random numbers of leading tokens, in half of the minibatches: so the first tokens matter most, and the
        network works with its first few alone (nested dropout, :cite:p:`rippel2014nested`).
    conditioning
        How conditions reach the tokens: ``"adaln"``, ``"cross_attention"`` or ``"concat"``.
    level_embedding
        How noise level and library size are embedded, a name in ``NUMBER_EMBEDDINGS``.
    encoder
        How genes become tokens: ``"mlp"``, ``"linear"``, or ``"cross_attention"`` over the expressed genes.
    positions
        What tells tokens apart beside the encoder: ``"learned"`` vectors, ``"sinusoidal"`` ones, or ``"none"``.
    attention
        Whether tokens attend to those of their own cell (``"within"``), or then also to those of the other cells of the
        minibatch (``"across"``): a cell then depends on the cells it comes with.
    n_levels
        Noise levels, and library sizes, of a cell: one for each kind of molecules.
    """

    n_tokens: int = 8
    token_dim: int = 64
    n_layers: int = 2
    n_heads: int = 2
    n_hidden: int = 256
    readout_dim: int = 8
    conditioning_dim: int = 128
    dropout: float = 0.1
    readout: ReadoutOptions = field(default_factory=ReadoutOptions)
    nested_tokens: bool = False
    conditioning: ConditioningKind = "adaln"
    level_embedding: NumberKind = "sinusoidal"
    encoder: EncoderKind = "mlp"
    positions: PositionKind = "learned"
    attention: AttentionKind = "within"
    n_levels: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("n_tokens", "token_dim", "n_heads", "n_hidden", "readout_dim", "conditioning_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` is {getattr(self, name)}: pass a positive integer.")
        if self.n_layers < 0:
            raise ValueError(f"`n_layers` is {self.n_layers}: pass 0 or more.")
        if self.token_dim % self.n_heads:
            raise ValueError(f"`token_dim` ({self.token_dim}) must be a multiple of `n_heads` ({self.n_heads}).")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` is {self.dropout}: pass a share in [0, 1).")
        known: dict[str, Sequence[str]] = {
            "conditioning": get_args(ConditioningKind),
            "level_embedding": list(NUMBER_EMBEDDINGS),
            "encoder": get_args(EncoderKind),
            "positions": get_args(PositionKind),
            "attention": get_args(AttentionKind),
        }
        for name, kinds in known.items():
            if getattr(self, name) not in kinds:
                raise ValueError(f"`{name}` is {getattr(self, name)!r}: pass one of {list(kinds)}.")


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
    if size.positions == "none":
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
        self.kind = size.conditioning
        self.embed_level = log_count_embedding(size.level_embedding, dim)
        self.embed_library = log_count_embedding(size.level_embedding, dim)
        n_joined = 2 * size.n_levels + (self.kind == "adaln")
        self.join = nn.Sequential(nn.Linear(n_joined * dim, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU())
        self.encoder = ENCODERS[size.encoder](n_genes, size, reads)
        if size.positions == "learned":
            self.positions = nn.Parameter(torch.randn(size.n_tokens, size.token_dim) * 0.02)
        else:
            self.register_buffer("positions", fixed_positions(size))
        self.nested = size.nested_tokens
        self.transformer = TokenTransformer(
            size.token_dim, size.n_layers, size.n_heads, dim, size.dropout, self.kind, size.attention
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
