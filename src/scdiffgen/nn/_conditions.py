"""From the conditions of a cell to vectors: one vector a registered condition, in the order of registration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scdiffgen.conditions import Condition, ConditionSpec

from ._embedders import condition_embedder
from ._features import FeatureEmbedding
from ._options import NetworkOptions
from ._sets import ComponentPooling


def clear_padding(parts: Condition[Tensor], dtype: torch.dtype) -> Condition[Tensor]:
    """Put zeros wherever a condition is padding or not told, whatever was there.

    Parameters
    ----------
    parts
        One condition of some cells.
    dtype
        Floating point type of the values returned.

    Returns
    -------
    The same condition; ``mask`` is False also where it is not told.
    """
    mask = parts.mask & parts.given[:, None]
    values = parts.values.to(dtype).masked_fill(~mask, 0.0)
    return Condition(ids=parts.ids.masked_fill(~mask, 0), values=values, mask=mask, given=parts.given)


class ConditionEmbedder(nn.Module):
    """Embed every registered condition; one that is not told has a learned *null* vector instead.

    A category, number or hierarchy without any part counts as not told, a set without parts as a control.

    Parameters
    ----------
    specs
        The registered conditions.
    dim
        Length of each vector.
    options
        How conditions are embedded.
    features
        Feature vectors (categories, n_features) of each condition whose spec has ``n_features``. May be left out where
        a state dict that holds them is loaded.

    Examples
    --------
    >>> specs = [ConditionSpec("cell_type", "category", n_categories=3), ConditionSpec("age", "number")]
    >>> embed = ConditionEmbedder(specs, 16)
    >>> one = torch.ones(2, 1)
    >>> age = Condition(ids=one.long() * 0, values=one * 61.0, mask=one.bool(), given=torch.tensor([True, False]))
    >>> embed({"age": age}, n_cells=2).shape
    torch.Size([2, 2, 16])
    """

    def __init__(
        self,
        specs: Sequence[ConditionSpec],
        dim: int,
        options: NetworkOptions | None = None,
        *,
        features: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        options = options or NetworkOptions()
        self.names = [spec.name for spec in specs]
        self.embedders = nn.ModuleList(condition_embedder(spec, dim, options) for spec in specs)
        self.null = nn.Parameter(torch.randn(len(specs), dim) * dim**-0.5)
        for name, vectors in (features or {}).items():
            self.extend_features(name, vectors)

    def forward(
        self, conditions: Mapping[str, Condition[Tensor]], n_cells: int
    ) -> Float[Tensor, "{n_cells} n_conditions dim"]:
        """Embed the conditions of some cells.

        Parameters
        ----------
        conditions
            The parts of each condition by name. A condition left out is not told for any cell.
        n_cells
            Number of cells, which an empty mapping does not tell.

        Returns
        -------
        The vectors (cells, conditions, dim), conditions in the order of ``specs``.

        Raises
        ------
        KeyError
            If a name is not a registered condition.
        ValueError
            If a condition is not of ``n_cells`` cells.
        """
        for name, parts in conditions.items():
            self._index(name)
            if len(parts.given) != n_cells:
                raise ValueError(
                    f"`conditions[{name!r}]` is of {len(parts.given)} cells. Pass one of `n_cells`={n_cells}."
                )
        null = self.null.expand(n_cells, -1, -1)
        vectors = [
            self._embed(index, conditions[name]) if name in conditions else null[:, index]
            for index, name in enumerate(self.names)
        ]
        return torch.stack(vectors, dim=1) if vectors else null

    def extend_features(
        self, name: str, vectors: Float[Tensor, "new n_features"], components: Sequence[int] = ()
    ) -> None:
        """Append feature vectors of further categories, such as perturbations that training never saw.

        Parameters
        ----------
        name
            A condition whose spec has ``n_features``.
        vectors
            One row a new category; their ids follow on.
        components
            Component of each new category, for a set that has components.

        Raises
        ------
        KeyError
            If there is no such condition.
        ValueError
            If it has no feature vectors, or these do not fit to it.
        """
        parts = list(self.embedders[self._index(name)].modules())
        tables = [part for part in parts if isinstance(part, FeatureEmbedding)]
        if not tables:
            raise ValueError(
                f"Condition {name!r} was registered without feature vectors, so it cannot be extended by them."
            )
        tables[0].extend(vectors)
        for pooling in parts:
            if isinstance(pooling, ComponentPooling):
                pooling.extend(components)

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"{name!r} is not a registered condition. Registered are {self.names}.")
        return self.names.index(name)

    def _embed(self, index: int, parts: Condition[Tensor]) -> Float[Tensor, "cells dim"]:
        embedder, parts = self.embedders[index], clear_padding(parts, self.null.dtype)
        told = parts.given if embedder.empty_is_told else parts.mask.any(dim=1)
        return torch.where(told[:, None], embedder(parts), self.null[index])


class UniversalCombination(nn.Module):
    """Combine the vectors of all conditions into one: concatenated, then a perceptron; zero of no conditions."""

    def __init__(self, n_conditions: int, dim: int) -> None:
        super().__init__()
        self.mlp = (
            nn.Sequential(nn.Flatten(), nn.Linear(n_conditions * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
            if n_conditions
            else None
        )

    def forward(self, sequence: Float[Tensor, "cells n_conditions dim"]) -> Float[Tensor, "cells dim"]:
        """Combine (cells, conditions, dim) to (cells, dim)."""
        return sequence.sum(dim=1) if self.mlp is None else self.mlp(sequence)
