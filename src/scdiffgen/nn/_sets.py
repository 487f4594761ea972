"""Sets of perturbations with doses: parts to vectors, vectors to one vector, whatever their number and order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from scdiffgen.conditions import Condition, NumberTransform

from ._numbers import NumberEmbedding
from ._options import PoolingKind
from ._shapes import Slots


class PartEmbedding(nn.Module):
    """Embed each part of a set by its id."""

    def __init__(self, categories: nn.Module, dim: int) -> None:
        super().__init__()
        self.categories = categories
        self.dim = dim

    def forward(self, parts: Condition[Tensor]) -> Slots:
        """Embed all slots; what it makes of empty ones is not to be used."""
        return self.categories(parts.ids)


class DosedPartEmbedding(PartEmbedding):
    """Embed each part together with its dose; a dose of NaN is *no dose given*, which has a learned vector."""

    def __init__(self, categories: nn.Module, dim: int, dose: NumberEmbedding, transform: NumberTransform) -> None:
        super().__init__(categories, dim)
        self.dose = dose
        self.transform = transform  # brings doses to order one
        self.no_dose = nn.Parameter(torch.randn(dim) * dim**-0.5)
        self.join = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, parts: Condition[Tensor]) -> Slots:
        """Embed all slots; what it makes of empty ones is not to be used."""
        what, given = self.categories(parts.ids), ~parts.values.isnan()
        dose = self.dose(self.transform(parts.values.nan_to_num(nan=0.0)))
        dose = torch.where(given[..., None], dose, self.no_dose)
        return what + self.join(torch.cat([what, dose], dim=-1))


class MeanPooling(nn.Module):
    """Mean over the parts, through a perceptron (Zaheer et al. 2017, "Deep sets", theorem 2)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, vectors: Slots, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        """Pool the vectors of the parts; an empty set is finite."""
        mask = parts.mask[..., None]
        pooled = (vectors * self._weights(vectors, mask)).masked_fill(~mask, 0.0).sum(dim=1)
        return pooled + self.mlp(pooled)

    def _weights(self, vectors: Slots, mask: Bool[Tensor, "cells slots 1"]) -> Float[Tensor, " cells #slots #dim"]:
        return 1 / mask.sum(dim=1, keepdim=True).clamp(min=1).to(vectors.dtype)


class AttentionPooling(MeanPooling):
    """Weighted mean over the parts, each component with weights of its own, through a perceptron.

    Shen et al. 2018, "DiSAN: directional self-attention network for RNN/CNN-free language understanding"
    (multi-dimensional attention).
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.score = nn.Linear(dim, dim)

    def _weights(self, vectors: Slots, mask: Bool[Tensor, "cells slots 1"]) -> Slots:
        # The most negative finite number: a row of -inf, an empty set, would have NaN weights.
        scores = self.score(vectors)
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=1)


class ComponentPooling(nn.Module):
    """Concatenate one vector a component (knock-out, drug), through a perceptron; an absent one has a learned vector.

    The id of a part decides which component it belongs to, not the slot that it is in: sets are stored with their parts
    sorted by name. As each category belongs to one component, the rows of one table are the tables of all components.
    Several parts of one component are averaged.
    """

    components: Tensor

    def __init__(self, dim: int, components: Sequence[int]) -> None:
        super().__init__()
        self.n_components = max(components) + 1
        self.register_buffer("components", torch.tensor(components), persistent=False)
        self.absent = nn.Parameter(torch.randn(self.n_components, dim) * dim**-0.5)
        self.mlp = nn.Sequential(nn.Linear(self.n_components * dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def extend(self, components: Sequence[int]) -> None:
        """Append the components, known ones, of further categories."""
        self.components = torch.cat([self.components, self.components.new_tensor(components)])

    def forward(self, vectors: Slots, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        """Pool the vectors of the parts by component."""
        mask = parts.mask[..., None]
        component = self.components[parts.ids][..., None]
        member = (component == torch.arange(self.n_components, device=component.device)) & mask
        n_parts = member.sum(dim=1)[..., None]
        total = member.to(vectors.dtype).transpose(1, 2) @ vectors.masked_fill(~mask, 0.0)
        present = total / n_parts.clamp(min=1)
        return self.mlp(torch.where(n_parts > 0, present, self.absent).flatten(1))


POOLINGS: dict[PoolingKind, type[MeanPooling]] = {"attention": AttentionPooling, "mean": MeanPooling}


class SetEmbedder(nn.Module):
    """Embed a set of parts, whatever their order and padding; the empty set, a control, has a learned vector."""

    empty_is_given = True

    def __init__(self, parts: PartEmbedding, pooling: MeanPooling | ComponentPooling) -> None:
        super().__init__()
        self.parts = parts
        self.pooling = pooling
        self.control = nn.Parameter(torch.randn(parts.dim) * parts.dim**-0.5)

    def forward(self, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        """Embed the sets of some cells, padding cleared."""
        pooled = self.pooling(self.parts(parts), parts)
        return torch.where(parts.mask.any(dim=1, keepdim=True), pooled, self.control)
