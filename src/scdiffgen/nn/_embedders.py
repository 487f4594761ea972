"""One embedder for each kind of condition, made from what was registered."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from scdiffgen.conditions import Condition, ConditionSpec, NumberTransform

from ._categories import TableEmbedding, category_embedding
from ._features import FeatureEmbedding
from ._number_kinds import number_embedding
from ._numbers import NumberEmbedding
from ._options import NetworkOptions
from ._sets import POOLINGS, ComponentPooling, DosedPartEmbedding, PartEmbedding, SetEmbedder


class CategoryEmbedder(nn.Module):
    """Embed one label a cell.

    Parameters
    ----------
    categories
        Embeds ids, ``(...) -> (..., dim)``.
    """

    empty_is_told = False

    def __init__(self, categories: nn.Module) -> None:
        super().__init__()
        self.categories = categories

    def forward(self, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        """Embed the label of each cell."""
        return self.categories(parts.ids[:, 0])


class NumberEmbedder(nn.Module):
    """Embed one number a cell, through a perceptron.

    Parameters
    ----------
    embedding
        Embeds numbers of order one, ``(...) -> (..., dim)``.
    transform
        Brings the number to order one.
    """

    empty_is_told = False

    def __init__(self, embedding: NumberEmbedding, transform: NumberTransform) -> None:
        super().__init__()
        dim = embedding.dim
        self.embedding = embedding
        self.transform = transform
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        """Embed the number of each cell."""
        return self.mlp(self.embedding(self.transform(parts.values[:, 0])))


class HierarchyEmbedder(nn.Module):
    """Embed a path from root to leaf as the sum over its known levels.

    Each level adds what it is different by from the level above, so a path that ends early has exactly the vector of
    where it ends. All vectors of a table start at zero: a leaf that training never saw is embedded as its parent, and
    weight decay draws rare leaves towards theirs.

    Parameters
    ----------
    categories
        Embeds ids of all levels, ``(...) -> (..., dim)``.
    """

    empty_is_told = False

    def __init__(self, categories: nn.Module) -> None:
        super().__init__()
        self.categories = categories
        if isinstance(categories, TableEmbedding):
            nn.init.zeros_(categories.weight)

    def forward(self, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        """Embed the path of each cell."""
        return self.categories(parts.ids).masked_fill(~parts.mask[..., None], 0.0).sum(dim=1)


def embed_categories(spec: ConditionSpec, dim: int, options: NetworkOptions) -> nn.Module:
    """Embed the ids of a condition: by feature vectors where it has them, otherwise as the options say."""
    if spec.n_features:
        return FeatureEmbedding(spec.n_features, dim)
    return category_embedding(options.category_embedding, spec.n_categories, dim)


def embed_parts(spec: ConditionSpec, dim: int, options: NetworkOptions) -> PartEmbedding:
    """Embed each part of a set, with its dose where it has one."""
    categories = embed_categories(spec, dim, options)
    if not spec.has_values:
        return PartEmbedding(categories, dim)
    return DosedPartEmbedding(categories, dim, number_embedding(options.number_embedding, dim), spec.transform)


def condition_embedder(
    spec: ConditionSpec, dim: int, options: NetworkOptions
) -> CategoryEmbedder | NumberEmbedder | SetEmbedder | HierarchyEmbedder:
    """Make the embedder of one condition: ``Condition`` to ``(cells, dim)``.

    A set whose parts are of several kinds (``spec.components``) is embedded kind by kind instead of pooled.

    Parameters
    ----------
    spec
        What was registered.
    dim
        Length of the vector.
    options
        How conditions are embedded.

    Raises
    ------
    ValueError
        If there are components, but not one for each category.
    """
    if spec.kind == "number":
        return NumberEmbedder(number_embedding(options.number_embedding, dim), spec.transform)
    if spec.kind == "category":
        return CategoryEmbedder(embed_categories(spec, dim, options))
    if spec.kind == "hierarchy":
        return HierarchyEmbedder(embed_categories(spec, dim, options))
    parts = embed_parts(spec, dim, options)
    if not spec.components:
        return SetEmbedder(parts, POOLINGS[options.set_pooling](dim))
    if len(spec.components) != spec.n_categories:
        raise ValueError(
            f"`components` of {spec.name!r} has {len(spec.components)} entries for {spec.n_categories} categories. "
            "Pass one each."
        )
    return SetEmbedder(parts, ComponentPooling(dim, spec.components))
