"""Number embeddings by name, and what is made of them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from ._magnitudes import MagnitudeEmbedding, OrderEmbedding
from ._numbers import DirectEmbedding, FourierEmbedding, NumberEmbedding, SinusoidalEmbedding
from ._options import NumberKind
from ._rotary import RotaryEmbedding
from ._wavelets import WaveletEmbedding


class HybridEmbedding(NumberEmbedding):
    """Half sinusoidal, a quarter a learned function of the number, a quarter a table of magnitudes, concatenated.

    A ``dim`` that is not a multiple of four gives the odd components to the earlier parts; of 1 or 2 components the
    later parts have none.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        n_sinusoidal = (dim + 1) // 2
        n_direct = (dim - n_sinusoidal + 1) // 2
        n_order = dim - n_sinusoidal - n_direct
        kinds = {SinusoidalEmbedding: n_sinusoidal, DirectEmbedding: n_direct, OrderEmbedding: n_order}
        self.parts = nn.ModuleList(kind(n) for kind, n in kinds.items() if n)

    def _embed(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        return torch.cat([part(numbers) for part in self.parts], dim=-1)


NUMBER_EMBEDDINGS: dict[str, type[NumberEmbedding]] = {
    "sinusoidal": SinusoidalEmbedding,
    "fourier": FourierEmbedding,
    "direct": DirectEmbedding,
    "learned": MagnitudeEmbedding,
    "rotary": RotaryEmbedding,
    "hybrid": HybridEmbedding,
    "wavelet": WaveletEmbedding,
}


def number_embedding(kind: NumberKind, dim: int) -> NumberEmbedding:
    """Make a number embedding with the defaults of its kind.

    Parameters
    ----------
    kind
        A name in ``NUMBER_EMBEDDINGS``.
    dim
        Length of the vector.

    Raises
    ------
    ValueError
        If there is no such kind, or ``dim`` is too small for it.

    Examples
    --------
    >>> number_embedding("hybrid", 5)(torch.tensor([0.0, -1.5])).shape
    torch.Size([2, 5])
    """
    if kind not in NUMBER_EMBEDDINGS:
        raise ValueError(f"`kind` is {kind!r}, but a number is embedded by one of {list(NUMBER_EMBEDDINGS)}.")
    return NUMBER_EMBEDDINGS[kind](dim)


LOG_COUNT_SETTINGS: dict[str, dict[str, float]] = {"sinusoidal": {"min_period": 0.5}, "rotary": {"min_period": 0.5}}
"""Where logarithms of counts, which run to about 12, ask for other settings than numbers of order one."""


def log_count_embedding(kind: NumberKind, dim: int) -> NumberEmbedding:
    """Make an embedding of logarithms of counts, such as noise level and library size.

    Parameters
    ----------
    kind
        A name in ``NUMBER_EMBEDDINGS``.
    dim
        Length of the vector.

    Examples
    --------
    >>> log_count_embedding("fourier", 8)(torch.log1p(torch.tensor([0.0, 900.0]))).shape
    torch.Size([2, 8])
    """
    return NUMBER_EMBEDDINGS[kind](dim, **LOG_COUNT_SETTINGS.get(kind, {}))


class ExpressionEmbedding(nn.Module):
    """Embed every entry of an expression matrix, as ``log1p`` of the count.

    Parameters
    ----------
    dim
        Length of the vector of each entry.
    kind
        A name in ``NUMBER_EMBEDDINGS``.

    Examples
    --------
    >>> ExpressionEmbedding(8)(torch.tensor([[0, 3, 1], [2, 0, 0]])).shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, dim: int, *, kind: NumberKind = "sinusoidal") -> None:
        super().__init__()
        self.embedding = number_embedding(kind, dim)

    def forward(self, counts: Num[Tensor, "cells genes"]) -> Float[Tensor, "cells genes dim"]:
        """Embed dense counts ``(cells, genes)``, none negative, to ``(cells, genes, dim)``."""
        return self.embedding(torch.log1p(counts))
