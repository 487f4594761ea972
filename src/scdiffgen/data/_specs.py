"""What conditions were registered, in the order in which everyone lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ConditionSpec, NumberTransform
from scdiffgen.data._number_field import unpack_transforms
from scdiffgen.data._registry import field_state, required_state

if TYPE_CHECKING:
    from scvi.data import AnnDataManager

    from scdiffgen.data._registry import Registry


def condition_specs(registry: Registry | AnnDataManager) -> list[ConditionSpec]:
    """Describe the registered conditions to the networks.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.

    Returns
    -------
    Labels, hierarchy, categorical covariates, continuous covariates, text, batch, perturbation; those registered.

    Examples
    --------
    >>> import anndata as ad, pandas as pd
    >>> from scdiffgen.data import Manager, fields_for
    >>> obs = pd.DataFrame({"type": ["T", "B", "T", "B"]}, index=["c0", "c1", "c2", "c3"])
    >>> manager = Manager(fields=fields_for(labels_key="type"))
    >>> manager.register_fields(ad.AnnData(np.ones((4, 1)), obs=obs))
    >>> [(spec.name, spec.kind, spec.n_categories) for spec in condition_specs(manager)]
    [('type', 'category', 2)]
    """
    return [
        *_column_spec(registry, REGISTRY_KEYS.LABELS),
        *_hierarchy_spec(registry),
        *_categorical_covariate_specs(registry),
        *_continuous_covariate_specs(registry),
        *_column_spec(registry, REGISTRY_KEYS.TEXT),
        *_column_spec(registry, REGISTRY_KEYS.BATCH),
        *_perturbation_spec(registry),
    ]


def categories_of_condition(registry: Registry | AnnDataManager, spec: ConditionSpec) -> np.ndarray:
    """The categories of a condition of kind ``"category"``, in the order of their ids.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.
    spec
        The condition.

    Returns
    -------
    (categories,) their names.
    """
    state = required_state(registry, spec.registry_key)
    if spec.registry_key != REGISTRY_KEYS.CATEGORICAL_COVARIATES:
        return np.asarray(state["categorical_mapping"])
    mappings = state["mappings"]  # a list; data modules of scvi-tools write a dict
    return np.asarray(mappings[spec.name] if isinstance(mappings, Mapping) else mappings[spec.column])


def _column_spec(registry: Registry | AnnDataManager, key: str) -> list[ConditionSpec]:
    state = field_state(registry, key)
    if state is None or state["original_key"] == f"_scvi_{key}":  # not asked for: all cells are one category
        return []
    return [
        ConditionSpec(
            state["original_key"],
            "category",
            registry_key=key,
            n_categories=len(state["categorical_mapping"]),
            n_features=state["features"].shape[1] if "features" in state else 0,
        )
    ]


def _categorical_covariate_specs(registry: Registry | AnnDataManager) -> list[ConditionSpec]:
    key = REGISTRY_KEYS.CATEGORICAL_COVARIATES
    state = field_state(registry, key)
    if state is None:
        return []
    return [
        ConditionSpec(name, "category", registry_key=key, column=column, n_categories=n_categories)
        for column, (name, n_categories) in enumerate(zip(state["field_keys"], state["n_cats_per_key"], strict=True))
    ]


def _continuous_covariate_specs(registry: Registry | AnnDataManager) -> list[ConditionSpec]:
    key = REGISTRY_KEYS.CONTINUOUS_COVARIATES
    state = field_state(registry, key)
    if state is None:
        return []
    columns = state["columns"]
    # data modules of scvi-tools register columns only
    transforms = unpack_transforms(state["transforms"]) if "transforms" in state else [NumberTransform()] * len(columns)
    return [
        ConditionSpec(name, "number", registry_key=key, column=column, has_values=True, transform=transform)
        for column, (name, transform) in enumerate(zip(columns, transforms, strict=True))
    ]


def _hierarchy_spec(registry: Registry | AnnDataManager) -> list[ConditionSpec]:
    key = REGISTRY_KEYS.HIERARCHY
    state = field_state(registry, key)
    if state is None:
        return []
    n_nodes, n_levels = len(state["nodes"]), len(state["columns"])
    return [ConditionSpec("hierarchy", "hierarchy", registry_key=key, n_categories=n_nodes, n_slots=n_levels)]


def _perturbation_spec(registry: Registry | AnnDataManager) -> list[ConditionSpec]:
    key = REGISTRY_KEYS.PERTURBATION
    state = field_state(registry, key)
    if state is None:
        return []
    return [
        ConditionSpec(
            name=state["columns"][0] if len(state["columns"]) == 1 else "perturbation",
            kind="set",
            role="intervention",
            registry_key=key,
            n_categories=len(state["names"]),
            n_slots=state["n_slots"],
            has_values=state["dose_transform"] is not None,
            transform=unpack_transforms(state["dose_transform"])[0] if state["dose_transform"] else NumberTransform(),
            n_features=0 if state["features"] is None else state["features"].shape[1],
            components=tuple(map(int, state["components"])) if any(state["components"]) else (),
        )
    ]
