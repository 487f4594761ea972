"""Category embeddings: learned vectors, or projections of given feature vectors."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

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
    """Return the feature embedding within an embedder, or None."""
    return next((part for part in module.modules() if isinstance(part, FeatureEmbedding)), None)


def extend_features(module: nn.Module, name: str, vectors: Float[Tensor, "new n_features"]) -> None:
    """Append the feature vectors of new categories to those of an embedder."""
    table = feature_table(module)
    if table is None:
        raise ValueError(
            f"Condition {name!r} was registered without feature vectors, so it cannot be extended by them."
        )
    table.extend(vectors)
