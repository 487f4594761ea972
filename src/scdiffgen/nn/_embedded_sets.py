"""Embeddings of sets of interventions, such as perturbations with doses."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scdiffgen.conditions import Condition, ConditionSpec

from ._condition_embedder import EMBEDDERS, Embedder, PartEmbedding, clear_padding
from ._options import NetworkOptions
from ._shapes import Slots


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


EMBEDDERS["set"] = SetEmbedder
