"""Access to registries of scvi-tools, and encoding of requests by registered states."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scvi.data import AnnDataManager

from scdiffgen._messages import listed, unknown_name
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen._text import embed_texts
from scdiffgen.conditions import N_CELLS, Code, Conditions, ConditionSpec, conditions_from_batch, group_by_row
from scdiffgen.data._columns_field import ColumnsField, typed_as_registered
from scdiffgen.data._counts import counts_key_of
from scdiffgen.data._covariate_fields import (
    CategoricalCovariatesField,
    ContinuousCovariatesField,
    StrictCategoricalObsField,
    TextField,
)
from scdiffgen.data._hierarchy_field import HierarchyField
from scdiffgen.data._perturbation_field import PerturbationField, extended_perturbations
from scdiffgen.data._perturbation_input import feature_table, syntax_of

Registry = Mapping[str, Any]

FIELDS: dict[str, type[ColumnsField]] = {
    REGISTRY_KEYS.LABELS: StrictCategoricalObsField,
    REGISTRY_KEYS.HIERARCHY: HierarchyField,
    REGISTRY_KEYS.CATEGORICAL_COVARIATES: CategoricalCovariatesField,
    REGISTRY_KEYS.CONTINUOUS_COVARIATES: ContinuousCovariatesField,
    REGISTRY_KEYS.TEXT: TextField,
    REGISTRY_KEYS.BATCH: StrictCategoricalObsField,
    REGISTRY_KEYS.PERTURBATION: PerturbationField,
}


def as_registry(registry: Registry | AnnDataManager) -> Registry:
    """Return a registry, given itself or its manager."""
    return registry if isinstance(registry, Mapping) else registry.registry


def field_state(registry: Registry | AnnDataManager, key: str) -> Mapping[str, Any] | None:
    """Return the state of a field; ``None`` if the field is missing or empty."""
    fields = as_registry(registry)["field_registries"]
    return (fields[key]["state_registry"] or None) if key in fields else None


def required_state(registry: Registry | AnnDataManager, key: str) -> Mapping[str, Any]:
    """Return the state of a registered field."""
    return as_registry(registry)["field_registries"][key]["state_registry"]


def with_state(registry: Registry, key: str, state: Mapping[str, Any], n_categories: int) -> Registry:
    """Copy a registry with another state of one field and its number of categories."""
    fields = registry["field_registries"]
    field = {**fields[key], "state_registry": dict(state), "summary_stats": {f"n_{key}": n_categories}}
    return {**registry, "field_registries": {**fields, key: field}}


def modality_names(registry: Registry | AnnDataManager) -> list[str]:
    """Return the registered modalities in order; empty for an AnnData."""
    registry = as_registry(registry)
    if registry.get("setup_method_name") != "setup_mudata":
        return []
    return list(registry["setup_args"]["modalities"])


def counts_keys(registry: Registry | AnnDataManager) -> dict[str, int]:
    """Map registry keys of counts (one per modality) to numbers of genes."""
    keys = list(counts_key_of(modality_names(registry)).values()) or [REGISTRY_KEYS.X]
    return {key: int(required_state(registry, key)["n_vars"]) for key in keys}


def feature_names(registry: Registry | AnnDataManager) -> dict[str, np.ndarray]:
    """Return names of the features of each modality."""
    keys = counts_key_of(modality_names(registry))
    return {name: np.asarray(required_state(registry, key)["column_names"]) for name, key in keys.items()}


def condition_specs(registry: Registry | AnnDataManager) -> list[ConditionSpec]:
    """Describe the registered conditions to the networks."""
    states = {key: field_state(registry, key) for key in FIELDS}
    return [spec for key, state in states.items() if state is not None for spec in FIELDS[key].specs(key, state)]


def condition_columns(registry: Registry | AnnDataManager, spec: ConditionSpec) -> list[str]:
    """Return the columns of a requested table that give a condition."""
    return FIELDS[spec.registry_key].request_columns(spec.name, required_state(registry, spec.registry_key))


def categories_of_condition(registry: Registry | AnnDataManager, spec: ConditionSpec) -> np.ndarray:
    """Return the categories of a condition of kind ``"category"`` in the order of their ids."""
    field = FIELDS[spec.registry_key]
    assert issubclass(field, CategoricalCovariatesField)
    return field.categories(required_state(registry, spec.registry_key))[spec.name]


def registered_conditions(
    manager: AnnDataManager, indices: Sequence[int] | np.ndarray | None = None
) -> Conditions[np.ndarray]:
    """Return conditions of registered cells, by default all."""
    specs = condition_specs(manager)
    cells = slice(None) if indices is None else np.asarray(indices)
    codes = {key: np.asarray(manager.get_from_registry(key))[cells] for key in _keys(specs)}
    return conditions_from_batch(codes, specs)


def encode_conditions(registry: Registry | AnnDataManager, table: pd.DataFrame) -> Conditions[np.ndarray]:
    """Encode a request, one row per group of cells; absent columns, NaN and ``None`` are missing."""
    specs = condition_specs(registry)
    known = list(dict.fromkeys(column for spec in specs for column in condition_columns(registry, spec)))
    for column in table.columns:
        if column not in known and column != N_CELLS:
            way_out = f" Pass numbers of cells in a column {N_CELLS!r}." if column == "count" else ""
            raise ValueError(unknown_name("registered condition", column, known) + way_out)
    codes = {key: FIELDS[key].code_request(table, required_state(registry, key)) for key in _keys(specs)}
    return Conditions(conditions_from_batch(codes, specs), len(table))


def write_conditions(registry: Registry | AnnDataManager, table: pd.DataFrame) -> pd.DataFrame:
    """Convert a requested table to the form that registration reads from ``.obs``."""
    for key in _keys(condition_specs(registry)):
        state = required_state(registry, key)
        table = typed_as_registered(FIELDS[key].as_registered(table, state), state)
    return table


def count_matching(
    specs: Sequence[ConditionSpec], requested: Conditions[np.ndarray], trained: Conditions[np.ndarray]
) -> np.ndarray:
    """Count training cells with all requested categories of each row ``(rows,)``; numbers and doses are ignored."""
    compared = [spec for spec in specs if not spec.is_number]
    if not compared:
        return np.full(requested.n_cells, trained.n_cells)
    rows = group_codes(compared, requested, trained, open_ended=True).to_numpy()
    codes = group_codes(compared, trained, requested)
    n_cells = codes.groupby(list(codes), sort=False).size()  # hashing is faster than sorting a million rows (3 s)
    groups, n_matching = codes[~codes.duplicated()].to_numpy(), np.zeros(len(rows), dtype=np.int64)
    for is_open, same in group_by_row(rows == Code.MISSING):
        counts: Counter[tuple] = Counter()
        for group, n in zip(groups[:, ~is_open].tolist(), n_cells.tolist(), strict=True):
            counts[tuple(group)] += n
        n_matching[same] = [counts[tuple(row)] for row in rows[same][:, ~is_open].tolist()]
    return n_matching


def add_perturbations(registry: Registry, vectors: Mapping[str, Any] | pd.DataFrame) -> Registry:
    """Extend a registry by perturbations with feature vectors."""
    state = field_state(registry, REGISTRY_KEYS.PERTURBATION)
    if state is None or state["features"] is None:
        raise ValueError(
            "No feature vectors of perturbations are registered: pass `perturbation_key` and "
            "`perturbation_features_key` to `setup_anndata`."
        )
    table = feature_table(vectors, "`vectors`", syntax_of(state))
    known = [name for name in table.index if name in set(state["names"])]
    if known:
        raise ValueError(f"`vectors`: {listed(known)} are already registered. Leave them out.")
    extended = extended_perturbations(state, list(table.index), table.to_numpy(dtype=np.float32), "`vectors`")
    return with_state(registry, REGISTRY_KEYS.PERTURBATION, extended, len(extended["names"]))


def add_texts(registry: Registry, texts: Sequence[str]) -> Registry:
    """Extend a registry by text descriptions, which are embedded."""
    state = field_state(registry, REGISTRY_KEYS.TEXT)
    if state is None:
        raise ValueError("No descriptions are registered: pass `text_key` to `setup_anndata`.")
    categories = np.array([*state["categorical_mapping"], *texts], dtype=object)
    features = np.concatenate([state["features"], embed_texts(texts)])
    extended = {**state, "categorical_mapping": categories, "features": features}
    return with_state(registry, REGISTRY_KEYS.TEXT, extended, len(categories))


def unseen_texts(registry: Registry, table: pd.DataFrame) -> list[str]:
    """Return distinct unregistered descriptions of a request; empty if no descriptions are registered."""
    state = field_state(registry, REGISTRY_KEYS.TEXT)
    if state is None or state.get("original_key") not in table:
        return []
    requested = dict.fromkeys(entry for entry in table[state["original_key"]] if isinstance(entry, str))
    return [text for text in requested if text not in set(state["categorical_mapping"])]


def _keys(specs: Sequence[ConditionSpec]) -> list[str]:
    return list(dict.fromkeys(spec.registry_key for spec in specs))


def group_codes(
    specs: Sequence[ConditionSpec],
    conditions: Conditions[np.ndarray],
    others: Conditions[np.ndarray] | None = None,
    *,
    open_ended: bool = False,
) -> pd.DataFrame:
    """Return codes to group cells by, with sets in descending order and at least the slots of ``others``."""
    columns = []
    for spec in specs:
        n_slots = max(cells[spec.name].ids.shape[1] for cells in (conditions, others or conditions))
        widened = conditions.replace({spec.name: conditions[spec.name].widened(n_slots)})
        codes = widened.codes([spec], open_ended=open_ended)
        columns.append(codes if spec.is_path else -np.sort(-codes, axis=1))
    return pd.DataFrame(np.hstack(columns))
