"""The complete network, from corrupted cell, noise level, library size and conditions to tokens and gene scores."""

from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from scvi.distributions import NegativeBinomial
from torch import Tensor, nn

from ._embeddings import log_count_embedding
from ._options import CellVector, ConditionNumbers, Genes, Hidden, InputKind, Levels, NetworkSize, Sums, Tokens, Vectors
from ._readouts import AdditiveReadout, GeneScores, Urn
from .variants import variant


class Attention(nn.Module):
    """Multi-head self-attention, or cross-attention if ``source_dim`` is given."""

    def __init__(self, dim: int, n_heads: int, source_dim: int | None = None) -> None:
        super().__init__()
        self.n_heads = n_heads
        if source_dim is None:
            self.project = nn.Linear(dim, 3 * dim)
        else:
            self.query = nn.Linear(dim, dim)
            self.key_value = nn.Linear(source_dim, 2 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, queries: Tensor, sources: Tensor | None = None, angles: Tensor | None = None) -> Tensor:
        """Attend from queries ``(cells, queries, dim)`` to the sources, by default to the queries themselves."""
        # Angles (cells, sources, dim / heads / 2) rotate the keys, and in self-attention the queries as well.
        query, key, value = self._heads(queries, sources, angles)
        is_slow = key.device.type == "cpu" and key.dtype.itemsize < 4  # half precision on a CPU
        if is_slow:
            query, key, value = query.float(), key.float(), value.float()
        with torch.autocast("cpu", enabled=False) if is_slow else nullcontext():
            attended = F.scaled_dot_product_attention(query, key, value)
        return self.out(attended.transpose(1, 2).flatten(2))

    def _heads(self, queries: Tensor, sources: Tensor | None, angles: Tensor | None) -> tuple[Tensor, ...]:
        """Return queries, keys and values ``(cells, heads, vectors, dim / heads)``."""
        if sources is None:
            projected = self.project(queries).chunk(3, dim=2)
        else:
            projected = self.query(queries), *self.key_value(sources).chunk(2, dim=2)
        query, key, value = (vectors.unflatten(2, (self.n_heads, -1)).transpose(1, 2) for vectors in projected)
        if angles is not None:
            key = rotate(key, angles[:, None]).to(value)
            query = rotate(query, angles[:, None]).to(value) if sources is None else query
        return query, key, value


def rotate(vectors: Float[Tensor, "*#shape dim"], angles: Float[Tensor, "*#shape half"]) -> Float[Tensor, "... dim"]:
    """Rotate pairs of adjacent components (Su et al. 2021, "RoFormer", equation 34), except an odd last component."""
    n_planes = vectors.shape[-1] // 2
    cos, sin = angles.cos(), angles.sin()
    first, second = vectors[..., 0 : 2 * n_planes : 2], vectors[..., 1 : 2 * n_planes : 2]
    turned = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2)
    return torch.cat([turned, vectors[..., 2 * n_planes :].expand(*turned.shape[:-1], -1)], dim=-1)


class CountEncoder(nn.Module):
    r"""Two-layer perceptron from cells to tokens, with a hidden layer that is shifted by the conditioning.

    The first layer is a weighted sum over genes of ``log1p(counts)`` or of values; with ``expression_embedding``
    :math:`\sum_j B_j \odot \sum_g a_j(x_g) W_g`, learned :math:`a_j`, initially :math:`a_0(x) = x`, :math:`B_0 = 1`.
    """

    def __init__(self, n_genes: int, size: NetworkSize, input_kind: InputKind = "counts") -> None:
        super().__init__()
        self.input_kind = input_kind
        self.token_dim = size.token_dim
        self.weight = nn.Parameter(torch.randn(n_genes, size.n_hidden) * 0.1)
        self.shift = nn.Linear(size.conditioning_dim, size.n_hidden)
        kind = size.options.expression_embedding
        self.functions = None if kind is None else variant("expression_embedding", kind)(kind)
        self.mix = None
        if self.functions is not None:
            self.mix = nn.Parameter(torch.eye(self.functions.n_functions, 1).repeat(1, size.n_hidden))
        self.norm = nn.LayerNorm(size.n_hidden)
        self.dropout = nn.Dropout(size.dropout)
        self.to_tokens = nn.Linear(size.n_hidden, size.n_tokens * size.token_dim)

    def read(self, state: Genes) -> Sums:
        """Compute the weighted sums over genes; for CSR counts, the cost is proportional to the non-zeros."""
        if self.functions is not None and self.mix is not None:
            return self.functions.weighted_sums(state, self.weight, self.mix, self.input_kind)
        if self.input_kind == "values":
            return state @ self.weight
        if state.layout == torch.strided:
            return torch.log1p(state) @ self.weight
        columns, rows, logs = state.col_indices(), state.crow_indices(), torch.log1p(state.values())
        return F.embedding_bag(
            columns, self.weight, rows, per_sample_weights=logs, mode="sum", include_last_offset=True
        )

    def forward(self, gene_sums: Sums, conditioning: CellVector) -> Tokens:
        """Compute tokens from the sums of :meth:`read` and the conditioning."""
        hidden = self.dropout(F.silu(self.norm(gene_sums + self.shift(conditioning))))
        return self.to_tokens(hidden).unflatten(1, (-1, self.token_dim))


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
            tokens = tokens[:, : number_of_tokens(tokens.shape[1])]
        return self.transformer(tokens, *conditioning)


def number_of_tokens(n_tokens: int) -> int:
    """Draw how many leading tokens a minibatch is trained with: all in half of the minibatches, else any number."""
    return n_tokens if torch.rand(()) < 0.5 else int(torch.randint(1, n_tokens + 1, ()))


class ScoreNetwork(nn.Module):
    """Encoder, token transformer and read-out, with one score per gene."""

    def __init__(self, n_genes: int, size: NetworkSize, input_kind: InputKind) -> None:
        super().__init__()
        self.trunk = TokenTrunk(n_genes, size, input_kind)
        self.readout = AdditiveReadout(n_genes, size)

    def tokens(
        self, state: Genes, level: Levels, library: Levels, condition: Vectors, numbers: ConditionNumbers = None
    ) -> tuple[Tokens, CellVector]:
        """Compute the tokens of corrupted cells after the transformer, and the conditioning vector."""
        conditioning = self.trunk.conditioning(level, library, condition, numbers)
        return self.trunk(self.trunk.encoder.read(state), conditioning), conditioning.vector


class TokenNetwork(ScoreNetwork):
    """Network of counts, with gene scores and an urn term for the next molecule."""

    def __init__(self, n_genes: int, size: NetworkSize) -> None:
        super().__init__(n_genes, size, "counts")
        self.urn = Urn(n_genes, size.conditioning_dim, size.n_levels)

    def forward(
        self, state: Genes, n_molecules: Levels, library: Levels, condition: Vectors, numbers: ConditionNumbers = None
    ) -> GeneScores:
        """Compute gene scores of the next molecule, given the present molecules (CSR or dense)."""
        tokens, conditioning = self.tokens(state, n_molecules, library, condition, numbers)
        return self.urn(self.readout(tokens), conditioning, n_molecules)


class CountLikelihood(nn.Module):
    """Negative binomial likelihood with one inverse dispersion per gene."""

    def __init__(self, n_genes: int) -> None:
        super().__init__()
        self.log_dispersion = nn.Parameter(torch.zeros(n_genes))

    @torch.no_grad()
    def start(self, inverse_dispersions: Tensor) -> None:
        """Initialise the inverse dispersion theta ``(genes,)``, at most 150; the variance is mean + mean^2 / theta."""
        self.log_dispersion.copy_(inverse_dispersions.log().clamp(max=5.0))

    def log_prob(self, counts: Genes, mean: Genes) -> Genes:
        return NegativeBinomial(mu=mean, theta=self.log_dispersion.exp(), validate_args=False).log_prob(counts)

    @torch.no_grad()
    def sample(self, mean: Genes, generator: torch.Generator | None = None) -> Genes:
        dispersion = self.log_dispersion.exp().expand_as(mean).contiguous()
        rate = torch._standard_gamma(dispersion, generator=generator) * mean / dispersion
        return torch.poisson(rate, generator=generator)


class TokenAutoencoder(nn.Module):
    """Autoencoder with tokens of root mean square 1, an additive read-out and a likelihood given the library size."""

    def __init__(self, n_genes: int, size: NetworkSize, latent_dim: int) -> None:
        super().__init__()
        self.embed_library = log_count_embedding(size.options.level_embedding, size.conditioning_dim)
        self.encoder = CountEncoder(n_genes, size)
        self.to_latent = nn.Linear(size.token_dim, latent_dim)
        self.from_latent = nn.Sequential(nn.Linear(latent_dim, size.token_dim), nn.SiLU())
        self.readout = AdditiveReadout(n_genes, size)
        self.likelihood = CountLikelihood(n_genes)

    def encode(self, counts: Genes, library: Levels) -> Tokens:
        return self.encode_sums(self.encoder.read(counts), library)

    def encode_sums(self, gene_sums: Sums, library: Levels) -> Tokens:
        tokens = self.to_latent(self.encoder(gene_sums, self.embed_library(torch.log1p(library))))
        return F.normalize(tokens, dim=2) * tokens.shape[2] ** 0.5

    def shares(self, latent: Tokens) -> Genes:
        return self.readout(self.from_latent(latent)).softmax(1)

    def hidden(self, latent: Tokens) -> Hidden:
        return self.readout.hidden(self.from_latent(latent))

    def log_prob(self, latent: Tokens, counts: Genes, library: Levels) -> Float[Tensor, " cells"]:
        return self.likelihood.log_prob(counts.to_dense(), self.shares(latent) * library[:, None]).sum(1)

    def sample(self, latent: Tokens, library: Levels, generator: torch.Generator | None = None) -> Genes:
        return self.likelihood.sample(self.shares(latent) * library[:, None], generator)
