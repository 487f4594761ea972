"""Attention to conditions and across cells, and angles by which numbers rotate queries and keys, not values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scdiffgen.nn._attention import Attention
from scdiffgen.nn._numbers import LARGEST, LOG_COUNT_PERIOD, geometric_frequencies
from scdiffgen.nn._options import NetworkSize


class GatedAttention(nn.Module):
    """Attention behind a zero-initialised gate: to the conditions, or without these to the same token of all cells."""

    def __init__(self, dim: int, n_heads: int, source_dim: int | None = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, n_heads, source_dim)
        self.gate = nn.Parameter(torch.zeros(dim))

    def forward(self, tokens: Tensor, sources: Tensor | None = None, angles: Tensor | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` to tokens; angles ``(cells, sources, planes)`` or ``(1, cells, planes)``."""
        normed = self.norm(tokens)
        if sources is None:
            return tokens + self.gate * self.attention(normed.transpose(0, 1), angles=angles).transpose(0, 1)
        return tokens + self.gate * self.attention(normed, sources, angles=angles)


class Angles(NamedTuple):
    """Angles in the planes of each head; where there are none, nothing is rotated."""

    sequence: Tensor | None = None  # (cells, conditions + 1, planes), of the conditions, then of the level
    cells: Tensor | None = None  # (1, cells, planes), of all numbers of a cell


NOT_ROTATED = Angles()


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
    """Angles of conditions by their number, of the level by noise and library sizes, of cells by all of these."""

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        n_planes = size.token_dim // size.n_heads // 2
        of_level = 2 * size.n_levels * [LOG_COUNT_PERIOD]
        self.with_number = list(size.conditions_with_number)
        self.condition, self.level = PlaneAngles(n_planes, [1.0]), PlaneAngles(n_planes, of_level)
        is_across = size.options.attention == "across"
        self.cell = PlaneAngles(n_planes, of_level + [1.0] * len(self.with_number)) if is_across else None

    def forward(self, levels: Float[Tensor, "cells levels"], numbers: Float[Tensor, "cells n_conditions"]) -> Angles:
        """Angles from logarithms of noise levels and library sizes, and from the numbers of conditions."""
        sequence = torch.cat([self.condition(numbers[..., None]), self.level(levels)[:, None]], dim=1)
        if self.cell is None:
            return Angles(sequence)
        return Angles(sequence, self.cell(torch.cat([levels, numbers[:, self.with_number]], dim=1))[None])
