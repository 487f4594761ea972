"""Alternatives to sinusoidal number embeddings, learned positions and log-count inputs."""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scdiffgen.nn._embeddings import (
    LARGEST,
    LOG_COUNT_PERIOD,
    CategoryVectors,
    Embedded,
    Ids,
    NumberEmbedding,
    Numbers,
    SinusoidalEmbedding,
    TableEmbedding,
    WaveEmbedding,
    geometric_frequencies,
    log_count_embedding,
)
from scdiffgen.nn._network import rotate
from scdiffgen.nn._options import Genes, InputKind, NumberKind, Sums

# Numbers.


class FourierEmbedding(WaveEmbedding):
    """Random Fourier features with trained frequencies of initial SD 0.1 (Tancik et al. 2020; Li et al. 2021)."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.frequencies = nn.Parameter(2 * math.pi * 0.1 * torch.randn((dim + 1) // 2))


class RotaryEmbedding(NumberEmbedding):
    """Rotary embedding: one learned vector, rotated by angles proportional to the number."""

    for_log_counts: ClassVar[dict[str, Any]] = {"min_period": LOG_COUNT_PERIOD}
    frequencies: Tensor

    def __init__(self, dim: int, *, min_period: float = 1.0, max_period: float = 50.0) -> None:
        if dim < 2:
            raise ValueError(f"`dim` is {dim}, but RotaryEmbedding needs at least 2. Pass a larger `dim`.")
        super().__init__(dim)
        self.register_buffer("frequencies", geometric_frequencies(dim // 2, min_period, max_period))
        self.start = nn.Parameter(torch.ones(dim))  # all planes initially have the same weight

    def _embed(self, numbers: Numbers) -> Embedded:
        return rotate(self.start.expand(*numbers.shape, self.dim), numbers[..., None] * self.frequencies)


class DirectEmbedding(NumberEmbedding):
    """Perceptron of sign ``tanh(x / s)``, log-magnitude ``asinh(x / s)`` and value ``tanh(x)``, with s = 0.1."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.mlp = nn.Sequential(nn.Linear(3, dim), nn.SiLU(), nn.Linear(dim, dim))

    def _embed(self, numbers: Numbers) -> Embedded:
        scaled = numbers / 0.1
        log_magnitude = scaled.asinh() / math.asinh(1 / 0.1)
        return self.mlp(torch.stack([scaled.tanh(), log_magnitude, numbers.tanh()], dim=-1))


MAX_EXPONENT = int(math.log2(LARGEST)) + 1
MIN_EXPONENT = 2 - MAX_EXPONENT
"""Range of binary exponents, for magnitudes from ``1 / LARGEST`` to ``LARGEST``; smaller ones are clamped."""

N_EXPONENTS = MAX_EXPONENT - MIN_EXPONENT + 2  # the first is for zero
N_MANTISSAS = 8
"""Bins of the mantissa: magnitudes with a relative difference below ``1 / (2 * N_MANTISSAS)`` may share a bin."""


def number_bins(numbers: Numbers, n_mantissas: int) -> tuple[Tensor, Tensor, Tensor]:
    """Bin numbers by sign (negative, zero, positive), binary exponent and mantissa; zero has its own bins."""
    mantissa, exponent = torch.frexp(numbers.abs())  # mantissa in [1/2, 1), or 0
    is_zero = numbers == 0
    mantissa_bin = ((2 * mantissa - 1) * n_mantissas).long() + 1
    exponent_bin = exponent.long().clamp(MIN_EXPONENT, MAX_EXPONENT) - MIN_EXPONENT + 1
    return numbers.sign().long() + 1, exponent_bin.masked_fill(is_zero, 0), mantissa_bin.masked_fill(is_zero, 0)


def _table(n_rows: int, dim: int) -> nn.Embedding:
    table = nn.Embedding(n_rows, dim)
    nn.init.normal_(table.weight, std=0.25)
    return table


class BinEmbedding(NumberEmbedding):
    """Sum of learned vectors of the sign, the binary exponent and the mantissa bin, without interpolation."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.signs = _table(3, dim)
        self.exponents = _table(N_EXPONENTS, dim)
        self.mantissas = _table(N_MANTISSAS + 1, dim)

    def _embed(self, numbers: Numbers) -> Embedded:
        sign, exponent, mantissa = number_bins(numbers, N_MANTISSAS)
        return self.signs(sign) + self.exponents(exponent) + self.mantissas(mantissa)


class ExponentEmbedding(NumberEmbedding):
    """Table of one learned vector for each sign and binary exponent."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.exponents = _table(3 * N_EXPONENTS, dim)

    def _embed(self, numbers: Numbers) -> Embedded:
        sign, exponent, _ = number_bins(numbers, n_mantissas=1)
        return self.exponents(sign * N_EXPONENTS + exponent)


class HybridEmbedding(NumberEmbedding):
    """Concatenation of a sinusoidal (half), a direct (quarter) and an exponent embedding (quarter of ``dim``)."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        n_sinusoidal = (dim + 1) // 2
        n_direct = (dim - n_sinusoidal + 1) // 2
        n_exponent = dim - n_sinusoidal - n_direct
        kinds = {SinusoidalEmbedding: n_sinusoidal, DirectEmbedding: n_direct, ExponentEmbedding: n_exponent}
        self.parts = nn.ModuleList(kind(n) for kind, n in kinds.items() if n)

    def _embed(self, numbers: Numbers) -> Embedded:
        return torch.cat([part(numbers) for part in self.parts], dim=-1)


def sinusoidal_positions(n_tokens: int, dim: int) -> Tensor:
    """Compute the sinusoidal position embeddings ``(tokens, dim)`` of Vaswani et al. (2017)."""
    waves = SinusoidalEmbedding(dim, min_period=2 * math.pi, max_period=2e4 * math.pi)
    return waves(torch.arange(n_tokens, dtype=torch.float32))


# Expression.


class ExpressionFunctions(nn.Module):
    """Learned functions of expression, linear in its embedding and 0 at 0; the first is initially the identity."""

    n_functions = 4

    def __init__(self, kind: NumberKind) -> None:
        super().__init__()
        self.embed = log_count_embedding(kind, 32)
        self.to_functions = nn.Linear(self.embed.dim, self.n_functions)
        with torch.no_grad():
            self.to_functions.weight[0] = self.to_functions.bias[0] = 0

    def forward(self, expression: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape functions"]:
        learned = self.to_functions(self.embed(expression)) * (expression != 0)[..., None]
        return learned + F.pad(expression[..., None], (0, self.n_functions - 1))

    def weighted_sums(self, state: Genes, weight: Tensor, mix: Tensor, input_kind: InputKind) -> Sums:
        """Sum over genes by ``weight`` and functions by ``mix``; genes with equal counts are summed first."""
        if input_kind == "values":
            return torch.einsum("cgj,gs,js->cs", self(state), weight, mix)
        counts = state.to_sparse_csr() if state.layout == torch.strided else state
        distinct, place = counts.values().unique(return_inverse=True)
        factors = self(torch.log1p(distinct)) @ mix
        cells = torch.arange(len(counts), device=counts.device).repeat_interleave(counts.crow_indices().diff())
        groups, order = (cells * len(distinct) + place).sort()
        groups, sizes = groups.unique_consecutive(return_counts=True)
        starts, columns = F.pad(sizes.cumsum(0), (1, 0)), counts.col_indices()[order]
        sums = F.embedding_bag(columns, weight, starts, mode="sum", include_last_offset=True)
        sums = sums * F.embedding(groups % len(distinct), factors)
        return sums.new_zeros(len(counts), sums.shape[1]).index_add(0, groups // len(distinct), sums)


def wavelets(x: Numbers) -> tuple[Tensor, Tensor]:
    """Compute the even and the odd wavelet: second ("Mexican hat") and first derivative of a Gaussian, peak 1."""
    return (1 - x**2) * torch.exp(-(x**2) / 2), x * torch.exp((1 - x**2) / 2)


class WaveletEmbedding(NumberEmbedding):
    """Two wavelets at scales of all octaves and at positions one scale apart, projected."""

    centres: Tensor
    scales: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        smallest, reach = 0.25, 4.0  # scales double up to LARGEST; wavelets are centred within +- reach
        octaves = smallest * 2.0 ** torch.arange(int(torch.tensor(LARGEST / smallest).log2()) + 1)
        steps = [torch.arange(-(n := int(reach // scale)), n + 1) * scale for scale in octaves.tolist()]
        self.register_buffer("centres", torch.cat(steps))
        self.register_buffer("scales", octaves.repeat_interleave(torch.tensor([len(step) for step in steps])))
        self.mix = nn.Linear(2 * len(self.centres), dim)
        # Scales near the reach, the range of numbers of order one, have the largest weights at first.
        with torch.no_grad():
            weight = torch.minimum(self.scales, reach**2 / self.scales).sqrt() / (2 * reach)
            self.mix.weight.normal_().mul_(weight.repeat(2))

    def _embed(self, numbers: Numbers) -> Embedded:
        return self.mix(torch.cat(wavelets((numbers[..., None] - self.centres) / self.scales), dim=-1))


HALF = 10  # bits of a row in one of the two tables; ids have twice as many bits


def scramble(ids: Ids, salt: int = 0) -> Ids:
    """Permute the integers in ``[0, 2**20)``, differently for each salt, by odd factors and exclusive-or."""
    last = (1 << 2 * HALF) - 1
    word = ((ids + salt * 0x51E37) * 0x9E375) & last
    word = ((word ^ (word >> HALF)) * 0x5EBCB) & last
    return word ^ (word >> HALF)


class HashedVocabulary(nn.Module):
    """Sum of one row of each of two tables of 1,024 rows; distinct categories have distinct pairs of rows."""

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__()
        self.first, self.second = (TableEmbedding(1 << HALF, dim) for _ in range(2))

    def forward(self, ids: Ids) -> CategoryVectors:
        word = scramble(ids)
        return (self.first(word >> HALF) + self.second(word & ((1 << HALF) - 1))) * 2**-0.5


class CodedVocabulary(nn.Module):
    """Projection of a fixed code of 60 signs per category."""

    n_words = 3

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(2 * HALF * self.n_words, dim)

    def forward(self, ids: Ids) -> CategoryVectors:
        words = torch.stack([scramble(ids, salt) for salt in range(self.n_words)], dim=-1)
        bits = (words[..., None] >> torch.arange(2 * HALF, device=ids.device)) & 1
        return self.projection((2.0 * bits.flatten(-2) - 1.0).to(self.projection.weight.dtype))
