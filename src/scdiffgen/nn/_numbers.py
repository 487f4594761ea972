"""Embeddings ``(..., dim)`` of numbers ``(...)`` of order one; magnitudes are clipped at ``LARGEST``."""

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ._options import NumberKind
from .variants._table import variant

LARGEST = 2.0**20
"""Clipping bound of magnitudes. Beyond it, the spacing of float32 exceeds 1/8, and phases would be noise."""

LOG_COUNT_PERIOD = 0.5  # shortest period for log counts, which reach about 12

Numbers = Float[Tensor, "*shape"]
Embedded = Float[Tensor, "*shape {self.dim}"]


class NumberEmbedding(nn.Module):
    """Base class of maps from a number to a vector of length ``dim``."""

    for_log_counts: ClassVar[dict[str, Any]] = {}
    """Arguments for embeddings of log counts."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, numbers: Numbers) -> Embedded:
        """Embed numbers of any shape, with a new last axis."""
        return self._embed(numbers.clamp(-LARGEST, LARGEST))

    def _embed(self, numbers: Numbers) -> Embedded:
        raise NotImplementedError


def geometric_frequencies(n: int, min_period: float, max_period: float) -> Float[Tensor, " {n}"]:
    """Return geometrically spaced angular frequencies, from ``max_period`` to ``min_period``."""
    return 2 * math.pi / torch.logspace(math.log10(max_period), math.log10(min_period), n)


class WaveEmbedding(NumberEmbedding):
    """Sines, then cosines, of the number at several frequencies; an odd ``dim`` omits the last cosine."""

    frequencies: Tensor

    def _embed(self, numbers: Numbers) -> Embedded:
        phases = numbers[..., None] * self.frequencies
        return torch.cat([phases.sin(), phases.cos()], dim=-1)[..., : self.dim]


class SinusoidalEmbedding(WaveEmbedding):
    """Sines and cosines at geometric frequencies (Vaswani et al. 2017, "Attention is all you need", section 3.5)."""

    for_log_counts: ClassVar[dict[str, Any]] = {"min_period": LOG_COUNT_PERIOD}

    def __init__(self, dim: int, *, min_period: float = 1.0, max_period: float = 50.0) -> None:
        super().__init__(dim)
        self.register_buffer("frequencies", geometric_frequencies((dim + 1) // 2, min_period, max_period))


def number_embedding(kind: NumberKind) -> type[NumberEmbedding]:
    """Return the class of an embedding by its name."""
    return SinusoidalEmbedding if kind == "sinusoidal" else variant("number_embedding", kind)


def log_count_embedding(kind: NumberKind, dim: int) -> NumberEmbedding:
    """Make an embedding of log counts, such as noise level and library size."""
    form = number_embedding(kind)
    return form(dim, **form.for_log_counts)
