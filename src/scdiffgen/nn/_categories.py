"""Category embeddings: an id becomes a vector, with a parameter budget to choose."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ._options import CategoryKind

_WORD = 2**32 - 1


def scramble(ids: Int[Tensor, "*shape"], salt: int) -> Int[Tensor, "*shape"]:
    """Permute the 32-bit integers: the finaliser of MurmurHash3, which is one-to-one.

    Parameters
    ----------
    ids
        Integers in [0, 2**32).
    salt
        Chooses the permutation.

    Returns
    -------
    Integers in [0, 2**32), distinct for distinct ids, the same in every process.
    """
    word = (ids + salt * 0x9E3779B9) & _WORD
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        word = ((word ^ (word >> shift)) * factor) & _WORD
    return word ^ (word >> 16)


class TableEmbedding(nn.Embedding):
    """One learned vector a category, of length about one at first.

    Parameters
    ----------
    n_categories
        Number of categories.
    dim
        Length of the vector.
    """

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__(n_categories, dim)
        nn.init.normal_(self.weight, std=dim**-0.5)


class HashedEmbedding(nn.Module):
    """A few rows of one small shared table a category, chosen by fixed hash functions, weighted and summed.

    The table has of the order of the square root of ``n_categories`` rows; it is enlarged until no two categories share
    all of their rows.

    Parameters
    ----------
    n_categories
        Number of categories.
    dim
        Length of the vector.
    n_hashes
        Number of hash functions, at least 2.

    References
    ----------
    Svenstrup et al. 2017, "Hash embeddings for efficient word representations"; Coleman et al. 2023, "Unified
    embedding: battle-tested feature representations for web-scale ML systems", for several features in one table.
    """

    rows: Tensor

    def __init__(self, n_categories: int, dim: int, *, n_hashes: int = 3) -> None:
        super().__init__()
        if n_hashes < 2:
            raise ValueError(f"`n_hashes` is {n_hashes}, but one row alone cannot be shared. Pass 2 or more.")
        words = torch.stack([scramble(torch.arange(n_categories), salt) for salt in range(1, n_hashes + 1)], dim=1)
        n_rows = 4 * math.isqrt(n_categories) + 4
        while len((words % n_rows).unique(dim=0)) < n_categories:
            n_rows += n_rows // 8
        self.register_buffer("rows", words % n_rows, persistent=False)
        self.table = TableEmbedding(n_rows, dim)
        self.weights = nn.Parameter(torch.randn(n_hashes, dim) * n_hashes**-0.5)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Embed ids of any shape."""
        return (self.table(F.embedding(ids, self.rows)) * self.weights).sum(dim=-2)


class CodeEmbedding(nn.Module):
    """A fixed binary code a category and one learned projection: parameters do not grow with the categories.

    Parameters
    ----------
    n_categories
        Number of categories; ids beyond it are refused.
    dim
        Length of the vector.
    n_words
        Length of the code, in words of 32 bits; any one word tells all categories apart.
    """

    codes: Tensor

    def __init__(self, n_categories: int, dim: int, *, n_words: int = 2) -> None:
        super().__init__()
        if n_words < 1:
            raise ValueError(f"`n_words` is {n_words}, but a code has at least one. Pass 1 or more.")
        words = torch.stack([scramble(torch.arange(n_categories), salt) for salt in range(1, n_words + 1)], dim=1)
        bits = (words[:, :, None] >> torch.arange(32)) & 1
        self.register_buffer("codes", 2.0 * bits.flatten(1) - 1.0, persistent=False)
        self.projection = nn.Linear(32 * n_words, dim)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Embed ids of any shape."""
        return self.projection(F.embedding(ids, self.codes))


CATEGORY_EMBEDDINGS: dict[str, type[TableEmbedding] | type[HashedEmbedding] | type[CodeEmbedding]] = {
    "table": TableEmbedding,
    "hashed": HashedEmbedding,
    "code": CodeEmbedding,
}


def category_embedding(kind: CategoryKind, n_categories: int, dim: int) -> nn.Module:
    """Make a category embedding, ``ids (...) -> (..., dim)``, with the defaults of its kind.

    Parameters
    ----------
    kind
        A name in ``CATEGORY_EMBEDDINGS``.
    n_categories
        Number of categories.
    dim
        Length of the vector.

    Raises
    ------
    ValueError
        If there is no such kind.

    Examples
    --------
    >>> category_embedding("hashed", 1000, 8)(torch.tensor([0, 999])).shape
    torch.Size([2, 8])
    """
    if kind not in CATEGORY_EMBEDDINGS:
        raise ValueError(f"`kind` is {kind!r}, but a category is embedded by one of {list(CATEGORY_EMBEDDINGS)}.")
    return CATEGORY_EMBEDDINGS[kind](n_categories, dim)
