"""Embeddings of categories whose size does not depend on the number of categories, up to 2^20."""

import torch
from torch import nn

from scdiffgen.nn._categories import CategoryVectors, Ids, TableEmbedding

HALF = 10  # bits of a row in one of the two tables; ids have twice as many bits


def scramble(ids: Ids, salt: int = 0) -> Ids:
    """Permute the integers in ``[0, 2**20)``, differently for each salt, by odd factors and exclusive-or."""
    last = (1 << 2 * HALF) - 1
    word = ((ids + salt * 0x51E37) * 0x9E375) & last
    word = ((word ^ (word >> HALF)) * 0x5EBCB) & last
    return word ^ (word >> HALF)


class HashedVocabulary(nn.Module):
    """Sum of one row of each of two tables of 1,024 rows; distinct categories have distinct pairs of rows."""

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__()
        self.first, self.second = (TableEmbedding(1 << HALF, dim) for _ in range(2))

    def forward(self, ids: Ids) -> CategoryVectors:
        word = scramble(ids)
        return (self.first(word >> HALF) + self.second(word & ((1 << HALF) - 1))) * 2**-0.5


class CodedVocabulary(nn.Module):
    """Projection of a fixed code of 60 signs per category."""

    n_words = 3

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(2 * HALF * self.n_words, dim)

    def forward(self, ids: Ids) -> CategoryVectors:
        words = torch.stack([scramble(ids, salt) for salt in range(self.n_words)], dim=-1)
        bits = (words[..., None] >> torch.arange(2 * HALF, device=ids.device)) & 1
        return self.projection((2.0 * bits.flatten(-2) - 1.0).to(self.projection.weight.dtype))
