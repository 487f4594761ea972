"""Embeddings of conditions: one vector for each registered condition of a cell, in the order of registration."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scdiffgen.conditions import Condition, ConditionSpec, MixedConditions

from ._options import NetworkOptions, NumberKind, Slots
from .variants import variant

LARGEST = 2.0**20
"""Clipping bound of magnitudes. Beyond it, the spacing of float32 exceeds 1/8, and phases would be noise."""

LOG_COUNT_PERIOD = 0.5  # shortest period for log counts, which reach about 12

Numbers = Float[Tensor, "*shape"]
Embedded = Float[Tensor, "*shape {self.dim}"]


class NumberEmbedding(nn.Module):
    """Base class of maps from a number to a vector of length ``dim``."""

    for_log_counts: ClassVar[dict[str, Any]] = {}
    """Arguments for embeddings of log counts."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, numbers: Numbers) -> Embedded:
        """Embed numbers of any shape, with a new last axis."""
        return self._embed(numbers.clamp(-LARGEST, LARGEST))

    def _embed(self, numbers: Numbers) -> Embedded:
        raise NotImplementedError


def geometric_frequencies(n: int, min_period: float, max_period: float) -> Float[Tensor, " {n}"]:
    """Return geometrically spaced angular frequencies, from ``max_period`` to ``min_period``."""
    return 2 * math.pi / torch.logspace(math.log10(max_period), math.log10(min_period), n)


class WaveEmbedding(NumberEmbedding):
    """Sines, then cosines, of the number at several frequencies; an odd ``dim`` omits the last cosine."""

    frequencies: Tensor

    def _embed(self, numbers: Numbers) -> Embedded:
        phases = numbers[..., None] * self.frequencies
        return torch.cat([phases.sin(), phases.cos()], dim=-1)[..., : self.dim]


class SinusoidalEmbedding(WaveEmbedding):
    """Sines and cosines at geometric frequencies (Vaswani et al. 2017, "Attention is all you need", section 3.5)."""

    for_log_counts: ClassVar[dict[str, Any]] = {"min_period": LOG_COUNT_PERIOD}

    def __init__(self, dim: int, *, min_period: float = 1.0, max_period: float = 50.0) -> None:
        super().__init__(dim)
        self.register_buffer("frequencies", geometric_frequencies((dim + 1) // 2, min_period, max_period))


def number_embedding(kind: NumberKind) -> type[NumberEmbedding]:
    return SinusoidalEmbedding if kind == "sinusoidal" else variant("number_embedding", kind)


def log_count_embedding(kind: NumberKind, dim: int) -> NumberEmbedding:
    """Make an embedding of log counts, such as noise level and library size."""
    form = number_embedding(kind)
    return form(dim, **form.for_log_counts)


Ids = Int[Tensor, "*shape"]
CategoryVectors = Float[Tensor, "*shape dim"]


class TableEmbedding(nn.Embedding):
    """Table of one learned vector per category, initialised with a norm of about 1."""

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__(n_categories, dim)
        nn.init.normal_(self.weight, std=dim**-0.5)


class FeatureEmbedding(nn.Module):
    """Linear projection of given feature vectors, which are centred and scaled by one common root mean square."""

    vectors: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(self, n_features: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.empty(0, n_features))
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(()))
        self.projection = nn.Linear(n_features, dim)

    def forward(self, ids: Ids) -> CategoryVectors:
        """Embed ids of any shape; raise if no feature vectors were given."""
        if not len(self.vectors):
            raise RuntimeError("No feature vectors were given. Pass those of all categories to `extend`, or load them.")
        return self.projection((F.embedding(ids, self.vectors) - self.centre) / self.scale)

    @torch.no_grad()
    def extend(self, vectors: Float[Tensor, "new n_features"]) -> None:
        """Append one feature vector per new category; new ids continue the existing ones."""
        vectors = vectors.to(self.vectors)
        if not len(self.vectors):
            # A single vector is not centred, because centring would make it zero.
            self.centre.copy_(vectors.mean(dim=0) if len(vectors) > 1 else torch.zeros_like(self.centre))
            spread = (vectors - self.centre).square().mean().sqrt()
            self.scale.copy_(torch.where(spread > 0, spread, 1.0))
        self.vectors = torch.cat([self.vectors, vectors])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Resize the table to the number of saved vectors, then load."""
        self.vectors = self.vectors.new_empty(state_dict.get(f"{prefix}vectors", self.vectors).shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


def feature_table(module: nn.Module) -> FeatureEmbedding | None:
    return next((part for part in module.modules() if isinstance(part, FeatureEmbedding)), None)


def clear_padding(condition: Condition[Tensor], dtype: torch.dtype) -> Condition[Tensor]:
    """Set ids, values and mask of padding and of missing conditions to zero."""
    mask = condition.mask & condition.given[:, None]
    values = condition.values.to(dtype).masked_fill(~mask, 0.0)
    return condition._replace(ids=condition.ids.masked_fill(~mask, 0), values=values, mask=mask)


def embed_categories(spec: ConditionSpec, dim: int, options: NetworkOptions) -> nn.Module:
    """Make the embedding of the categories of a condition: of its feature vectors if it has any, else of their ids."""
    if spec.n_features:
        return FeatureEmbedding(spec.n_features, dim)
    if options.vocabulary == "table":
        return TableEmbedding(spec.n_categories, dim)
    return variant("vocabulary", options.vocabulary)(spec.n_categories, dim)


class PartEmbedding(nn.Module):
    """Embedding of each part of a set by its id and its dose; a learned vector stands for a missing dose (NaN)."""

    def __init__(self, spec: ConditionSpec, dim: int, options: NetworkOptions) -> None:
        super().__init__()
        self.categories = embed_categories(spec, dim, options)
        self.transform = spec.transform  # scales doses to order one
        self.dose = number_embedding(options.number_embedding)(dim) if spec.has_values else None
        if spec.has_values:
            self.no_dose = nn.Parameter(torch.randn(dim) * dim**-0.5)
            self.join = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, parts: Condition[Tensor]) -> Slots:
        """Embed all slots; the embeddings of empty slots are meaningless and have to be masked."""
        what = self.categories(parts.ids)
        if self.dose is None:
            return what
        dose = self.dose(self.transform(parts.values.nan_to_num(nan=0.0)))
        dose = torch.where(parts.values.isnan()[..., None], self.no_dose, dose)
        return what + self.join(torch.cat([what, dose], dim=-1))


class Embedder(nn.Module):
    """Base class of embedders of a condition with cleared padding, one vector per cell."""

    empty_is_control = False
    """Whether a cell without any part is a control; otherwise its condition is missing."""

    def cleared(self, condition: Condition[Tensor], dtype: torch.dtype) -> Condition[Tensor]:
        """Set everything that has to be ignored to zero."""
        return clear_padding(condition, dtype)

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int]) -> None:
        """Append feature vectors ``(new, n_features)`` of new categories, and their components if they have any."""
        if (table := feature_table(self)) is None:
            raise ValueError(f"Condition {name!r} was registered without feature vectors, so it cannot be extended.")
        table.extend(vectors)


class NumberEmbedder(Embedder):
    """Embedding of one number per cell, transformed to order one, followed by a perceptron."""

    def __init__(self, spec: ConditionSpec, dim: int, options: NetworkOptions) -> None:
        super().__init__()
        self.embedding = number_embedding(options.number_embedding)(dim)
        self.transform = spec.transform
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, condition: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        return self.mlp(self.embedding(self.transform(condition.values[:, 0])))


class LabelEmbedder(Embedder):
    """Embedding of a label, or of a path in a hierarchy as the sum over its given levels, initially zero."""

    def __init__(self, spec: ConditionSpec, dim: int, options: NetworkOptions) -> None:
        super().__init__()
        self.categories = embed_categories(spec, dim, options)
        if spec.kind == "hierarchy" and not spec.n_features:
            for weight in self.categories.parameters():
                nn.init.zeros_(weight)

    def forward(self, condition: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        return self.categories(condition.ids).masked_fill(~condition.mask[..., None], 0.0).sum(dim=1)


class ConditionEmbedder(nn.Module):
    """Embeddings of all registered conditions; a learned *null* vector stands for a missing condition."""

    def __init__(
        self,
        specs: Sequence[ConditionSpec],
        dim: int,
        options: NetworkOptions,
        features: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.names = [spec.name for spec in specs]
        self.embedders: Any = nn.ModuleList(EMBEDDERS[spec.kind](spec, dim, options) for spec in specs)
        self.null = nn.Parameter(torch.randn(len(specs), dim) * dim**-0.5)
        self.transforms = {index: spec.transform for index, spec in enumerate(specs) if spec.has_values}
        for name, vectors in (features or {}).items():
            self.extend_features(name, vectors)

    def forward(
        self, conditions: Mapping[str, Condition[Tensor]], n_cells: int
    ) -> Float[Tensor, "{n_cells} n_conditions dim"]:
        """Embed the conditions in the order of ``specs``; an omitted condition is missing in all cells."""
        if isinstance(conditions, MixedConditions):
            return conditions.mix(lambda given: self(given, n_cells))
        for name in conditions:
            self._index(name)
        null = self.null.expand(n_cells, -1, -1)
        vectors = [
            self._embed(index, conditions[name]) if name in conditions else null[:, index]
            for index, name in enumerate(self.names)
        ]
        return torch.stack(vectors, dim=1) if vectors else null

    def numbers(
        self, conditions: Mapping[str, Condition[Tensor]], n_cells: int
    ) -> Float[Tensor, "{n_cells} n_conditions"]:
        """Average the transformed values (doses) of each condition over its parts; 0 if no part has a value."""
        if isinstance(conditions, MixedConditions):
            return conditions.mix(lambda given: self.numbers(given, n_cells))
        numbers = self.null.new_zeros(n_cells, len(self.names))
        for index, transform in self.transforms.items():
            if self.names[index] in conditions:
                parts = self.embedders[index].cleared(conditions[self.names[index]], numbers.dtype)
                has_value = parts.mask & ~parts.values.isnan()
                values = transform(parts.values.nan_to_num(nan=0.0))
                numbers[:, index] = values.masked_fill(~has_value, 0.0).sum(dim=1) / has_value.sum(dim=1).clamp(min=1)
        return numbers

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int] = ()) -> None:
        """Append feature vectors ``(new, n_features)`` and components of new categories; ids continue."""
        self.embedders[self._index(name)].extend_features(name, vectors, components)

    def features(self, name: str) -> Float[Tensor, "categories n_features"] | None:
        table = feature_table(self.embedders[self._index(name)])
        return None if table is None else table.vectors

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"{name!r} is not a registered condition. Registered are {self.names}.")
        return self.names.index(name)

    def _embed(self, index: int, condition: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        embedder = self.embedders[index]
        condition = embedder.cleared(condition, self.null.dtype)
        given = condition.given if embedder.empty_is_control else condition.mask.any(dim=1)
        return torch.where(given[:, None], embedder(condition), self.null[index])


class UniversalCombination(nn.Module):
    """Perceptron of the concatenated vectors of all conditions; zero if there are no conditions."""

    def __init__(self, n_conditions: int, dim: int) -> None:
        super().__init__()
        self.mlp = None
        if n_conditions:
            self.mlp = nn.Sequential(nn.Flatten(), nn.Linear(n_conditions * dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, sequence: Float[Tensor, "cells n_conditions dim"]) -> Float[Tensor, "cells dim"]:
        return sequence.sum(dim=1) if self.mlp is None else self.mlp(sequence)


class AttentionPooling(nn.Module):
    """Multi-dimensional attention pooling over the parts, then a perceptron (Shen et al. 2018, "DiSAN")."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.score = nn.Linear(dim, dim)

    def forward(self, vectors: Slots, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        """Pool the vectors of the parts; the result is finite for an empty set."""
        mask, scores = parts.mask[..., None], self.score(vectors)
        # The most negative finite number instead of -inf, because an empty set would get NaN weights.
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=1)
        pooled = (vectors * weights).masked_fill(~mask, 0.0).sum(dim=1)
        return pooled + self.mlp(pooled)


class ComponentPooling(nn.Module):
    """Perceptron of the mean vector of each component (knock-out, drug), or a learned vector if it is absent."""

    components: Tensor

    def __init__(self, dim: int, components: Sequence[int]) -> None:
        super().__init__()
        self.n_components = max(components) + 1
        self.register_buffer("components", torch.tensor(components), persistent=False)
        self.absent = nn.Parameter(torch.randn(self.n_components, dim) * dim**-0.5)
        self.mlp = nn.Sequential(nn.Linear(self.n_components * dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def extend(self, components: Sequence[int]) -> None:
        """Append the components of new categories; the components themselves have to be registered."""
        self.components = torch.cat([self.components, self.components.new_tensor(components)])

    def forward(self, vectors: Slots, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        mask = parts.mask[..., None]
        component = self.components[parts.ids][..., None]
        member = (component == torch.arange(self.n_components, device=component.device)) & mask
        n_parts = member.sum(dim=1)[..., None]
        total = member.to(vectors.dtype).transpose(1, 2) @ vectors.masked_fill(~mask, 0.0)
        present = total / n_parts.clamp(min=1)
        return self.mlp(torch.where(n_parts > 0, present, self.absent).flatten(1))


class SetEmbedder(Embedder):
    """Embedding of a set of parts, pooled over all parts or by component; a control (empty set, dose 0) is learned."""

    empty_is_control = True

    def __init__(self, spec: ConditionSpec, dim: int, options: NetworkOptions) -> None:
        super().__init__()
        self.has_doses = spec.has_values
        self.parts = PartEmbedding(spec, dim, options)
        self.pooling = ComponentPooling(dim, spec.components) if spec.components else AttentionPooling(dim)
        self.control = nn.Parameter(torch.randn(dim) * dim**-0.5)

    def cleared(self, condition: Condition[Tensor], dtype: torch.dtype) -> Condition[Tensor]:
        """Set everything that has to be ignored to zero, and drop parts of dose 0 from the sets."""
        mask = condition.mask & (condition.values != 0) if self.has_doses else condition.mask
        return clear_padding(condition._replace(mask=mask), dtype)

    def forward(self, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        """Embed the sets of cells, after :meth:`cleared`."""
        pooled = self.pooling(self.parts(parts), parts)
        return torch.where(parts.mask.any(dim=1, keepdim=True), pooled, self.control)

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int]) -> None:
        super().extend_features(name, vectors, components)
        if isinstance(self.pooling, ComponentPooling):
            self.pooling.extend(components)


EMBEDDERS: dict[str, Callable[[ConditionSpec, int, NetworkOptions], Embedder]] = {
    "number": NumberEmbedder,
    "category": LabelEmbedder,
    "hierarchy": LabelEmbedder,
    "set": SetEmbedder,
}
"""Embedders by kind of condition."""
