"""Access to registries of scvi-tools, encoding of requests by registered states, and decoding to registered columns."""

import inspect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scvi.data import AnnDataManager
from scvi.model.base import BaseModelClass

from scdiffgen._messages import listed, unknown_name
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen._text import embed_texts
from scdiffgen.conditions import (
    N_CELLS,
    Code,
    Condition,
    Conditions,
    ConditionSpec,
    conditions_from_batch,
    group_by_row,
)
from scdiffgen.data._counts import counts_key_of
from scdiffgen.data._fields import (
    CategoricalCovariatesField,
    ColumnsField,
    ContinuousCovariatesField,
    HierarchyField,
    State,
    StrictCategoricalObsField,
    TextField,
    typed_as_registered,
)
from scdiffgen.data._perturbations import (
    DOSE,
    PerturbationField,
    extended_perturbations,
    feature_table,
    spelled,
    syntax_of,
)

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
WAY_OUT = (
    "Pass `model.registry` of a model whose cells were registered by `setup_anndata`, "
    "`TokenDiffusion.load_registry(path)` of a saved one, or the `registry` of a data module of scvi-tools."
)


def as_registry(registry: Registry | AnnDataManager) -> Registry:
    """Return a registry, given itself or its manager."""
    return registry if isinstance(registry, Mapping) else registry.registry


def field_state(registry: Registry | AnnDataManager, key: str) -> Mapping[str, Any] | None:
    """Return the state of a field; ``None`` if the field is missing or empty."""
    fields = as_registry(registry)["field_registries"]
    return (fields[key]["state_registry"] or None) if key in fields else None


def required_state(registry: Registry | AnnDataManager, key: str) -> Mapping[str, Any]:
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


def decode_conditions(
    registry: Registry | AnnDataManager, conditions: Conditions[np.ndarray], table: pd.DataFrame
) -> pd.DataFrame:
    """Decode conditions to the registered columns, one row per cell; NaN where missing, dose 0 for a control."""
    columns: dict[str, np.ndarray] = {}
    for spec in condition_specs(registry):
        state, nothing = required_state(registry, spec.registry_key), np.zeros((conditions.n_cells, spec.n_slots), int)
        missing = Condition(nothing, nothing, nothing.astype(bool), np.zeros(conditions.n_cells, bool))
        condition = conditions.get(spec.name, missing)
        present = condition.mask & condition.given[:, None]
        if spec.kind == "category":
            columns[spec.name] = _chosen(categories_of_condition(registry, spec), condition.ids[:, 0], present[:, 0])
        elif spec.kind == "number":
            columns[spec.name] = np.where(present[:, 0], _shortest(condition.values[:, 0]), np.nan)
        elif spec.is_path:
            names = np.array([node[-1] for node in state["nodes"]], dtype=object)
            for level, column in enumerate(state["columns"]):
                columns[column] = _chosen(names, condition.ids[:, level], present[:, level])
        else:
            by_name = len(state["columns"]) == 1 or spec.name in table
            doses = list(state["dose_columns"])
            doses = [DOSE] if len(doses) > 1 and DOSE in table and DOSE not in doses else doses
            columns |= _treatment_columns(condition, state, [spec.name] if by_name else list(state["columns"]), doses)
    return pd.DataFrame(columns, index=range(conditions.n_cells))


def _chosen(names: np.ndarray, ids: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Look up the names of ids; NaN if there is none."""
    entries = np.full(len(ids), np.nan, dtype=object)
    entries[present] = names.astype(object)[ids[present]]
    return entries


def _shortest(values: np.ndarray) -> np.ndarray:
    """Convert single-precision numbers to the shortest double, such as 0.1."""
    distinct, places = np.unique(values.astype(np.float32), return_inverse=True)
    return np.array([float(str(value)) for value in distinct])[places.ravel()]


def _treatment_columns(
    condition: Condition[np.ndarray], state: State, columns: list[str], dose_columns: list[str]
) -> dict[str, np.ndarray]:
    """Decode columns of perturbations and doses, in the registered spelling."""
    ids, doses, mask, given = condition
    rows = pd.DataFrame(np.hstack([np.where(mask, ids, -1), np.where(mask, doses, 0.0), given[:, None]]))
    which = rows.groupby(list(rows), sort=False, dropna=False).ngroup().to_numpy()
    first, names = np.unique(which, return_index=True)[1], [*columns, *dose_columns]
    entries = np.full((len(first), len(names)), np.nan, dtype=object)
    for row, cell in enumerate(first):
        if given[cell]:
            parts = zip(state["names"][ids[cell][mask[cell]]], _shortest(doses[cell][mask[cell]]), strict=True)
            treatment = dict(sorted(parts))
            unseen = [*treatment, *[math.nan] * len(columns)] if treatment else [state["control"][0]] * len(columns)
            entries[row] = spelled(treatment, unseen[: len(columns)], len(dose_columns), state)
    return dict(zip(names, entries[which].T, strict=True))


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
