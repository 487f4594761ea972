"""Category embeddings: an id becomes a learned vector, or a projection of a given vector."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

Ids = Int[Tensor, "*shape"]
CategoryVectors = Float[Tensor, "*shape dim"]


class TableEmbedding(nn.Embedding):
    """One learned vector a category, of length about one at first."""

    def __init__(self, n_categories: int, dim: int) -> None:
        super().__init__(n_categories, dim)
        nn.init.normal_(self.weight, std=dim**-0.5)


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

    def forward(self, ids: Ids) -> CategoryVectors:
        """Embed ids of any shape; raise if no vectors were given yet."""
        if not len(self.vectors):
            raise RuntimeError("No feature vectors were given. Give those of all categories by `extend`, or load them.")
        return self.projection((F.embedding(ids, self.vectors) - self.centre) / self.scale)

    @torch.no_grad()
    def extend(self, vectors: Float[Tensor, "new n_features"]) -> None:
        """Append the vectors of further categories, one row each: their ids follow on."""
        vectors = vectors.to(self.vectors)
        if not len(self.vectors):
            # A single vector is not centred: nothing would be left of it.
            self.centre.copy_(vectors.mean(dim=0) if len(vectors) > 1 else torch.zeros_like(self.centre))
            spread = (vectors - self.centre).square().mean().sqrt()
            self.scale.copy_(torch.where(spread > 0, spread, 1.0))
        self.vectors = torch.cat([self.vectors, vectors])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take as many vectors as were saved."""
        self.vectors = self.vectors.new_empty(state_dict.get(f"{prefix}vectors", self.vectors).shape)
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
