"""Categories known by a given vector: gene embeddings, drug fingerprints, sentences."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class FeatureEmbedding(nn.Module):
    """Project the given vector of each category; the vectors themselves stay as they are.

    All vectors are centred and scaled alike (by the mean vector and the root mean square of those first given), so that
    the projection starts at order one and differences of length between vectors are kept.

    Parameters
    ----------
    n_features
        Length of the given vectors.
    dim
        Length of the projected ones.
    """

    vectors: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(self, n_features: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.empty(0, n_features))
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(()))
        self.projection = nn.Linear(n_features, dim)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Embed ids of any shape.

        Raises
        ------
        RuntimeError
            If no vectors were given yet.
        """
        if not len(self.vectors):
            raise RuntimeError("No feature vectors were given. Give those of all categories by `extend`, or load them.")
        return self.projection((F.embedding(ids, self.vectors) - self.centre) / self.scale)

    @torch.no_grad()
    def extend(self, vectors: Float[Tensor, "new n_features"]) -> None:
        """Append the vectors of further categories: their ids follow on.

        Parameters
        ----------
        vectors
            One row a new category.

        Raises
        ------
        ValueError
            If the rows have another length than the known ones, or hold values that are not finite.
        """
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
            self._fit(vectors)
        self.vectors = torch.cat([self.vectors, vectors])

    def _fit(self, vectors: Float[Tensor, "categories n_features"]) -> None:
        """A single vector is not centred: nothing would be left of it."""
        self.centre.copy_(vectors.mean(dim=0) if len(vectors) > 1 else torch.zeros_like(self.centre))
        spread = (vectors - self.centre).square().mean().sqrt()
        self.scale.copy_(torch.where(spread > 0, spread, 1.0))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take as many vectors as were saved."""
        saved = state_dict.get(f"{prefix}vectors", self.vectors)
        self.vectors = self.vectors.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
