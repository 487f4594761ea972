"""Attention to conditions, and angles by which numbers rotate queries and keys, not values."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scdiffgen.nn._attention import Attention
from scdiffgen.nn._numbers import LARGEST, LOG_COUNT_PERIOD, geometric_frequencies
from scdiffgen.nn._options import NetworkSize


class GatedAttention(nn.Module):
    """Attention to the conditions, behind a zero-initialised gate."""

    def __init__(self, dim: int, n_heads: int, source_dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, n_heads, source_dim)
        self.gate = nn.Parameter(torch.zeros(dim))

    def forward(self, tokens: Tensor, sources: Tensor, angles: Tensor | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` to tokens; angles, of the sources, are ``(cells, sources, planes)``."""
        return tokens + self.gate * self.attention(self.norm(tokens), sources, angles=angles)


class PlaneAngles(nn.Module):
    """Angles proportional to some numbers, among which the planes of a head are dealt out evenly (axial)."""

    owner: Tensor
    frequencies: Tensor

    def __init__(self, n_planes: int, min_periods: Sequence[float]) -> None:
        super().__init__()
        n_numbers = len(min_periods)
        if n_planes < n_numbers:
            raise ValueError(
                f"A head of {n_planes} planes (half its length) is too short to be rotated by {n_numbers} numbers. "
                "Pass a larger `token_dim`, fewer `n_heads`, or numbers that are embedded."
            )
        owner = torch.arange(n_planes) * n_numbers // n_planes
        frequencies = [geometric_frequencies(int((owner == i).sum()), p, 50.0) for i, p in enumerate(min_periods)]
        self.register_buffer("owner", owner, persistent=False)
        self.register_buffer("frequencies", torch.cat(frequencies), persistent=False)

    def forward(self, numbers: Float[Tensor, "*shape numbers"]) -> Float[Tensor, "*shape planes"]:
        return numbers.clamp(-LARGEST, LARGEST)[..., self.owner] * self.frequencies


class Rotations(nn.Module):
    """Angles of conditions by their number, and of the level by noise and library sizes."""

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        n_planes = size.token_dim // size.n_heads // 2
        self.condition = PlaneAngles(n_planes, [1.0])
        self.level = PlaneAngles(n_planes, 2 * size.n_levels * [LOG_COUNT_PERIOD])

    def forward(self, levels: Float[Tensor, "cells levels"], numbers: Float[Tensor, "cells n_conditions"]) -> Tensor:
        """Angles ``(cells, n_conditions + 1, planes)`` by numbers, and by logarithms of noise levels and libraries."""
        return torch.cat([self.condition(numbers[..., None]), self.level(levels)[:, None]], dim=1)
