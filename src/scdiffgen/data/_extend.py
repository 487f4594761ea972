"""Categories added to what is registered: perturbations and descriptions that no cell has, known by their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scdiffgen._messages import listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen._text import embed_texts
from scdiffgen.data._cell_treatments import syntax_of
from scdiffgen.data._feature_vectors import feature_table
from scdiffgen.data._perturbation_field import extended_perturbations
from scdiffgen.data._registry import Registry, field_state, with_state


def add_perturbations(registry: Registry, vectors: Mapping[str, Any] | pd.DataFrame) -> Registry:
    """A registry with further perturbations, by their feature vectors."""
    state = field_state(registry, REGISTRY_KEYS.PERTURBATION)
    if state is None or state["features"] is None:
        raise ValueError(
            "No feature vectors of perturbations are registered: pass `perturbation_key` and "
            "`perturbation_features_key` to `setup_anndata`."
        )
    table = feature_table(vectors, "`vectors`", syntax_of(state))
    known = [name for name in table.index if name in set(state["names"])]
    if known:
        raise ValueError(f"`vectors`: {listed(known)} are registered already. Leave them out.")
    extended = extended_perturbations(state, list(table.index), table.to_numpy(dtype=np.float32), "`vectors`")
    return with_state(registry, REGISTRY_KEYS.PERTURBATION, extended, len(extended["names"]))


def add_texts(registry: Registry, texts: Sequence[str]) -> Registry:
    """A registry with further descriptions, which are embedded."""
    state = field_state(registry, REGISTRY_KEYS.TEXT)
    if state is None:
        raise ValueError("No descriptions are registered: pass `text_key` to `setup_anndata`.")
    categories = np.array([*state["categorical_mapping"], *texts], dtype=object)
    features = np.concatenate([state["features"], embed_texts(texts)])
    extended = {**state, "categorical_mapping": categories, "features": features}
    return with_state(registry, REGISTRY_KEYS.TEXT, extended, len(categories))


def unseen_texts(registry: Registry, table: pd.DataFrame) -> list[str]:
    """Descriptions in a user's table that are not registered, each once; none if no descriptions are registered."""
    state = field_state(registry, REGISTRY_KEYS.TEXT)
    if state is None or state.get("original_key") not in table:
        return []
    requested = dict.fromkeys(entry for entry in table[state["original_key"]] if isinstance(entry, str))
    return [text for text in requested if text not in set(state["categorical_mapping"])]
