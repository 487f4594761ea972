"""A number as wavelet coefficients: where it is, on every scale."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ._numbers import LARGEST, NumberEmbedding

SMALLEST_SCALE = 0.25
REACH = 4.0
"""Wavelets of every scale are laid out from ``-REACH`` to ``REACH``, one scale apart; wider ones stand at zero only."""


def ricker(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Even wavelet: second derivative of a Gaussian ("Mexican hat"), 1 at its peak."""
    return (1 - x**2) * torch.exp(-(x**2) / 2)


def gaussian_slope(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Odd wavelet: first derivative of a Gaussian, 1 at its peak."""
    return x * torch.exp((1 - x**2) / 2)


def _grid() -> Float[Tensor, "wavelets 2"]:
    """Centre and scale of each wavelet; scales double from ``SMALLEST_SCALE`` to ``LARGEST``."""
    n_octaves = round(math.log2(LARGEST / SMALLEST_SCALE))
    scales = [SMALLEST_SCALE * 2**octave for octave in range(n_octaves + 1)]
    n_aside = [int(REACH // scale) for scale in scales]
    return torch.tensor([[k * s, s] for s, n in zip(scales, n_aside, strict=True) for k in range(-n, n + 1)])


class WaveletEmbedding(NumberEmbedding):
    """Coefficients of two wavelets at many scales and places, mixed by a learned projection.

    The narrow wavelets see local structure, the wide ones the global order of magnitude: scales double from 1/4 to the
    largest number. The coefficients are those of a point mass at the number, that is, the wavelets' values there.

    References
    ----------
    After the multi-wavelet, multi-scale coefficients of Cao et al. 2026, "Speaking numbers to LLMs: multi-wavelet
    number embeddings for time series forecasting" (TempoWave), which embeds a number digit by digit. Here the number is
    embedded whole, so that nearby numbers stay nearby.
    """

    centres: Tensor
    scales: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        centres, scales = _grid().unbind(dim=1)
        self.register_buffer("centres", centres)
        self.register_buffer("scales", scales)
        self.mix = nn.Linear(2 * len(scales), dim)
        # Scales near REACH, that of numbers of order one, weigh most at first; training finds what else matters.
        with torch.no_grad():
            weight = torch.minimum(scales, REACH**2 / scales).sqrt() / (2 * REACH)
            self.mix.weight.normal_().mul_(weight.repeat(2))

    def coefficients(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape coefficients"]:
        """Values of all wavelets at each number, in [-1, 1]."""
        x = (numbers[..., None] - self.centres) / self.scales
        return torch.cat([ricker(x), gaussian_slope(x)], dim=-1)

    def _embed(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        return self.mix(self.coefficients(numbers))
