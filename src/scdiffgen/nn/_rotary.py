"""A number as a rotation: of queries and keys in attention, or of one learned vector."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ._numbers import LARGEST, NumberEmbedding, geometric_frequencies


class RotaryCode(NamedTuple):
    """What attention needs of a number: a vector to start from, and the angles to turn queries and keys by."""

    additive: Tensor  # (..., dim)
    angles: Tensor  # (..., dim // 2), radians


def rotate(vectors: Float[Tensor, "*#shape dim"], angles: Float[Tensor, "*#shape half"]) -> Float[Tensor, "... dim"]:
    """Rotate each pair of neighbouring components in its plane.

    Norms do not change, and ``<rotate(q, a), rotate(k, b)>`` depends on ``a - b`` only.

    Parameters
    ----------
    vectors
        Queries or keys ``(..., dim)``.
    angles
        Angle of each plane ``(..., dim // 2)``, in radians; broadcasts against ``vectors``.

    Returns
    -------
    The rotated vectors. The last component of an odd ``dim`` has no partner and stays.

    References
    ----------
    Su et al. 2021, "RoFormer: enhanced transformer with rotary position embedding", equation 34.

    Examples
    --------
    >>> rotate(torch.tensor([[1.0, 0.0]]), torch.tensor([[torch.pi / 2]])).round(decimals=3)
    tensor([[-0.,  1.]])
    """
    n_planes = vectors.shape[-1] // 2
    if angles.shape[-1] != n_planes:
        raise ValueError(
            f"`angles` has {angles.shape[-1]} of them, but vectors of length {vectors.shape[-1]} have {n_planes} "
            "planes. Pass one angle a plane."
        )
    cos, sin = angles.cos(), angles.sin()
    first, second = vectors[..., 0 : 2 * n_planes : 2], vectors[..., 1 : 2 * n_planes : 2]
    turned = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2)
    return torch.cat([turned, vectors[..., 2 * n_planes :].expand(*turned.shape[:-1], -1)], dim=-1)


class RotaryEmbedding(NumberEmbedding):
    """Angles proportional to the number, and a learned vector that they turn.

    In attention use :meth:`code` and :func:`rotate`. As a plain vector, the embedding is the learned vector turned by
    the angles: all embeddings have the same norm, and inner products depend on the difference of the numbers only.

    Parameters
    ----------
    dim
        Length of the vector, at least 2.
    min_period, max_period
        Periods of the fastest and of the slowest plane, in units of the number.
    """

    smallest_dim = 2
    frequencies: Tensor

    def __init__(self, dim: int, *, min_period: float = 1.0, max_period: float = 50.0) -> None:
        super().__init__(dim)
        frequencies = geometric_frequencies(dim // 2, min_period, max_period)
        self.register_buffer("frequencies", frequencies)
        self.start = nn.Parameter(torch.ones(dim))  # at first all planes weigh alike

    def code(self, numbers: Float[Tensor, "*shape"]) -> RotaryCode:
        """Additive part and angles of numbers of any shape."""
        angles = numbers.clamp(-LARGEST, LARGEST)[..., None] * self.frequencies
        return RotaryCode(self.start.expand(*numbers.shape, self.dim), angles)

    def _embed(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        return rotate(*self.code(numbers))
