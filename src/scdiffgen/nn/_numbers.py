"""Number embeddings: a number of order one becomes a vector.

Every embedding maps ``(...)`` to ``(..., dim)``. It expects numbers that a stated transform
(:class:`scdiffgen.conditions.NumberTransform`) has brought to order one, and is defined for every number: zero and
negative values are values like any other, and magnitudes beyond ``LARGEST`` count as ``LARGEST``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

LARGEST = 2.0**20
"""Largest magnitude told apart: float32 resolves no more than 1/8 there, so finer phases would be noise."""


class NumberEmbedding(nn.Module, ABC):
    """A map from a number to a vector.

    Parameters
    ----------
    dim
        Length of the vector, at least ``smallest_dim`` of the class.
    """

    smallest_dim = 1

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim < self.smallest_dim:
            raise ValueError(
                f"`dim` is {dim}, but {type(self).__name__} needs at least {self.smallest_dim}. Pass a larger `dim`."
            )
        self.dim = dim

    def forward(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        """Embed numbers of any shape; the vectors lie along a new last axis."""
        return self._embed(numbers.clamp(-LARGEST, LARGEST))

    @abstractmethod
    def _embed(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        """Embed numbers no larger than ``LARGEST`` in magnitude."""


def geometric_frequencies(
    n_frequencies: int, min_period: float, max_period: float
) -> Float[Tensor, " {n_frequencies}"]:
    """Angular frequencies from that of ``max_period`` up to that of ``min_period``, in equal ratios."""
    if not 0 < min_period < max_period:
        raise ValueError(
            f"`min_period` is {min_period} and `max_period` is {max_period}, but 0 < min_period < max_period is "
            "needed. Pass the smallest difference that matters and the range of the numbers."
        )
    return 2 * math.pi / torch.logspace(math.log10(max_period), math.log10(min_period), n_frequencies)


def _waves(phases: Float[Tensor, "*shape n"], dim: int) -> Float[Tensor, "*shape {dim}"]:
    """All sines, then the cosines; an odd ``dim`` drops the cosine of the last phase."""
    return torch.cat([phases.sin(), phases.cos()], dim=-1)[..., :dim]


class SinusoidalEmbedding(NumberEmbedding):
    """Sines and cosines at geometric frequencies: bounded, smooth, on many scales, without parameters.

    For an even ``dim`` the inner product of two embeddings depends on the difference of their numbers only.

    Parameters
    ----------
    dim
        Length of the vector.
    min_period
        Period of the fastest wave, in units of the number: differences well below it are hard to see.
    max_period
        Period of the slowest wave: larger than the range of the numbers, so that no two of them look alike.

    References
    ----------
    Vaswani et al. 2017, "Attention is all you need", section 3.5.

    Examples
    --------
    >>> SinusoidalEmbedding(6)(torch.tensor([0.0, -2.5])).shape
    torch.Size([2, 6])
    """

    frequencies: Tensor

    def __init__(self, dim: int, *, min_period: float = 1.0, max_period: float = 50.0) -> None:
        super().__init__(dim)
        frequencies = geometric_frequencies((dim + 1) // 2, min_period, max_period)
        self.register_buffer("frequencies", frequencies)

    def _embed(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        return _waves(numbers[..., None] * self.frequencies, self.dim)


class FourierEmbedding(NumberEmbedding):
    """Sines and cosines at Gaussian frequencies, drawn at construction and then trained or left as they are.

    Parameters
    ----------
    dim
        Length of the vector.
    bandwidth
        Standard deviation of the frequencies, in cycles per unit of the number.
    learned
        Whether the frequencies are trained.

    References
    ----------
    Tancik et al. 2020, "Fourier features let networks learn high frequency functions in low dimensional domains", for
    random frequencies; Li et al. 2021, "Learnable Fourier features for multi-dimensional spatial positional encoding",
    for learned ones.
    """

    def __init__(self, dim: int, *, bandwidth: float = 0.1, learned: bool = True) -> None:
        super().__init__(dim)
        if bandwidth <= 0:
            raise ValueError(f"`bandwidth` is {bandwidth}, but it is a width. Pass a positive number.")
        frequencies = 2 * math.pi * bandwidth * torch.randn((dim + 1) // 2)
        self.frequencies = nn.Parameter(frequencies, requires_grad=learned)

    def _embed(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        return _waves(numbers[..., None] * self.frequencies, self.dim)


class DirectEmbedding(NumberEmbedding):
    """Sign, log-magnitude and squashed value of the number, through a perceptron.

    Each of the three is a continuous, strictly increasing function of the number: nothing is lost to bins or periods.
    The sign ``tanh(x / s)`` and the log-magnitude ``asinh(x / s)``, with ``s = 0.1``, are smooth at zero, where
    ``sign(x)`` jumps and ``log|x|`` has no value.
    """

    smallest_scale = 0.1

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.mlp = nn.Sequential(nn.Linear(3, dim), nn.SiLU(), nn.Linear(dim, dim))

    def _embed(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        scaled = numbers / self.smallest_scale
        log_magnitude = scaled.asinh() / math.asinh(1 / self.smallest_scale)
        return self.mlp(torch.stack([scaled.tanh(), log_magnitude, numbers.tanh()], dim=-1))
