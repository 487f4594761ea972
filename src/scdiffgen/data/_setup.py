"""Setup of cells: arguments of ``setup_anndata`` and ``setup_mudata``, fields, manager, warnings of small groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scipy import sparse
from scvi.data import AnnDataManager
from scvi.data.fields import BaseAnnDataField

from scdiffgen._messages import LONGEST_LIST, counted, did_you_mean, listed, raise_if_not_unique, warn_user
from scdiffgen._names import remember_symbols
from scdiffgen._perturbation_syntax import PerturbationSyntax
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ADDED, N_CELLS, ConditionSpec
from scdiffgen.data._counts import CountsField, blocks, each_once, row_totals
from scdiffgen.data._fields import (
    CategoricalCovariatesField,
    ColumnsField,
    ContinuousCovariatesField,
    HierarchyField,
    StrictCategoricalObsField,
    TextField,
)
from scdiffgen.data._perturbations import DOSE, PerturbationField
from scdiffgen.data._registered import (
    Registry,
    categories_of_condition,
    condition_columns,
    condition_specs,
    counts_keys,
    field_state,
    group_codes,
    modality_names,
    registered_conditions,
    required_state,
)

PREFIX = "_scvi_"  # prefix of columns and matrices that registration writes


@dataclass(frozen=True)
class SetupArguments:
    """Arguments of ``setup_anndata``; see its documentation."""

    layer: str | None = None
    labels_key: str | None = None
    batch_key: str | None = None
    perturbation_key: str | Sequence[str] | None = None
    control: str | Sequence[str] = "control"
    perturbation_sep: str = "+"
    dose_key: str | Sequence[str] | None = None
    dose_unit: str | None = None
    hierarchy_keys: Sequence[str] | None = None
    categorical_covariate_keys: Sequence[str] | None = None
    continuous_covariate_keys: Sequence[str] | None = None
    text_key: str | None = None
    perturbation_features_key: str | None = None
    gene_symbols: str | None = None

    def fields(self) -> list[BaseAnnDataField]:
        return [CountsField(REGISTRY_KEYS.X, self.layer), *self.condition_fields()]

    def condition_fields(self) -> list[ColumnsField]:
        """Create the fields of conditions; labels and batch always, with one category if no column is named."""
        for argument in ("layer", "labels_key", "batch_key", "text_key", "gene_symbols"):
            name = getattr(self, argument)
            if name is not None and not isinstance(name, str):
                raise TypeError(f"`{argument}` is {name!r}: pass one name as text.")
        hierarchy = _names(self.hierarchy_keys, "hierarchy_keys")
        categorical = _names(self.categorical_covariate_keys, "categorical_covariate_keys")
        continuous = _names(self.continuous_covariate_keys, "continuous_covariate_keys")
        perturbation = _names(self.perturbation_key, "perturbation_key", may_be_one=True)
        doses = _names(self.dose_key, "dose_key", may_be_one=True)
        self._raise_if_incomplete(perturbation, doses)
        single = [key for key in (self.labels_key, self.batch_key, self.text_key) if key is not None]
        reserved = [N_CELLS, *ADDED]
        optional = {"hierarchy": hierarchy, "perturbation": perturbation[1:], DOSE: doses and DOSE not in doses}
        reserved += [name for name, is_reserved in optional.items() if is_reserved]
        columns = [*single, *hierarchy, *categorical, *continuous, *perturbation, *doses]
        ours = [column for column in columns if column.startswith(PREFIX)]
        if ours:
            raise ValueError(f"{listed(ours)}: names with {PREFIX!r} are reserved for codes. Rename the column.")
        if repeated := [name for name, n in Counter([*columns, *reserved]).items() if n > 1]:
            raise ValueError(
                f"{listed(repeated)} would name more than one condition. Pass each column once, and rename columns "
                f"called {listed(reserved)}."
            )
        fields: list[ColumnsField] = [
            StrictCategoricalObsField(REGISTRY_KEYS.LABELS, self.labels_key, argument="labels_key"),
            StrictCategoricalObsField(REGISTRY_KEYS.BATCH, self.batch_key, argument="batch_key"),
            HierarchyField(REGISTRY_KEYS.HIERARCHY, hierarchy),
            CategoricalCovariatesField(REGISTRY_KEYS.CATEGORICAL_COVARIATES, categorical),
            ContinuousCovariatesField(REGISTRY_KEYS.CONTINUOUS_COVARIATES, continuous),
        ]
        if self.text_key is not None:
            fields.append(TextField(REGISTRY_KEYS.TEXT, self.text_key, argument="text_key"))
        if perturbation:
            syntax = PerturbationSyntax(tuple(_names(self.control, "control", may_be_one=True)), self.perturbation_sep)
            how = {"dose_unit": self.dose_unit, "features_key": self.perturbation_features_key}
            fields.append(PerturbationField(REGISTRY_KEYS.PERTURBATION, perturbation, syntax, doses, **how))
        return [field for field in fields if field.columns]

    def _raise_if_incomplete(self, perturbation: list[str], doses: list[str]) -> None:
        features_key = self.perturbation_features_key
        for argument, value in (("dose_key", doses), ("perturbation_features_key", features_key)):
            if value and not perturbation:
                raise ValueError(f"`{argument}={value!r}` needs `perturbation_key`: pass the column of perturbations.")
        if self.dose_unit is not None and not doses:
            raise ValueError(f"`dose_unit={self.dose_unit!r}` needs `dose_key`: pass the column of doses.")
        if doses and len(doses) != len(perturbation):
            n_columns = counted(len(doses), "column")
            raise ValueError(
                f"`dose_key` names {n_columns} ({listed(doses)}), `perturbation_key` {len(perturbation)} "
                f"({listed(perturbation)}). Pass one column of doses per column of perturbations."
            )


def codes_of(registry: Registry, obs: pd.DataFrame) -> dict[str, np.ndarray]:
    """Encode the conditions with columns in a table of cells: codes ``(cells, columns)`` by registry key."""
    known = {field.name for field in fields(SetupArguments)}
    setup = SetupArguments(**{name: value for name, value in registry["setup_args"].items() if name in known})
    cells: Any = SimpleNamespace(obs=obs, obs_names=obs.index, uns={})
    keys, codes = {spec.registry_key for spec in condition_specs(registry)}, {}
    for field in setup.condition_fields():
        key, columns = field.registry_key, {*field.columns, *getattr(field, "dose_columns", ())}
        if key in keys and columns <= set(obs):
            codes[key] = field.code(field.read(cells), required_state(registry, key), extend=False)[0]
    return codes


def check_modalities(
    mdata: MuData, modalities: Sequence[str] | None, layers: Mapping[str, str | None] | None, *, transfer: bool
) -> list[str]:
    """Return modalities to register, by default all; cells of a ``transfer`` may lack some."""
    if isinstance(modalities, str):
        raise TypeError(f"`modalities={modalities!r}` must be a list: write `modalities=[{modalities!r}]`.")
    if not (layers is None or isinstance(layers, Mapping)):
        raise TypeError(f"`layers` is {layers!r}: pass a layer for each modality that has one, {{'rna': 'counts'}}.")
    names = list(mdata.mod) if modalities is None else list(modalities)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"`modalities` is {names}: name each modality once, of {listed(mdata.mod)}.")
    missing = [name for name in names if name not in mdata.mod]
    if len(missing) == len(names) or (missing and not transfer):
        raise ValueError(
            f"`modalities` names {missing[0]!r}, but `mdata.mod` has {listed(mdata.mod) or 'none'}."
            f"{did_you_mean(missing[0], mdata.mod)}"
        )
    unknown = [name for name in layers or {} if name not in names]
    if unknown:
        raise ValueError(f"`layers` names {unknown[0]!r}, which is none of the modalities ({listed(names)}).")
    if mdata.axis != 0:
        raise ValueError(f"`mdata.axis` is {mdata.axis}: pass a MuData whose modalities share cells, `axis=0`.")
    raise_if_not_unique(mdata.obs_names, "`mdata.obs_names`", "Rename these cells.")
    return names


def _names(keys: str | Sequence[str] | None, argument: str, *, may_be_one: bool = False) -> list[str]:
    """Return names of columns or controls; a string is one name if ``may_be_one``."""
    if isinstance(keys, str) and not may_be_one:
        raise TypeError(f"`{argument}={keys!r}` must be a list of columns: write `{argument}=[{keys!r}]`.")
    if keys is None or isinstance(keys, str):
        return [] if keys is None else [keys]
    names = list(keys) if isinstance(keys, Iterable) else [keys]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`{argument}` is {keys!r}: {name!r} is no name. Pass names as text.")
    return names


class Manager(AnnDataManager):
    """AnnData manager that leaves data unchanged if a field raises, and keeps the setup method in transfers.

    It refers to the data weakly, because scvi-tools keeps all managers, and would keep all data in memory.
    """

    _data: ref[AnnData | MuData] | None = None

    @property
    def adata(self) -> Any:
        """Registered data, which a model or the caller keeps; ``None`` if nobody does."""
        return None if self._data is None else self._data()

    @adata.setter
    def adata(self, data: AnnData | MuData | None) -> None:
        self._data = None if data is None else ref(data)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_data": self.adata}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.adata = state["_data"]

    def register_fields(
        self, adata: AnnData | MuData, source_registry: dict[str, Any] | None = None, **transfer_kwargs: Any
    ) -> None:
        """Register all fields, or none if one raises or a cell has no molecule of any modality."""
        for name in transfer_kwargs:
            if name not in ("allow_missing_labels", "extend_categories"):
                known = self._registry.get("setup_args", {})
                setup = self._registry.get("setup_method_name", "setup_anndata")
                raise TypeError(f"`{setup}` has no argument {name!r}.{did_you_mean(name, known)}")
        if "_scvi_uuid" not in adata.uns:
            _raise_if_not_codes(adata, [field.attr_key for field in self.fields if isinstance(field, ColumnsField)])
        symbols = (self._registry.get("setup_args") or {}).get("gene_symbols")
        remember_symbols(adata, symbols, required=source_registry is None)
        with unchanged_on_error(adata):
            super().register_fields(adata, source_registry, **transfer_kwargs)
            if modality_names(self):
                self._raise_if_cells_are_empty()
        if source_registry is None:
            warn_of_small_groups(self)
            warn_of_screen_design(self)

    def validate(self) -> None:
        """Register the cells again if another model encoded them later; raise if their conditions changed."""
        super().validate()
        for field in self.fields:
            if isinstance(field, ColumnsField):
                field.raise_if_changed(self.adata, required_state(self, field.registry_key))

    def transfer_fields(self, adata_target: AnnData | MuData, **kwargs: Any) -> Manager:
        """Register other cells by the same fields; cells without layers, such as generated cells, use ``.X``."""
        reading = copy(self)
        reading.fields = [
            field.where_counts_are(adata_target) if isinstance(field, CountsField) else field for field in self.fields
        ]
        return super(Manager, reading).transfer_fields(adata_target, **kwargs)

    def with_registry(self, registry: Registry) -> Manager:
        """Copy the manager with an extended registry, in which known codes are unchanged."""
        extended = copy(self)
        extended._registry = registry
        extended._source_registry = deepcopy(registry)  # encodes the cells if they are registered again
        return extended

    def get_from_registry(self, registry_key: str) -> Any:
        """Return registered data, one row per cell, also if a modality lacks cells or has another order."""
        modality = self.data_registry[registry_key].get("mod_key")
        if modality is None:
            data = super().get_from_registry(registry_key)
            return each_once(data) if getattr(data, "format", "") == "csr" and sparse.issparse(data) else data
        cells = self.adata.obs_names
        if modality not in self.adata.mod or not self.adata.mod[modality].n_obs:
            return sparse.csr_matrix((len(cells), counts_keys(self)[registry_key]), dtype=np.float32)
        rows = self.adata.mod[modality].obs_names.get_indexer(cells)  # -1 for cells without the modality
        counts = super().get_from_registry(registry_key)
        in_order = np.array_equal(rows, np.arange(counts.shape[0]))
        in_memory = isinstance(counts, np.ndarray | sparse.csr_matrix)
        if not in_memory and not (in_order and len(counts_keys(self)) == 1):
            raise ValueError(
                f"The counts of modality {modality!r} are on disk, which needs one modality with all cells: read them "
                "into memory, `mudata.read_h5mu(path)`."
            )
        counts = each_once(counts) if sparse.issparse(counts) else counts
        return counts if in_order else _with_empty_rows(sparse.csr_matrix(counts), rows)

    def _get_setup_method_args(self) -> dict[str, Any]:
        kept = ("model_name", "setup_method_name", "setup_args")
        return {key: self._registry[key] for key in kept if key in self._registry}

    def _raise_if_cells_are_empty(self) -> None:
        total = np.zeros(self.adata.n_obs)
        for key in counts_keys(self):
            for row, _, block in blocks(self.get_from_registry(key)):
                total[row : row + block.shape[0]] += row_totals(block)
        empty = self.adata.obs_names[total == 0]
        if len(empty):
            raise ValueError(
                f"{counted(len(empty), 'cell')} without a molecule of any modality "
                f"({listed(modality_names(self))}): {listed(empty)}. Remove these cells, "
                "`mdata = mdata[cells_with_molecules].copy()`."
            )


def _raise_if_not_codes(data: AnnData | MuData, keys: Iterable[str]) -> None:
    """Raise if codes would overwrite annotation of unregistered cells."""
    for name in ("obs", "obsm"):
        annotation = getattr(data, name)
        for key in keys:
            if key in annotation and np.asarray(annotation[key]).dtype.kind not in "iuf":
                raise ValueError(
                    f"`adata.{name}[{key!r}]` would be overwritten by the codes of the registered cells. Rename it."
                )


def forget_copied_setup(adata: AnnData | MuData, managers: Mapping[str, AnnDataManager]) -> None:
    """Drop the identifier of a copy of registered data; otherwise registering the copy invalidates the original."""
    manager = managers.get(adata.uns.get("_scvi_uuid"))
    if manager is not None and manager.adata is not adata:
        del adata.uns["_scvi_uuid"]


@contextmanager
def unchanged_on_error(data: AnnData | MuData) -> Iterator[None]:
    """Restore codes with scvi-tools' prefix and count matrices if the block raises."""
    parts = [data, *data.mod.values()] if isinstance(data, MuData) else [data]
    before = [(part, _written(part)) for part in parts if not part.is_view]  # views are refused before writing
    try:
        yield
    except Exception:
        for part, kept in before:
            for slot, key in _written(part).keys() - kept.keys():
                del getattr(part, slot)[key]
            for (slot, key), values in kept.items():
                if slot == "X":
                    part.X = values
                else:
                    getattr(part, slot)[key] = values
        raise


def _written(data: AnnData | MuData) -> dict[tuple[str, str], Any]:
    """Return what registration replaces, but does not modify, by slot and key: codes and matrices in memory."""
    codes = {(slot, key): getattr(data, slot)[key] for slot in ("obs", "obsm") for key in getattr(data, slot)}
    written = {place: values for place, values in codes.items() if str(place[1]).startswith(PREFIX)}
    if isinstance(data, AnnData):
        written |= {("layers", key): matrix for key, matrix in data.layers.items() if key is not None}
        written |= {} if data.isbacked else {("X", ""): data.X}
    return written


def _with_empty_rows(counts: sparse.csr_matrix, rows: np.ndarray) -> sparse.csr_matrix:
    """Reorder the rows of a matrix, with empty rows for -1; values are shared if the order is unchanged."""
    present = rows >= 0
    if not np.array_equal(rows[present], np.arange(counts.shape[0])):
        counts = counts[rows[present]]
    n_stored = np.zeros(len(rows), dtype=counts.indptr.dtype)
    n_stored[present] = np.diff(counts.indptr)
    indptr = np.concatenate([np.zeros(1, dtype=n_stored.dtype), n_stored.cumsum(dtype=n_stored.dtype)])
    return sparse.csr_matrix((counts.data, counts.indices, indptr), shape=(len(rows), counts.shape[1]))


FEWEST_CELLS = 20  # minimum number of cells of a group, also for pseudobulks
NOT_GROUPED = (REGISTRY_KEYS.BATCH, REGISTRY_KEYS.TEXT)


def warn_of_small_groups(manager: AnnDataManager) -> None:
    """Warn once of small groups of registered cells (labels, hierarchy, covariates and treatments)."""
    specs = [spec for spec in condition_specs(manager) if not spec.is_number and spec.registry_key not in NOT_GROUPED]
    if not specs:
        return
    codes, obs = group_codes(specs, registered_conditions(manager)), manager.adata.obs
    n_cells = codes.groupby(list(codes), sort=False).size().to_numpy()
    small = np.flatnonzero(n_cells < FEWEST_CELLS)
    if not len(small):
        return
    small = small[np.argsort(n_cells[small], kind="stable")]
    first = np.flatnonzero(~codes.duplicated())[small]
    warn_user(
        f"{counted(len(small), 'group')} of fewer than {FEWEST_CELLS} cells: "
        f"{in_words(obs.iloc[first][_compared(manager, obs)], n_cells[small])}. Little can be learned from so few, and "
        "labels with fewer than 5 cells are generated like similar labels: merge groups, or check generated cells."
    )


def warn_of_screen_design(manager: AnnDataManager) -> None:
    """Warn once per condition whose categories or numbers separate the cells of a treatment from control cells."""
    specs = condition_specs(manager)
    perturbation = next((spec for spec in specs if spec.is_intervention), None)
    if perturbation is None:
        return
    known = registered_conditions(manager)
    codes = group_codes([perturbation], known)
    treatments = codes[~codes.duplicated()].to_numpy()
    treatment = codes.groupby(list(codes), sort=False).ngroup().to_numpy()  # (cells,)
    names, separator = (required_state(manager, perturbation.registry_key)[key] for key in ("names", "separator"))
    is_control, warned = (treatments < 0).all(axis=1), set()
    for spec, column, level, categories in _columns_of_categories(manager, specs):
        condition = known[spec.name]
        has_category = condition.mask[:, level]  # paths may end above the level
        has_cells = np.zeros((len(treatments), len(categories)), dtype=bool)
        has_cells[treatment[has_category], condition.ids[has_category, level]] = True
        has_controls = has_cells[is_control].any(axis=0)
        confounded = ~is_control & has_cells.any(axis=1) & ~(has_cells & has_controls).any(axis=1)
        if spec.name in warned or not has_controls.any() or not confounded.any():
            continue
        warned.add(spec.name)
        named = listed(sorted(separator.join(sorted(names[row[row >= 0]])) for row in treatments[confounded]))
        what, effect = repr(column), f"effect of {column!r}"
        way_out = "Add control cells of the same categories, if there are any; leaving out the column does not help."
        if spec.registry_key == REGISTRY_KEYS.BATCH:
            what, effect = "batch", "batch effect"
            way_out = "Register another column as batch only if its batches hold both treated and control cells."
        warn_user(
            f"Treatment and {what} are confounded: no {column!r} holds both control cells and cells of {named}. "
            f"Treated cells are in {listed(categories[has_cells[confounded].any(axis=0)])}, control cells in "
            f"{listed(categories[has_controls])}. The {effect} cannot be separated from the response, so predictions "
            f"contain both. {way_out}"
        )
    for spec in (spec for spec in specs if spec.is_number and is_control.any()):
        number = known[spec.name]
        values = pd.Series(np.where(number.given & number.mask[:, 0], number.values[:, 0], np.nan))
        low, high = (values.groupby(treatment).agg(edge).to_numpy() for edge in ("min", "max"))
        first, last = low[is_control].min(), high[is_control].max()
        confounded = ~is_control & ((low > last) | (high < first))  # False for missing values
        if confounded.any():
            named = listed(sorted(separator.join(sorted(names[row[row >= 0]])) for row in treatments[confounded]))
            warn_user(
                f"Treatment and {spec.name!r} are confounded: {spec.name!r} is {low[confounded].min():g} to "
                f"{high[confounded].max():g} in cells of {named}, and {first:g} to {last:g} in control cells. The "
                f"effect of {spec.name!r} cannot be separated from the response, so predictions contain both. Add "
                "control cells of the same values, if there are any; leaving out the column does not help."
            )


def _columns_of_categories(
    manager: AnnDataManager, specs: Sequence[ConditionSpec]
) -> Iterator[tuple[ConditionSpec, str, int, np.ndarray]]:
    """Yield batch, covariates and hierarchy levels: condition, column, slot and categories in the order of ids."""
    for spec in specs:
        if spec.is_path:
            columns, nodes = (required_state(manager, spec.registry_key)[key] for key in ("columns", "nodes"))
            paths = np.array([" > ".join(map(str, node)) for node in nodes], dtype=object)
            yield from ((spec, column, level, paths) for level, column in enumerate(columns))
        elif spec.registry_key in (REGISTRY_KEYS.BATCH, REGISTRY_KEYS.CATEGORICAL_COVARIATES):
            yield spec, spec.name, 0, categories_of_condition(manager, spec)


def warn_of_few_cells(table: pd.DataFrame, n_cells: np.ndarray, registry: Registry) -> None:
    """Warn once of requested groups with few training cells, but at least one (``n_cells`` over all batches)."""
    groups = table[_compared(registry, table)]
    if groups.empty:
        return
    few = np.flatnonzero((n_cells > 0) & (n_cells < FEWEST_CELLS) & ~groups.duplicated())
    if len(few):
        few = few[np.argsort(n_cells[few], kind="stable")]
        warn_user(
            f"Cells are generated of {counted(len(few), 'group')} of fewer than {FEWEST_CELLS} training cells: "
            f"{in_words(groups.iloc[few], n_cells[few])}. They may resemble cells of other groups."
        )


def _compared(registry: Registry | AnnDataManager, table: pd.DataFrame) -> list[str]:
    """Select columns that define groups: no numbers, doses, batches or descriptions."""
    doses = [DOSE, *(field_state(registry, REGISTRY_KEYS.PERTURBATION) or {}).get("dose_columns", [])]
    specs = [spec for spec in condition_specs(registry) if not spec.is_number and spec.registry_key not in NOT_GROUPED]
    columns = dict.fromkeys(column for spec in specs for column in condition_columns(registry, spec))
    return [column for column in columns if column in table and column not in doses]


def in_words(table: pd.DataFrame, n_cells: Sequence[int] | np.ndarray) -> str:
    """Describe at most ten groups by their values and numbers of cells."""
    rows = zip(table.head(LONGEST_LIST).to_dict("records"), n_cells, strict=False)
    shown = [
        f"{' with '.join(f'{name} {value!r}' for name, value in row.items() if pd.notna(value))} ({counted(n, 'cell')})"
        for row, n in rows
    ]
    return "; ".join(shown) + (f"; ... ({len(table)} in all)" if len(table) > LONGEST_LIST else "")
