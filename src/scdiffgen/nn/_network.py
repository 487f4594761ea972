"""The complete network, from corrupted cell, noise level, library size and conditions to tokens and gene scores."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ._encoders import CountEncoder
from ._numbers import log_count_embedding
from ._options import InputKind, NetworkSize
from ._readouts import AdditiveReadout, GeneScores, Urn
from ._shapes import CellVector, ConditionNumbers, Genes, Levels, Sums, Tokens, Vectors
from ._transformer import TokenTransformer
from .variants._table import variant


class Conditioning(NamedTuple):
    """Conditioning of the encoder, the transformer and the read-out."""

    vector: Tensor  # (cells, conditioning_dim): noise level and library size; with "adaln" also the conditions
    sequence: Tensor | None = None  # (cells, vectors, conditioning_dim): the conditions, unless "adaln"
    angles: Tensor | None = None  # (cells, vectors, planes): rotation angles of the sequence


class TokenTrunk(nn.Module):
    """Encoder and transformer of ``"counts"`` or of dense ``"values"``, with noise level and conditions as inputs."""

    positions: Tensor

    def __init__(self, n_genes: int, size: NetworkSize, input_kind: InputKind = "counts") -> None:
        super().__init__()
        dim, form = size.conditioning_dim, size.options
        self.input_kind = input_kind
        self.kind = form.conditioning
        self.embed_level = log_count_embedding(form.level_embedding, dim)
        self.embed_library = log_count_embedding(form.level_embedding, dim)
        n_joined = 2 * size.n_levels + (self.kind == "adaln")
        self.join = nn.Sequential(nn.Linear(n_joined * dim, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU())
        self.encoder = CountEncoder(n_genes, size, input_kind)
        if form.positions == "learned":
            self.positions = nn.Parameter(torch.randn(size.n_tokens, size.token_dim) * 0.02)
        else:
            fixed = variant("positions", form.positions)(size.n_tokens, size.token_dim)
            self.register_buffer("positions", fixed)
        self.rotations = variant("attention_numbers", "rotated")(size) if form.attention_numbers == "rotated" else None
        self.nested = form.nested_tokens
        self.transformer = TokenTransformer(size)

    def conditioning(
        self, level: Levels, library: Levels, condition: Vectors, numbers: ConditionNumbers = None
    ) -> Conditioning:
        """Embed noise level and library size and join them with the conditions; only rotations need ``numbers``."""
        log_level, log_library = torch.log1p(level) if self.input_kind == "counts" else level, torch.log1p(library)
        noise, depth = self.embed_level(log_level).flatten(1), self.embed_library(log_library).flatten(1)
        if self.kind == "adaln":
            return Conditioning(self.join(torch.cat([noise, depth, condition], dim=1)))
        vector = self.join(torch.cat([noise, depth], dim=1))
        if self.kind == "cross_attention":
            condition = torch.cat([condition, vector[:, None]], dim=1)
        angles = None
        if self.rotations is not None:
            angles = self.rotations(torch.stack([log_level, log_library], dim=1).flatten(1), numbers)
        return Conditioning(vector, condition, angles)

    def forward(self, gene_sums: Sums, conditioning: Conditioning) -> Tokens:
        """Compute tokens from the sums of ``encoder.read``; nested tokens are trained with leading tokens only."""
        tokens = self.encoder(gene_sums, conditioning.vector) + self.positions
        if self.nested and self.training:
            tokens = tokens[:, : variant("nested_tokens", True)(tokens.shape[1])]
        return self.transformer(tokens, *conditioning)


class ScoreNetwork(nn.Module):
    """Encoder, token transformer and read-out, with one score per gene."""

    def __init__(self, n_genes: int, size: NetworkSize, input_kind: InputKind) -> None:
        super().__init__()
        self.trunk = TokenTrunk(n_genes, size, input_kind)
        self.readout = AdditiveReadout(n_genes, size)

    def read(
        self, state: Genes, level: Levels, library: Levels, condition: Vectors, numbers: ConditionNumbers = None
    ) -> tuple[Genes, CellVector]:
        """Compute gene scores of corrupted cells, and return the conditioning vector."""
        conditioning = self.trunk.conditioning(level, library, condition, numbers)
        tokens = self.trunk(self.trunk.encoder.read(state), conditioning)
        return self.readout(tokens), conditioning.vector

    def tokens(
        self, state: Genes, level: Levels, library: Levels, condition: Vectors, numbers: ConditionNumbers = None
    ) -> Tokens:
        """Compute the tokens after the transformer."""
        conditioning = self.trunk.conditioning(level, library, condition, numbers)
        return self.trunk(self.trunk.encoder.read(state), conditioning)


class TokenNetwork(ScoreNetwork):
    """Network of counts, with gene scores and an urn term for the next molecule."""

    def __init__(self, n_genes: int, size: NetworkSize) -> None:
        super().__init__(n_genes, size, "counts")
        self.urn = Urn(n_genes, size.conditioning_dim, size.n_levels)

    def forward(
        self, state: Genes, n_molecules: Levels, library: Levels, condition: Vectors, numbers: ConditionNumbers = None
    ) -> GeneScores:
        """Compute gene scores of the next molecule, given the present molecules (CSR or dense)."""
        scores, conditioning = self.read(state, n_molecules, library, condition, numbers)
        return self.urn(scores, conditioning, n_molecules)
