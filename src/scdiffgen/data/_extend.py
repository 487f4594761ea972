"""Categories added to what is registered: perturbations and descriptions that no cell has, known by their vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scdiffgen._messages import listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen._text import embed_texts
from scdiffgen.conditions import PerturbationSyntax
from scdiffgen.data._components import components_of_names
from scdiffgen.data._perturbation_features import feature_table
from scdiffgen.data._registry import field_state, with_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from scdiffgen.data._registry import Registry


def extended_perturbations(
    state: Mapping[str, Any],
    names: Sequence[str],
    vectors: np.ndarray | None,
    place: str,
    components: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Append perturbations to the state of their field; ids of the known ones stay, doses of the new ones are unknown.

    Parameters
    ----------
    state
        The field's state.
    names
        The new perturbations.
    vectors
        (names, features) their feature vectors; None if features are not registered.
    place
        Where the vectors were given; named in messages.
    components
        Components of the new perturbations where known; otherwise that of the nearest feature vector.

    Returns
    -------
    The state with them.

    Raises
    ------
    ValueError
        If the vectors have another length than the registered ones.
    """
    features = state["features"]
    if vectors is not None:
        if vectors.shape[1] != features.shape[1]:
            raise ValueError(
                f"{place}: vectors of length {vectors.shape[1]}; those of the registered perturbations have length "
                f"{features.shape[1]}."
            )
        features = np.concatenate([features, vectors])
    every = [*state["names"], *names]
    known = {**dict(zip(state["names"], state["components"], strict=True)), **(components or {})}
    unknown = np.full(len(names), np.nan)
    return {
        **state,
        "names": np.array(every, dtype=object),
        "features": features,
        "components": components_of_names(every, known, features),
        "dose_min": np.concatenate([state["dose_min"], unknown]),
        "dose_max": np.concatenate([state["dose_max"], unknown]),
    }


def add_perturbations(registry: Registry, vectors: Mapping[str, Any] | pd.DataFrame) -> Registry:
    """Register further perturbations by their feature vectors.

    Parameters
    ----------
    registry
        The registry.
    vectors
        A mapping from names to vectors, or a DataFrame with names as index.

    Returns
    -------
    A registry with them; the given one is not changed.

    Raises
    ------
    ValueError
        If no feature vectors are registered, a perturbation is registered already, or the vectors do not fit.
    """
    state = field_state(registry, REGISTRY_KEYS.PERTURBATION)
    if state is None or state["features"] is None:
        raise ValueError(
            "No feature vectors of perturbations are registered: pass `perturbation_key` and "
            "`perturbation_features_key` to `setup_anndata`."
        )
    table = feature_table(vectors, "`vectors`", PerturbationSyntax(tuple(state["control"]), state["separator"]))
    known = [name for name in table.index if name in set(state["names"])]
    if known:
        raise ValueError(f"`vectors`: {listed(known)} are registered already. Leave them out.")
    extended = extended_perturbations(state, list(table.index), table.to_numpy(dtype=np.float32), "`vectors`")
    return with_state(registry, REGISTRY_KEYS.PERTURBATION, extended, len(extended["names"]))


def add_texts(registry: Registry, texts: Sequence[str]) -> Registry:
    """Register further descriptions.

    Parameters
    ----------
    registry
        The registry.
    texts
        Descriptions that are not registered.

    Returns
    -------
    A registry with them; the given one is not changed.

    Raises
    ------
    ImportError
        If the sentence encoder is not installed.
    """
    state = field_state(registry, REGISTRY_KEYS.TEXT)
    if state is None:
        raise ValueError("No descriptions are registered: pass `text_key` to `setup_anndata`.")
    categories = np.array([*state["categorical_mapping"], *texts], dtype=object)
    features = np.concatenate([state["features"], embed_texts(texts)])
    extended = {**state, "categorical_mapping": categories, "features": features}
    return with_state(registry, REGISTRY_KEYS.TEXT, extended, len(categories))


def unseen_texts(registry: Registry, table: pd.DataFrame) -> list[str]:
    """Descriptions in a user's table that are not registered.

    Parameters
    ----------
    registry
        The registry.
    table
        A row for each kind of cell, a column for each condition.

    Returns
    -------
    The descriptions, each once; none if no descriptions are registered.
    """
    state = field_state(registry, REGISTRY_KEYS.TEXT)
    if state is None or state.get("original_key") not in table:
        return []
    asked = dict.fromkeys(entry for entry in table[state["original_key"]] if isinstance(entry, str))
    return [text for text in asked if text not in set(state["categorical_mapping"])]
