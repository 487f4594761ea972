"""Category embeddings: an id becomes a vector, with a parameter budget to choose, or from a given vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ._options import CategoryKind

Ids = Int[Tensor, "*shape"]
Vectors = Float[Tensor, "*shape dim"]
WORD = 2**32 - 1


def scramble(ids: Ids, salt: int) -> Ids:
    """Permute the integers in [0, 2**32): the finaliser of MurmurHash3, which is one-to-one; one for each salt."""
    word = (ids + salt * 0x9E3779B9) & WORD
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        word = ((word ^ (word >> shift)) * factor) & WORD
    return word ^ (word >> 16)


def _words(n_categories: int, n_words: int) -> Int[Tensor, "{n_categories} {n_words}"]:
    """A few 32-bit words a category, each of which differs between any two; the same in every process."""
    return torch.stack([scramble(torch.arange(n_categories), salt) for salt in range(1, n_words + 1)], dim=1)


class TableEmbedding(nn.Embedding):
    """One learned vector a category, of length about one at first."""

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__(n_categories, dim)
        nn.init.normal_(self.weight, std=dim**-0.5)


class HashedEmbedding(nn.Module):
    """Weighted sum of three rows of a small table, chosen by hashing without collisions (Svenstrup et al. 2017)."""

    n_hashes = 3
    rows: Tensor

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__()
        words = _words(n_categories, self.n_hashes)
        n_rows = 4 * math.isqrt(n_categories) + 4
        while len((words % n_rows).unique(dim=0)) < n_categories:
            n_rows += n_rows // 8
        self.register_buffer("rows", words % n_rows, persistent=False)
        self.table = TableEmbedding(n_rows, dim)
        self.weights = nn.Parameter(torch.randn(self.n_hashes, dim) * self.n_hashes**-0.5)

    def forward(self, ids: Ids) -> Vectors:
        return (self.table(F.embedding(ids, self.rows)) * self.weights).sum(dim=-2)


class CodeEmbedding(nn.Module):
    """A fixed binary code of 64 bits a category and one learned projection: parameters do not grow with categories."""

    codes: Tensor

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__()
        bits = (_words(n_categories, 2)[:, :, None] >> torch.arange(32)) & 1
        self.register_buffer("codes", 2.0 * bits.flatten(1) - 1.0, persistent=False)
        self.projection = nn.Linear(64, dim)

    def forward(self, ids: Ids) -> Vectors:
        return self.projection(F.embedding(ids, self.codes))


CATEGORY_EMBEDDINGS: dict[CategoryKind, Callable[[int, int], nn.Module]] = {
    "table": TableEmbedding,
    "hashed": HashedEmbedding,
    "code": CodeEmbedding,
}


class FeatureEmbedding(nn.Module):
    """Project the given vector of each category, centred and divided by one root mean square."""

    vectors: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(self, n_features: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.empty(0, n_features))
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(()))
        self.projection = nn.Linear(n_features, dim)

    def forward(self, ids: Ids) -> Vectors:
        """Embed ids of any shape; raise if no vectors were given yet."""
        if not len(self.vectors):
            raise RuntimeError("No feature vectors were given. Give those of all categories by `extend`, or load them.")
        return self.projection((F.embedding(ids, self.vectors) - self.centre) / self.scale)

    @torch.no_grad()
    def extend(self, vectors: Float[Tensor, "new n_features"]) -> None:
        """Append the vectors of further categories, one row each: their ids follow on."""
        n_features = self.vectors.shape[1]
        if vectors.ndim != 2 or vectors.shape[1] != n_features:
            raise ValueError(
                f"`vectors` has shape {tuple(vectors.shape)}. Pass one row of {n_features} values a category."
            )
        bad = (~vectors.isfinite()).any(dim=1).nonzero().flatten().tolist()
        if bad:
            raise ValueError(f"`vectors` holds values that are not finite in rows {bad[:5]}. Pass finite values.")
        vectors = vectors.to(self.vectors)
        if not len(self.vectors):
            # A single vector is not centred: nothing would be left of it.
            self.centre.copy_(vectors.mean(dim=0) if len(vectors) > 1 else torch.zeros_like(self.centre))
            spread = (vectors - self.centre).square().mean().sqrt()
            self.scale.copy_(torch.where(spread > 0, spread, 1.0))
        self.vectors = torch.cat([self.vectors, vectors])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take as many vectors as were saved."""
        saved = state_dict.get(f"{prefix}vectors", self.vectors)
        self.vectors = self.vectors.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


def feature_table(module: nn.Module) -> FeatureEmbedding | None:
    """The given vectors within an embedder, if it has any."""
    return next((part for part in module.modules() if isinstance(part, FeatureEmbedding)), None)


def extend_features(module: nn.Module, name: str, vectors: Float[Tensor, "new n_features"]) -> None:
    """Append the vectors of further categories to the given ones within an embedder."""
    table = feature_table(module)
    if table is None:
        raise ValueError(
            f"Condition {name!r} was registered without feature vectors, so it cannot be extended by them."
        )
    table.extend(vectors)
