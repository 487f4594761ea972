"""Summary of the training cells, saved with the model as plain arrays, to complete requests; panels."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen._arguments import LARGEST_LIBRARY
from scdiffgen._log_normalise import TARGET_SUM
from scdiffgen._messages import listed, warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.data import categories_of_condition, count_matching, feature_names, modality_names
from scdiffgen.imputation import CountRegression, LibraryRegression, ShareCalibration
from scdiffgen.library_size import JointLibrarySizes, LibrarySizeModel
from scdiffgen.module import DiffusionModule, HiddenMoments, TokenBasis, TokenGenes, token_basis, token_genes
from scdiffgen.responses import Pseudobulks

from ._cells import MOST_CELLS, SMALL_BATCH, Cells
from ._checks import LibrarySize, SizesOfCells, library_sizes
from ._modality_imputer import (
    REGRESSION_CELLS,
    CountRegressions,
    LibraryRegressions,
    ModalityImputer,
    ShareCalibrations,
)
from ._training_data import Batch, KeptCells, RegisteredData, StreamedData
from ._transferred_responses import ResponseModel, build_response_model, number_edges, pseudobulks, without_treatment

TrainingData = RegisteredData | StreamedData


@dataclass(frozen=True)
class TrainingSummary:
    """Library sizes, conditions, pseudobulks and token statistics of the training cells."""

    library: np.ndarray  # (cells,), or (cells, modalities)
    conditions: Conditions[np.ndarray]
    pseudobulks: Sequence[Pseudobulks | None]  # by modality; empty without interventions
    token_basis: TokenBasis
    token_genes: TokenGenes
    library_from_tokens: LibraryRegressions  # for models of several modalities
    reference_pseudobulks: Sequence[Pseudobulks | None] = ()  # pseudobulks of the reference of a query model
    deep_columns: CountRegressions = field(default_factory=dict)  # for models of several modalities
    shares: ShareCalibrations = field(default_factory=dict)  # for models of several modalities

    @property
    def imputer(self) -> ModalityImputer:
        return ModalityImputer(self.library_from_tokens, self.deep_columns, self.shares)

    def to_plain(self) -> dict[str, Any]:
        """Convert to arrays in dicts and tuples, for saving."""
        return {part.name: _plain(getattr(self, part.name)) for part in fields(self)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TrainingSummary:
        """Undo :meth:`to_plain`."""

        def bulks(name: str) -> tuple[Pseudobulks | None, ...]:
            return tuple(None if arrays is None else Pseudobulks(**arrays) for arrays in plain[name])

        def fits(name: str, kind: type) -> dict[tuple[str, ...], Any]:
            return {given: {to: kind(*fit) for to, fit in by.items()} for given, by in plain[name].items()}

        return cls(
            library=plain["library"],
            conditions=Conditions.from_plain(plain["conditions"], len(plain["library"])),
            pseudobulks=bulks("pseudobulks"),
            token_basis=TokenBasis._make(plain["token_basis"]),
            token_genes=TokenGenes._make(plain["token_genes"]),
            library_from_tokens=fits("library_from_tokens", LibraryRegression),
            reference_pseudobulks=bulks("reference_pseudobulks"),
            deep_columns=fits("deep_columns", CountRegression),
            shares=fits("shares", ShareCalibration),
        )


def check_summary(summary: TrainingSummary, specs: Sequence[ConditionSpec], n_modalities: int) -> None:
    """Raise if library sizes, conditions or pseudobulks are impossible."""
    sizes, n_cells = summary.library, len(summary.library)
    of_cell = () if n_modalities < 2 else (n_modalities,)
    has_molecules = (sizes if sizes.ndim == 1 else sizes.sum(axis=1)).all()
    in_range = sizes.min() >= 0 and sizes.max() <= LARGEST_LIBRARY  # False for NaN
    if sizes.shape != (n_cells, *of_cell) or not (in_range and has_molecules):
        raise ValueError(f"library sizes that are not between 1 and {LARGEST_LIBRARY:,}")
    for spec in specs:
        ids, values, mask, given = condition = summary.conditions[spec.name]
        n_slots, n_categories = ids.shape[1], max(spec.n_categories, 1)
        form = [(array.shape, array.dtype.kind) for array in condition]
        codes = ids[mask & given[:, None]]
        if (
            form != [*(((n_cells, n_slots), kind) for kind in "ifb"), ((n_cells,), "b")]
            or max(n_slots, spec.n_slots) > n_categories
            or ((codes < 0) | (codes >= n_categories)).any()
            or np.isinf(values).any()
        ):
            raise ValueError(f"values of the condition {spec.name!r} that are not registered")
    for bulks in filter(None, (*summary.pseudobulks, *summary.reference_pseudobulks)):
        tables = bulks.log_mean, bulks.log_variance, bulks.share
        if (
            any(table.shape != (len(bulks.n_cells), bulks.n_genes) for table in tables)
            or not all(np.isfinite(array).all() for name, array in bulks.to_plain().items() if name != "doses")
            or not (bulks.doses >= 0).all()
            or min(bulks.share.min(initial=0), bulks.n_cells.min(initial=1) - 1) < 0
            or max(np.abs(table).max(initial=0) for table in tables) > np.log1p(TARGET_SUM) ** 2
        ):
            raise ValueError("invalid pseudobulks")


def _plain(part: Any) -> Any:
    """Convert named tuples and objects with ``to_plain`` to dicts and tuples of arrays."""
    if hasattr(part, "to_plain"):
        return part.to_plain()
    if isinstance(part, Mapping):
        return {key: _plain(value) for key, value in part.items()}
    return tuple(map(_plain, part)) if isinstance(part, list | tuple) else part


def training_summary(model: BaseModelClass) -> TrainingSummary:
    """Return the summary of the training cells; read once from the saved arrays."""
    read_from, summary = getattr(model, "_summary", (None, None))
    if summary is None or read_from is not model.training_summary_:
        summary = TrainingSummary.from_plain(model.training_summary_)
        model._summary = model.training_summary_, summary
    return summary


def response_model(model: BaseModelClass) -> ResponseModel | None:
    """Return the response model of the training cells; None without interventions or after genes were added."""
    summary, module = training_summary(model), model.module
    is_same = all(x is None or x.n_genes == n for x, n in zip(summary.pseudobulks, module.blocks.sizes, strict=False))
    if not any(summary.pseudobulks) or not is_same:
        return None
    made_from, responses = getattr(model, "_responses", (None, None))
    if responses is None or made_from is not summary or responses.specs is not module.specs:
        responses = build_response_model(module, summary.pseudobulks, summary.conditions)
        model._responses = summary, responses
    return responses


def rematch(model: BaseModelClass, data: TrainingData, *, silent: bool = True) -> None:
    """Match genes of drawn cells to training cells; to none if these lack genes, or are not those of the network."""
    unlike = model._frozen_shapes_ or absent_genes(model).any()
    model.module.match_genes(None if unlike else data.learned(MOST_CELLS), silent=silent)


def remember_training(model: BaseModelClass, data: TrainingData | None = None) -> np.ndarray:
    """Summarise the training cells and sort tokens by explained variance; return the permutation of the tokens."""
    module, data = model.module, RegisteredData(model) if data is None else data
    order, basis = _sort_tokens(module, data)
    before = None if model.training_summary_ is None else training_summary(model)
    library, conditions = data.known()
    library = full_library(module, library, conditions, data.some(MOST_CELLS, SMALL_BATCH), absent_genes(model))
    edges = number_edges(conditions, module.specs)
    reference = () if before is None or edges else before.reference_pseudobulks  # bins of a query are its own
    bulks: Sequence[Pseudobulks | None] = ()
    if module.intervention_names:
        cells, own = data.again(conditions)
        bulks = pseudobulks(cells, own, module, edges, reference)
    left_out = data.left_out(min(500, 10_000_000 // module.n_vars))
    imputer = ModalityImputer.fit(model, data.some(MOST_CELLS, SMALL_BATCH), left_out)
    basis, genes = genes_in_training(data, basis)
    summary = TrainingSummary(
        library, conditions, bulks, basis, genes, reference_pseudobulks=reference, **imputer._asdict()
    )
    model.training_summary_ = summary.to_plain()
    return order


def _sort_tokens(module: DiffusionModule, data: TrainingData) -> tuple[np.ndarray, TokenBasis]:
    """Sort tokens by explained variance; return the order and the token basis over the training cells."""
    moments = hidden_moments(data.some(MOST_CELLS))
    order = np.arange(module.size.n_tokens)
    if not module.size.options.nested_tokens:  # nested tokens keep the order in which they are trained
        order = np.argsort(-moments.explained(module.gene_weights().cpu().numpy()), kind="stable")
        module.sort_tokens(order)
    return order, token_basis(moments.take(order), module.gene_weights().cpu().numpy())


def genes_in_training(data: TrainingData, basis: TokenBasis) -> tuple[TokenBasis, TokenGenes]:
    """Regress genes on tokens in at most 5,000 training cells; flip token signs so that large loadings are positive."""
    genes = token_genes(*activation_and_expression(data.some(REGRESSION_CELLS, SMALL_BATCH), basis))
    signs = np.where((genes.loadings.astype(np.float64) ** 3).sum(0) < 0, -1, 1).astype(np.float32)
    basis = basis._replace(directions=basis.directions * signs[:, None], loadings=basis.loadings * signs)
    return basis, genes._replace(loadings=genes.loadings * signs)


def activation_and_expression(cells: Cells | KeptCells, basis: TokenBasis) -> tuple[np.ndarray, sparse.csr_matrix]:
    """Compute activations ``(cells, tokens)`` and expression ``(cells, genes)``, log-normalised within modalities."""
    activation, expression = [], []
    for counts, conditions in cells:
        activation.append(basis.activation(cells.module.hidden(counts, conditions).cpu().numpy()))
        expression.append(cells.module.log_expression(counts))
    return np.concatenate(activation), sparse.vstack(expression, format="csr")


def hidden_moments(cells: Cells | KeptCells) -> HiddenMoments:
    """Compute moments of the read-out's hidden vectors over cells."""
    moments = (HiddenMoments.of(cells.module.hidden(*batch).cpu().numpy()) for batch in cells)
    return reduce(HiddenMoments.merge, moments)


class TrainingCells:
    """Conditions and library sizes of the training cells of a model, to draw from."""

    def __init__(self, model: BaseModelClass) -> None:
        self.specs = model.module.specs
        self.intervention_names = model.module.intervention_names
        self.modalities = modality_names(model.registry)
        self.summary = training_summary(model)
        self.responses = response_model(model)
        self.cells = self.summary.conditions.groups(self.specs)
        self.n_cells = len(self.summary.library)

    def complete(self, conditions: Conditions[np.ndarray], generator: torch.Generator) -> Conditions[np.ndarray]:
        """Draw missing conditions from training cells that match the given conditions."""
        # If a number such as a time is given, only treatments are drawn: the network infers the cell context.
        paths = [spec.name for spec in self.specs if spec.is_path and spec.name in conditions]
        if all(part.given.all() and (name not in paths or part.mask.all()) for name, part in conditions.items()):
            return conditions
        rng = np.random.default_rng([generator.initial_seed(), 1])
        requested = conditions.groups(self.specs, open_ended=True)
        rows = LibrarySizeModel(self.summary.library, self.cells, min_cells=1).rows_like(requested, rng)
        everywhere = np.ones(conditions.n_cells, dtype=bool)
        by_category = everywhere.copy()
        for spec in self.specs:
            if spec.is_number:
                by_category &= ~conditions[spec.name].given
        for name in paths:
            path, training = conditions[name], self.summary.conditions[name].take(rows)
            extends = (~path.mask | (training.mask & (path.ids == training.ids))).all(1)
            conditions = conditions.replace({name: path._replace(given=path.given & ~(extends & by_category))})
        which = {name: everywhere if name in self.intervention_names else by_category for name in conditions}
        return conditions.complete_from(self.summary.conditions, rows, which)

    def library_sizes(
        self,
        conditions: Conditions[np.ndarray],
        generator: torch.Generator,
        requested: LibrarySize = None,
        rows: pd.DataFrame | None = None,
    ) -> np.ndarray:
        """Draw library sizes ``(cells,)`` or ``(cells, modalities)``; functions get ``rows`` of the request."""
        names, rng = self.modalities, np.random.default_rng(generator.initial_seed())
        by_name = {} if requested is None else sizes_by_name(requested, names) if names else {"": requested}

        def resolved(given: LibrarySize) -> np.ndarray:
            return library_sizes(given(rows, rng) if callable(given) else given, conditions.n_cells)

        if len(names) < 2 and by_name:
            return resolved(*by_name.values())
        sizes = self.draw_sizes(conditions, np.random.default_rng(generator.initial_seed()))
        for name, given in by_name.items():
            sizes[:, names.index(name)] = resolved(given)
        return sizes

    def draw_sizes(self, conditions: Conditions[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Draw library sizes of training cells under the same conditions; transferred responses multiply them."""
        summary, make = self.summary, LibrarySizeModel if len(self.modalities) < 2 else JointLibrarySizes
        ratio = np.zeros((conditions.n_cells, 1))
        if self.responses is not None:
            found = self.responses.transferred(conditions)
            conditions, ratio = without_treatment(conditions, self.specs, found.known), found.log_ratio
        model = make(summary.library, self.cells, numbers=summary.conditions.numbers(self.specs))
        groups = conditions.groups(self.specs, open_ended=True)
        sizes = model.sample(groups, rng, conditions.numbers(self.specs))
        return np.maximum((sizes * np.exp(ratio if sizes.ndim > 1 else ratio[:, 0])).round(), 1)

    def n_alike(self, requested: Conditions[np.ndarray], but: Collection[str] = ()) -> np.ndarray:
        """Count training cells with all requested conditions of each row ``(rows,)``, except the keys ``but``."""
        compared = [spec for spec in self.specs if spec.registry_key not in but]
        return count_matching(compared, requested, self.summary.conditions)


def sizes_by_name(
    library_size: SizesOfCells | Mapping[str, SizesOfCells], modalities: Sequence[str]
) -> Mapping[str, SizesOfCells]:
    """Map modalities to library sizes; a single modality needs no name."""
    if isinstance(library_size, Mapping):
        unknown = [name for name in library_size if name not in modalities]
        if unknown:
            raise ValueError(f"`library_size` names {unknown[0]!r}: the modalities to generate are {list(modalities)}.")
        return library_size
    if len(modalities) > 1:
        raise ValueError(
            f"`library_size` is {library_size!r}, but there are several modalities: pass a mapping from modalities to "
            f"sizes, {{{modalities[0]!r}: ...}}; omitted modalities use the default."
        )
    return {modalities[0]: library_size}


def warn_of_missing_features(model: BaseModelClass) -> None:
    """Warn once of features that are zero in all cells of a batch and are treated as missing there."""
    panels = model.module.code.panels
    if panels.missing is None or panels.batch is None:
        return
    missing, batches = panels.missing.cpu().numpy(), categories_of_condition(model.registry, panels.batch)
    parts = []
    for (modality, names), columns in zip(feature_names(model.registry).items(), panels.blocks.slices, strict=True):
        of_batches = missing[:, columns]
        parts += [
            f"{listed(names[row])} of {modality!r} in {listed(batches[(of_batches == row).all(axis=1)])}"
            for row in np.unique(of_batches, axis=0)
            if row.any()
        ]
    warn_user(
        f"Features without a molecule in all cells of some batches ({panels.batch.name!r}), but not in others, are "
        f"treated as missing there, not as zero: {'; '.join(parts)}. They are predicted from the other features. If "
        "they were measured as zero, register another column as `batch_key`."
    )


@torch.no_grad()
def full_library(
    module: DiffusionModule,
    library: np.ndarray,
    conditions: Conditions[np.ndarray],
    cells: Iterable[Batch],
    absent: np.ndarray,
) -> np.ndarray:
    """Scale library sizes of training cells up to the full panel, by batch and label.

    Features are missing in a batch, or ``absent`` ``(columns,)`` in all cells, as genes that a query lacks.
    """
    panels = module.code.panels
    if panels.missing is None and not absent.any():
        return library
    library = library.reshape(len(library), -1)
    of_cells, n_groups = batches_and_labels(module, conditions)
    covered, n_cells = np.zeros((n_groups, library.shape[1])), np.zeros((n_groups, 1))
    for counts, given in cells:
        missing = panels.of_cells(given)
        if missing is None:
            missing = torch.from_numpy(absent).to(counts.device)
        present = module.expression(counts, given) * ~missing
        shares = module.blocks.dense_sums(present).cpu().numpy().reshape(len(counts), -1)
        own, _ = batches_and_labels(module, given.numpy())
        np.add.at(covered, own, shares)
        np.add.at(n_cells, own, 1)
    coverage = np.where(n_cells > 0, covered / np.maximum(n_cells, 1), 1)[of_cells]
    full = np.minimum((library / coverage).round(), LARGEST_LIBRARY).astype(library.dtype)
    return full if full.shape[1] > 1 else full[:, 0]


def batches_and_labels(module: DiffusionModule, conditions: Conditions[np.ndarray]) -> tuple[np.ndarray, int]:
    """Return the pair of batch and label of each cell ``(cells,)``, and the number of pairs."""
    keys = [spec for spec in module.specs if spec.registry_key in (REGISTRY_KEYS.BATCH, REGISTRY_KEYS.LABELS)]
    shape = [spec.n_categories for spec in keys]
    if not keys:
        return np.zeros(conditions.n_cells, dtype=int), 1
    return np.ravel_multi_index([conditions[spec.name].ids[:, 0] for spec in keys], shape), math.prod(shape)


def absent_genes(model: BaseModelClass) -> np.ndarray:
    """Mark the genes ``(columns,)`` that the cells of a query lack."""
    return np.isin(model.get_var_names(legacy_mudata_format=True), model.absent_genes_ or [])


def measured_only(
    model: BaseModelClass, counts: sparse.csr_matrix, conditions: Conditions[Tensor]
) -> sparse.csr_matrix:
    """Set counts to zero of features that the batch of a cell, or all cells of a query, lack."""
    missing, absent = model.module.code.panels.of_cells(conditions), absent_genes(model)
    if missing is None and not absent.any():
        return counts
    return counts.multiply(~absent if missing is None else ~missing.cpu().numpy()).tocsr().astype(counts.dtype)


def are_training_cells(model: BaseModelClass, library: np.ndarray) -> bool:
    """Compare library sizes of cells with those of the training cells, which may be scaled to the full panel."""
    summary, module = training_summary(model), model.module
    known = summary.library
    if np.allclose(library, known, rtol=1e-6):
        return True
    if module.code.panels.missing is None and not absent_genes(model).any():
        return False
    groups, _ = batches_and_labels(module, summary.conditions)
    sums = [pd.DataFrame(sizes.reshape(len(sizes), -1)).groupby(groups).transform("sum") for sizes in (library, known)]
    scale = (sums[1] / sums[0].clip(lower=1)).to_numpy().reshape(known.shape)
    return np.allclose(library * scale, known, rtol=0.01, atol=1)  # scaled sizes are rounded
