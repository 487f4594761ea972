"""Number embeddings by tables: sign, order of magnitude and leading digits each have learned vectors."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ._numbers import LARGEST, NumberEmbedding

MAX_EXPONENT = int(math.log2(LARGEST)) + 1
MIN_EXPONENT = 2 - MAX_EXPONENT
"""Binary exponents told apart, of magnitudes from ``1 / LARGEST`` to ``LARGEST``; smaller ones share the lowest."""

N_SIGNS = 3
N_EXPONENTS = MAX_EXPONENT - MIN_EXPONENT + 2  # the first is for zero


class MagnitudeBins(NamedTuple):
    """Bins of a number ``sign * mantissa * 2 ** exponent``; zero has a bin of its own in each."""

    sign: Tensor  # 0 negative, 1 zero, 2 positive
    exponent: Tensor  # 0 zero, then from the smallest
    mantissa: Tensor  # 0 zero, then from the smallest


def magnitude_bins(numbers: Float[Tensor, "*shape"], n_mantissas: int) -> MagnitudeBins:
    """Sort numbers into bins of sign, binary exponent and mantissa.

    Parameters
    ----------
    numbers
        Numbers of any shape.
    n_mantissas
        Number of equal bins of the mantissa.

    Examples
    --------
    >>> magnitude_bins(torch.tensor([-3.0, 0.0, 3.0]), n_mantissas=4).sign
    tensor([0, 1, 2])
    """
    mantissa, exponent = torch.frexp(numbers.abs())  # mantissa in [1/2, 1), or 0
    is_zero = numbers == 0
    mantissa_bin = ((2 * mantissa - 1) * n_mantissas).long() + 1
    exponent_bin = exponent.long().clamp(MIN_EXPONENT, MAX_EXPONENT) - MIN_EXPONENT + 1
    return MagnitudeBins(
        sign=numbers.sign().long() + 1,
        exponent=exponent_bin.masked_fill(is_zero, 0),
        mantissa=mantissa_bin.masked_fill(is_zero, 0),
    )


def _table(n_rows: int, dim: int) -> nn.Embedding:
    table = nn.Embedding(n_rows, dim)
    nn.init.normal_(table.weight, std=0.25)
    return table


class MagnitudeEmbedding(NumberEmbedding):
    """Learned vectors of the sign, the binary exponent and the mantissa's bin, summed.

    A table does not interpolate: numbers of one bin share their vector, neighbouring bins are strangers until trained,
    and the gradient by the number is zero.

    Parameters
    ----------
    dim
        Length of the vector.
    n_mantissas
        Number of bins of the mantissa: magnitudes closer than a share of ``1 / (2 * n_mantissas)`` may fall in one bin.
    """

    def __init__(self, dim: int, *, n_mantissas: int = 8) -> None:
        super().__init__(dim)
        if n_mantissas < 1:
            raise ValueError(f"`n_mantissas` is {n_mantissas}, but at least one bin is needed. Pass 1 or more.")
        self.n_mantissas = n_mantissas
        self.signs = _table(N_SIGNS, dim)
        self.exponents = _table(N_EXPONENTS, dim)
        self.mantissas = _table(n_mantissas + 1, dim)

    def _embed(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        bins = magnitude_bins(numbers, self.n_mantissas)
        return self.signs(bins.sign) + self.exponents(bins.exponent) + self.mantissas(bins.mantissa)


class OrderEmbedding(NumberEmbedding):
    """A learned vector of the order of magnitude: one for each sign and binary exponent."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.orders = _table(N_SIGNS * N_EXPONENTS, dim)

    def _embed(self, numbers: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape {self.dim}"]:
        bins = magnitude_bins(numbers, n_mantissas=1)
        order: Int[Tensor, "*shape"] = bins.sign * N_EXPONENTS + bins.exponent
        return self.orders(order)
