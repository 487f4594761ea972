"""Reading scvi-tools' registry: the one place that knows how it is nested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scvi.data import AnnDataManager

Registry = Mapping[str, Any]


def as_registry(registry: Registry | AnnDataManager) -> Registry:
    """The registry itself, also if its manager is given.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.

    Returns
    -------
    The registry.

    Examples
    --------
    >>> as_registry({"field_registries": {}})
    {'field_registries': {}}
    """
    return registry if isinstance(registry, Mapping) else registry.registry


def field_state(registry: Registry | AnnDataManager, key: str) -> Mapping[str, Any] | None:
    """The state of one field.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.
    key
        Name of the field.

    Returns
    -------
    Its state; None if there is no such field, or an empty one.

    Examples
    --------
    >>> field_state({"field_registries": {"X": {"state_registry": {"n_vars": 2}}}}, "X")
    {'n_vars': 2}
    """
    fields = as_registry(registry)["field_registries"]
    return (fields[key]["state_registry"] or None) if key in fields else None


def with_state(registry: Registry, key: str, state: Mapping[str, Any], n_categories: int) -> Registry:
    """A registry in which one field has another state.

    Parameters
    ----------
    registry
        The registry, which is not changed.
    key
        Name of the field.
    state
        Its new state.
    n_categories
        Number of its categories, the field's summary statistic.

    Returns
    -------
    The registry with the new state; the states of the other fields are shared.

    Examples
    --------
    >>> registry = {"field_registries": {"text": {"state_registry": {"n": 1}, "summary_stats": {"n_text": 1}}}}
    >>> field_state(with_state(registry, "text", {"n": 2}, 2), "text"), field_state(registry, "text")
    ({'n': 2}, {'n': 1})
    """
    fields = registry["field_registries"]
    field = {**fields[key], "state_registry": dict(state), "summary_stats": {f"n_{key}": n_categories}}
    return {**registry, "field_registries": {**fields, key: field}}


def required_state(registry: Registry | AnnDataManager, key: str) -> Mapping[str, Any]:
    """The state of a field that is registered.

    Parameters
    ----------
    registry
        A registry, or the manager that holds it.
    key
        Name of the field.

    Returns
    -------
    Its state.

    Raises
    ------
    KeyError
        If there is no such field.

    Examples
    --------
    >>> required_state({"field_registries": {"X": {"state_registry": {"n_vars": 2}}}}, "X")
    {'n_vars': 2}
    """
    state = field_state(registry, key)
    if state is None:
        raise KeyError(f"no field {key!r} is registered")
    return state
