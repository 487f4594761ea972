"""Perturbations and descriptions that training never saw: they enter by their vectors, without training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
import torch

from scdiffgen.conditions import Conditions
from scdiffgen.data import (
    add_perturbations,
    add_texts,
    condition_specs,
    encode_conditions,
    required_state,
    unseen_texts,
)

from ._base import ModelBase

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from scdiffgen.data import Manager, Registry


class Extension(ModelBase):
    """Categories that are known by a vector alone."""

    def add_perturbation_features(self, vectors: Mapping[str, ArrayLike] | pd.DataFrame) -> None:
        """Make perturbations known by their feature vectors, so that they can be asked for.

        Nothing is trained: what a perturbation does is told by its vector, as learned from the perturbations of the
        training cells. With doses, its half-maximal dose is the median of theirs. The new perturbations are saved with
        the model.

        Parameters
        ----------
        vectors
            A vector for each name, as long as those registered by ``perturbation_features_key``; a mapping, or a data
            frame with names as index.

        Raises
        ------
        ValueError
            If no feature vectors were registered, a perturbation is known already, or a vector does not fit.

        Examples
        --------
        >>> model.add_perturbation_features({"FOXO1": foxo1_embedding})  # doctest: +SKIP
        >>> model.generate({"perturbation": "FOXO1+TP53"}, n_cells=100)  # doctest: +SKIP
        """
        self._extend(add_perturbations(self.registry, vectors))

    def _encode(self, table: pd.DataFrame) -> Conditions[np.ndarray]:
        """Code what is asked for; descriptions that were never seen are embedded and become known."""
        texts = unseen_texts(self.registry, table)
        if texts:
            self._extend(add_texts(self.registry, texts))
        return encode_conditions(self.registry, table)

    def _extend(self, registry: Registry) -> None:
        """Take an extended registry: vectors of its new categories enter the networks."""
        specs = condition_specs(registry)
        for known, spec in zip(self.module.specs, specs, strict=True):
            vectors = required_state(registry, spec.registry_key).get("features")
            if vectors is not None and spec.n_categories > known.n_categories:
                new = torch.from_numpy(vectors[known.n_categories :])
                self.module.extend_features(spec.name, new, spec.components[known.n_categories :])
        self.module.specs = tuple(specs)
        self.registry_ = registry
        if self.adata_manager is not None:  # other models of the same cells keep theirs
            self._adata_manager = cast("Manager", self.adata_manager).with_registry(registry)
            self._register_manager_for_instance(self._adata_manager)
