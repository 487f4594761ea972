"""Checks of registries for models without cells, and conversion of registries of scvi-tools' data modules."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from scvi.model.base import BaseModelClass

from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.data._registered import FIELDS, Registry, with_state

WAY_OUT = (
    "Pass `model.registry` of a model whose cells were registered by `setup_anndata`, "
    "`TokenDiffusion.load_registry(path)` of a saved one, or the `registry` of a data module of scvi-tools."
)


def read_registry(registry: Any, cls: type[BaseModelClass]) -> dict[str, Any]:
    """Return a registry, converted to that of ``cls.setup_anndata`` if a data module of scvi-tools wrote it."""
    fields = registry.get("field_registries", {}) if isinstance(registry, Mapping) else {}
    counts = fields.get(REGISTRY_KEYS.X, {}).get("state_registry", {})
    missing = [name for name in ("n_vars", "column_names") if name not in counts]
    if missing:
        what = f"lacks {missing[0]!r} of the counts" if isinstance(registry, Mapping) else f"is a {type(registry)}"
        raise ValueError(f"`registry` {what}. {WAY_OUT}")
    if registry.get("setup_method_name") != "setup_datamodule":
        return dict(registry)
    known = inspect.signature(cls.setup_anndata).parameters
    setup = {name: value for name, value in registry["setup_args"].items() if name in known}
    counts = {**counts, "column_names": np.asarray(counts["column_names"])}
    kept = {REGISTRY_KEYS.X: {**fields[REGISTRY_KEYS.X], "state_registry": counts}}
    keys = {REGISTRY_KEYS.BATCH: "batch_key", REGISTRY_KEYS.LABELS: "labels_key"}
    unused = [key for key, argument in keys.items() if registry["setup_args"].get(argument, "") is None]
    states = {key: _state(key, fields[key]["state_registry"]) for key in FIELDS if key in fields and key not in unused}
    kept |= {key: fields[key] for key, state in states.items() if state}
    ours: Registry = {
        **registry,
        "model_name": cls.__name__,
        "setup_method_name": "setup_anndata",
        "setup_args": setup,
        "field_registries": kept,
    }
    for key, state in states.items():
        if state:
            ours = with_state(ours, key, state, len(state[FIELDS[key].counted]))
    setup |= {argument: states[key]["original_key"] if states.get(key) else None for key, argument in keys.items()}
    return dict(ours)


def _state(key: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the state of a field to our format; empty if nothing was registered."""
    if "categorical_mapping" in state:
        categories = state["categorical_mapping"]
        if state.get("original_key") is None or categories is None:
            return {}
        return {"original_key": state["original_key"], "categorical_mapping": _categories(categories)}
    if "field_keys" in state:
        mappings = state.get("mappings", state.get("mapping", {}))
        names = list(state["field_keys"])
        columns = list(mappings.values() if isinstance(mappings, Mapping) else mappings)
        if len(columns) != len(names):
            raise ValueError(f"`registry`: {key!r} names {len(names)} columns, but has categories of {len(columns)}.")
        categories = [_categories(column) for column in columns]
        return {"field_keys": names, "mappings": categories, "n_cats_per_key": [len(column) for column in categories]}
    n = len(state.get("columns", ()))  # columns of numbers, which data modules do not standardise
    return {**state, "means": [0.0] * n, "scales": [1.0] * n} if n and "means" not in state else dict(state)


def _categories(written: Any) -> np.ndarray:
    """Return categories in the order of their codes; data modules may write a mapping to codes."""
    ordered = sorted(written, key=written.__getitem__) if isinstance(written, Mapping) else list(written)
    return np.asarray(ordered)
