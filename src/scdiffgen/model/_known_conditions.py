"""Conditions as a model knows them; perturbations and descriptions that training never saw enter by their vectors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from scvi.model.base import BaseModelClass

from scdiffgen.conditions import Conditions
from scdiffgen.data import Registry, add_texts, condition_specs, encode_conditions, required_state, unseen_texts


def encode(model: BaseModelClass, table: pd.DataFrame) -> Conditions[np.ndarray]:
    """Code a request; descriptions that were never seen are embedded and become known."""
    texts = unseen_texts(model.registry, table)
    if texts:
        extend(model, add_texts(model.registry, texts))
    return encode_conditions(model.registry, table)


def extend(model: BaseModelClass, registry: Registry) -> None:
    """Take an extended registry: vectors of its new categories enter the networks."""
    specs = condition_specs(registry)
    for known, spec in zip(model.module.specs, specs, strict=True):
        vectors = required_state(registry, spec.registry_key).get("features")
        if vectors is not None and spec.n_categories > known.n_categories:
            new = torch.from_numpy(vectors[known.n_categories :])
            model.module.extend_features(spec.name, new, spec.components[known.n_categories :])
    model.module.specs = tuple(specs)
    model.registry_ = registry
    if model.adata_manager is not None:  # other models of the same cells keep theirs
        model._adata_manager = model.adata_manager.with_registry(registry)
        model._register_manager_for_instance(model._adata_manager)
