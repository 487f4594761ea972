"""Reading scvi-tools' registry: the one place that knows how it is nested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scvi.data import AnnDataManager

Registry = Mapping[str, Any]


def as_registry(registry: Registry | AnnDataManager) -> Registry:
    """The registry itself, also if its manager is given."""
    return registry if isinstance(registry, Mapping) else registry.registry


def field_state(registry: Registry | AnnDataManager, key: str) -> Mapping[str, Any] | None:
    """The state of one field; None if there is no such field, or an empty one."""
    fields = as_registry(registry)["field_registries"]
    return (fields[key]["state_registry"] or None) if key in fields else None


def required_state(registry: Registry | AnnDataManager, key: str) -> Mapping[str, Any]:
    """The state of a field that is registered."""
    state = field_state(registry, key)
    if state is None:
        raise KeyError(f"no field {key!r} is registered")
    return state


def with_state(registry: Registry, key: str, state: Mapping[str, Any], n_categories: int) -> Registry:
    """Another registry in which one field has another state, with its number of categories as summary."""
    fields = registry["field_registries"]
    field = {**fields[key], "state_registry": dict(state), "summary_stats": {f"n_{key}": n_categories}}
    return {**registry, "field_registries": {**fields, key: field}}
