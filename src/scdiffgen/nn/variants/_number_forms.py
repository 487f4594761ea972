"""Number embeddings ``(...)`` to ``(..., dim)`` of numbers of order one; magnitudes are clipped at ``LARGEST``."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ._options import NumberKind

LARGEST = 2.0**20
"""Largest magnitude told apart: float32 resolves no more than 1/8 there, so finer phases would be noise."""

Numbers = Float[Tensor, "*shape"]
Embedded = Float[Tensor, "*shape {self.dim}"]


class NumberEmbedding(nn.Module):
    """A map from a number to a vector of length ``dim``, at least ``smallest_dim`` of the class."""

    smallest_dim = 1

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim < self.smallest_dim:
            raise ValueError(
                f"`dim` is {dim}, but {type(self).__name__} needs at least {self.smallest_dim}. Pass a larger `dim`."
            )
        self.dim = dim

    def forward(self, numbers: Numbers) -> Embedded:
        """Embed numbers of any shape; the vectors lie along a new last axis."""
        return self._embed(numbers.clamp(-LARGEST, LARGEST))

    def _embed(self, numbers: Numbers) -> Embedded:
        raise NotImplementedError


def geometric_frequencies(n: int, min_period: float, max_period: float) -> Float[Tensor, " {n}"]:
    """Angular frequencies from that of ``max_period`` up to that of ``min_period``, in equal ratios."""
    return 2 * math.pi / torch.logspace(math.log10(max_period), math.log10(min_period), n)


class WaveEmbedding(NumberEmbedding):
    """Sines of the number at some frequencies, then the cosines; an odd ``dim`` drops the last cosine."""

    frequencies: Tensor

    def _embed(self, numbers: Numbers) -> Embedded:
        phases = numbers[..., None] * self.frequencies
        return torch.cat([phases.sin(), phases.cos()], dim=-1)[..., : self.dim]


class SinusoidalEmbedding(WaveEmbedding):
    """Sines and cosines at geometric frequencies (Vaswani et al. 2017, "Attention is all you need", section 3.5)."""

    def __init__(self, dim: int, *, min_period: float = 1.0, max_period: float = 50.0) -> None:
        super().__init__(dim)
        self.register_buffer("frequencies", geometric_frequencies((dim + 1) // 2, min_period, max_period))


class FourierEmbedding(WaveEmbedding):
    """Sines and cosines at trained Gaussian frequencies (Tancik et al. 2020; Li et al. 2021), of SD 0.1."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.frequencies = nn.Parameter(2 * math.pi * 0.1 * torch.randn((dim + 1) // 2))


def rotate(vectors: Float[Tensor, "*#shape dim"], angles: Float[Tensor, "*#shape half"]) -> Float[Tensor, "... dim"]:
    """Rotate pairs of neighbouring components (Su et al. 2021, "RoFormer", equation 34); an odd last one stays."""
    n_planes = vectors.shape[-1] // 2
    cos, sin = angles.cos(), angles.sin()
    first, second = vectors[..., 0 : 2 * n_planes : 2], vectors[..., 1 : 2 * n_planes : 2]
    turned = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2)
    return torch.cat([turned, vectors[..., 2 * n_planes :].expand(*turned.shape[:-1], -1)], dim=-1)


class RotaryEmbedding(NumberEmbedding):
    """One learned vector, rotated by angles proportional to the number."""

    smallest_dim = 2
    frequencies: Tensor

    def __init__(self, dim: int, *, min_period: float = 1.0, max_period: float = 50.0) -> None:
        super().__init__(dim)
        self.register_buffer("frequencies", geometric_frequencies(dim // 2, min_period, max_period))
        self.start = nn.Parameter(torch.ones(dim))  # at first all planes weigh alike

    def _embed(self, numbers: Numbers) -> Embedded:
        return rotate(self.start.expand(*numbers.shape, self.dim), numbers[..., None] * self.frequencies)


class DirectEmbedding(NumberEmbedding):
    """Sign ``tanh(x / s)``, log-magnitude ``asinh(x / s)`` and value ``tanh(x)``, through a perceptron; s = 0.1."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.mlp = nn.Sequential(nn.Linear(3, dim), nn.SiLU(), nn.Linear(dim, dim))

    def _embed(self, numbers: Numbers) -> Embedded:
        scaled = numbers / 0.1
        log_magnitude = scaled.asinh() / math.asinh(1 / 0.1)
        return self.mlp(torch.stack([scaled.tanh(), log_magnitude, numbers.tanh()], dim=-1))


MAX_EXPONENT = int(math.log2(LARGEST)) + 1
MIN_EXPONENT = 2 - MAX_EXPONENT
"""Binary exponents told apart, of magnitudes from ``1 / LARGEST`` to ``LARGEST``; smaller ones share the lowest."""

N_SIGNS = 3
N_EXPONENTS = MAX_EXPONENT - MIN_EXPONENT + 2  # the first is for zero
N_MANTISSAS = 8
"""Bins of the mantissa: magnitudes closer than a share of ``1 / (2 * N_MANTISSAS)`` may fall in one bin."""


def number_bins(numbers: Numbers, n_mantissas: int) -> tuple[Tensor, Tensor, Tensor]:
    """Bins of sign (negative, zero, positive), binary exponent and mantissa, from the smallest; zero has its own."""
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
    """Sum of learned vectors of the sign, the binary exponent and the bin of the mantissa; nothing interpolates."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.signs = _table(N_SIGNS, dim)
        self.exponents = _table(N_EXPONENTS, dim)
        self.mantissas = _table(N_MANTISSAS + 1, dim)

    def _embed(self, numbers: Numbers) -> Embedded:
        sign, exponent, mantissa = number_bins(numbers, N_MANTISSAS)
        return self.signs(sign) + self.exponents(exponent) + self.mantissas(mantissa)


class ExponentEmbedding(NumberEmbedding):
    """A learned vector for each sign and binary exponent."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.exponents = _table(N_SIGNS * N_EXPONENTS, dim)

    def _embed(self, numbers: Numbers) -> Embedded:
        sign, exponent, _ = number_bins(numbers, n_mantissas=1)
        return self.exponents(sign * N_EXPONENTS + exponent)


class HybridEmbedding(NumberEmbedding):
    """Half sinusoidal, a quarter a learned function of the number, a quarter a table of exponents, concatenated."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        n_sinusoidal = (dim + 1) // 2
        n_direct = (dim - n_sinusoidal + 1) // 2
        n_exponent = dim - n_sinusoidal - n_direct
        kinds = {SinusoidalEmbedding: n_sinusoidal, DirectEmbedding: n_direct, ExponentEmbedding: n_exponent}
        self.parts = nn.ModuleList(kind(n) for kind, n in kinds.items() if n)

    def _embed(self, numbers: Numbers) -> Embedded:
        return torch.cat([part(numbers) for part in self.parts], dim=-1)


SMALLEST_SCALE, REACH = 0.25, 4.0
"""Wavelets of every scale are laid out from ``-REACH`` to ``REACH``, one scale apart; wider ones stand at zero only."""


def ricker(x: Numbers) -> Numbers:
    """Even wavelet: second derivative of a Gaussian ("Mexican hat"), 1 at its peak."""
    return (1 - x**2) * torch.exp(-(x**2) / 2)


def gaussian_slope(x: Numbers) -> Numbers:
    """Odd wavelet: first derivative of a Gaussian, 1 at its peak."""
    return x * torch.exp((1 - x**2) / 2)


class WaveletEmbedding(NumberEmbedding):
    """Two wavelets at many scales and positions, projected (after Cao et al. 2026, "Speaking numbers to LLMs")."""

    centres: Tensor
    scales: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        n_octaves = round(math.log2(LARGEST / SMALLEST_SCALE))
        widths = [SMALLEST_SCALE * 2**octave for octave in range(n_octaves + 1)]
        places = [[k * s, s] for s in widths for k in range(-int(REACH // s), int(REACH // s) + 1)]
        centres, scales = torch.tensor(places).unbind(dim=1)
        self.register_buffer("centres", centres)
        self.register_buffer("scales", scales)
        self.mix = nn.Linear(2 * len(scales), dim)
        # Scales near REACH, that of numbers of order one, weigh most at first; training finds what else matters.
        with torch.no_grad():
            weight = torch.minimum(scales, REACH**2 / scales).sqrt() / (2 * REACH)
            self.mix.weight.normal_().mul_(weight.repeat(2))

    def _embed(self, numbers: Numbers) -> Embedded:
        x = (numbers[..., None] - self.centres) / self.scales
        return self.mix(torch.cat([ricker(x), gaussian_slope(x)], dim=-1))


NUMBER_EMBEDDINGS: dict[NumberKind, type[NumberEmbedding]] = {
    "sinusoidal": SinusoidalEmbedding,
    "fourier": FourierEmbedding,
    "direct": DirectEmbedding,
    "learned": BinEmbedding,
    "rotary": RotaryEmbedding,
    "hybrid": HybridEmbedding,
    "wavelet": WaveletEmbedding,
}


LOG_COUNT_PERIOD = 0.5  # shortest period of waves over logarithms of counts


def log_count_embedding(kind: NumberKind, dim: int) -> NumberEmbedding:
    """Make an embedding of logarithms of counts, such as noise level and library size, which run to about 12."""
    if kind == "sinusoidal":
        return SinusoidalEmbedding(dim, min_period=LOG_COUNT_PERIOD)
    if kind == "rotary":
        return RotaryEmbedding(dim, min_period=LOG_COUNT_PERIOD)
    return NUMBER_EMBEDDINGS[kind](dim)
