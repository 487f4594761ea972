"""Multi-head attention with optional rotary position encoding of queries and keys."""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


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
