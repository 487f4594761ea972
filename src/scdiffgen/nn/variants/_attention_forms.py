"""Cross-attention to conditions, and rotation angles of queries and keys from numbers."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scdiffgen.nn._embeddings import LARGEST, LOG_COUNT_PERIOD, geometric_frequencies
from scdiffgen.nn._network import Attention
from scdiffgen.nn._options import NetworkSize, Tokens


class GatedAttention(nn.Module):
    """Cross-attention to the conditions with a zero-initialised gate."""

    def __init__(self, dim: int, n_heads: int, source_dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, n_heads, source_dim)
        self.gate = nn.Parameter(torch.zeros(dim))

    def forward(self, tokens: Tensor, sources: Tensor, angles: Tensor | None = None) -> Tensor:
        """Update tokens ``(cells, tokens, dim)``; angles ``(cells, sources, planes)`` rotate the sources."""
        return tokens + self.gate * self.attention(self.norm(tokens), sources, angles=angles)


class PlaneAngles(nn.Module):
    """Rotation angles proportional to numbers, which share the planes of a head evenly (axial rotary encoding)."""

    owner: Tensor
    frequencies: Tensor

    def __init__(self, n_planes: int, min_periods: Sequence[float]) -> None:
        super().__init__()
        n_numbers = len(min_periods)
        if n_planes < n_numbers:
            raise ValueError(
                f"A head of {n_planes} planes (half its length) is too short for rotations by {n_numbers} numbers. "
                "Pass a larger `token_dim`, fewer `n_heads`, or `attention_numbers='embedded'`."
            )
        owner = torch.arange(n_planes) * n_numbers // n_planes
        frequencies = [geometric_frequencies(int((owner == i).sum()), p, 50.0) for i, p in enumerate(min_periods)]
        self.register_buffer("owner", owner, persistent=False)
        self.register_buffer("frequencies", torch.cat(frequencies), persistent=False)

    def forward(self, numbers: Float[Tensor, "*shape numbers"]) -> Float[Tensor, "*shape planes"]:
        return numbers.clamp(-LARGEST, LARGEST)[..., self.owner] * self.frequencies


class Rotations(nn.Module):
    """Rotation angles of the conditions and of the vector of noise level and library size."""

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        n_planes = size.token_dim // size.n_heads // 2
        self.condition = PlaneAngles(n_planes, [1.0])
        self.level = PlaneAngles(n_planes, 2 * size.n_levels * [LOG_COUNT_PERIOD])

    def forward(self, levels: Float[Tensor, "cells levels"], numbers: Float[Tensor, "cells n_conditions"]) -> Tensor:
        """Compute angles ``(cells, n_conditions + 1, planes)`` from numbers, log noise levels and log library sizes."""
        return torch.cat([self.condition(numbers[..., None]), self.level(levels)[:, None]], dim=1)


class CellAttention(nn.Module):
    """Attention of each token to the same token of all cells of the minibatch, with a zero-initialised gate."""

    def __init__(self, dim: int, n_heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, n_heads)
        self.gate = nn.Parameter(torch.zeros(dim))

    def forward(self, tokens: Tokens) -> Tokens:
        """Update the tokens of a set of cells; the order of the cells does not matter."""
        return tokens + self.gate * self.attention(self.norm(tokens).transpose(0, 1)).transpose(0, 1)
