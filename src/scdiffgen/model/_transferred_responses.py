"""Transfer of responses to cells of every process: look-up by condition, and application to counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch import Tensor

from scdiffgen._messages import warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import Code, Conditions, ConditionSpec, GroupTable, Treatment
from scdiffgen.diffusion import to_scipy
from scdiffgen.module import DiffusionModule
from scdiffgen.responses import SOURCES, Prediction, Pseudobulks, PseudobulkSums, Response, ResponsePredictor

NOISE = "cannot be told from noise"
CHECKS = ("not assessed", "ahead of the plain mean", "no better than the plain mean", NOISE)
"""Comparison of predictions of left-out responses with the plain mean of other responses, or no measured change."""

UNKNOWN_RESPONSE = (
    "`conditions` has treatments that no measured response predicts: the network draws these cells (`response_source` "
    "'network'), and nothing is known of their response."
)


class JointResponse(NamedTuple):
    """Response of the cells of a context in each modality; None where no data predict it."""

    parts: Sequence[Response | None]  # by modality
    sizes: Sequence[int]  # numbers of genes

    @property
    def prediction(self) -> Prediction:
        return next(part.prediction for part in self.parts if part is not None)

    def with_cautions(self, cautions: Sequence[str]) -> Self:
        described = [part and part._replace(prediction=part.prediction.with_cautions(*cautions)) for part in self.parts]
        return self._replace(parts=described)

    @property
    def mean_change(self) -> np.ndarray:
        """Change of mean log expression ``(genes,)``; NaN where unknown."""
        return self._joined(lambda part: part.mean_change)

    @property
    def half_width(self) -> np.ndarray:
        """Half-widths of the intervals of the change ``(genes,)``; NaN where unknown."""
        return self._joined(lambda part: part.prediction.half_width)

    @property
    def no_source(self) -> np.ndarray:
        """Whether a gene is expressed here and in no source of the response ``(genes,)``; False where unknown."""
        return self._joined(lambda part: part.prediction.no_source, unknown=False)

    @property
    def log_ratio(self) -> np.ndarray:
        """Log ratios of library sizes, treated to untreated ``(modalities,)``; 0 where unknown."""
        return np.array([0.0 if part is None else part.prediction.log_ratio for part in self.parts])

    def apply(self, counts: sparse.csr_matrix, rng: np.random.Generator, *, keep_library: bool) -> sparse.csr_matrix:
        """Predict counts ``(cells, genes)`` after the response, modality by modality."""
        ends = np.cumsum([0, *self.sizes])
        blocks = [counts[:, first:last] for first, last in zip(ends[:-1], ends[1:], strict=True)]
        pairs = zip(blocks, self.parts, strict=True)
        after = [x if part is None else part.apply(x, rng, keep_library=keep_library) for x, part in pairs]
        return after[0] if len(after) == 1 else sparse.hstack(after, format="csr")

    def _joined(self, value: Callable[[Response], np.ndarray | bool], unknown: float = np.nan) -> np.ndarray:
        parts = zip(self.parts, self.sizes, strict=True)
        return np.concatenate([np.full(n, unknown if part is None else value(part)) for part, n in parts])


@dataclass(frozen=True)
class CellResponses:
    """Responses of a minibatch by group; ``None`` for groups that the network draws."""

    group_of: np.ndarray  # (cells,)
    responses: Sequence[JointResponse | None]

    @classmethod
    def of_network(cls, n_cells: int) -> Self:
        return cls(np.zeros(n_cells, dtype=int), [None])

    @property
    def known(self) -> np.ndarray:
        return np.array([response is not None for response in self.responses])[self.group_of]

    @property
    def log_ratio(self) -> np.ndarray:
        """Log ratios of library sizes ``(cells, modalities)``; 0 without a response."""
        rows = [np.zeros(1) if response is None else response.log_ratio for response in self.responses]
        return np.stack(np.broadcast_arrays(*rows))[self.group_of]

    def take(self, rows: np.ndarray) -> CellResponses:
        """Return the responses of some cells; groups without these cells are left out, in the same order."""
        groups, group_of = np.unique(self.group_of[rows], return_inverse=True)
        return CellResponses(group_of.ravel(), [self.responses[group] for group in groups])

    def columns(self, is_trained: np.ndarray | None = None) -> pd.DataFrame:
        """Name the source and the check of each cell's response.

        Cells that the network draws are ``"own"`` if it was trained on cells of their conditions (``is_trained``).
        """
        sources = np.array(["network" if x is None else x.prediction.source for x in self.responses])[self.group_of]
        checks = np.array([*map(check_of, self.responses)])[self.group_of]
        if is_trained is not None:
            sources[(sources == "network") & is_trained] = "own"
        both = ("response_source", sources, SOURCES), ("response_check", checks, CHECKS)
        return pd.DataFrame({name: pd.Categorical(values, list(order)) for name, values, order in both})

    def cautions(self) -> Iterable[str]:
        return dict.fromkeys(text for x in self.responses if x is not None for text in x.prediction.cautions)

    def apply(
        self, counts: sparse.csr_matrix, generator: torch.Generator, *, keep_library: bool = False
    ) -> sparse.csr_matrix:
        """Apply responses to counts ``(cells, genes)``; cells without a response are unchanged."""
        seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
        places, parts = [], []
        for group, response in enumerate(self.responses):
            places.append(np.flatnonzero(self.group_of == group))
            cells = counts[places[-1]]
            if response is not None:
                cells = response.apply(cells, np.random.default_rng([seed, group]), keep_library=keep_library)
            parts.append(cells)
        return sparse.vstack(parts, format="csr", dtype=np.int32)[np.argsort(np.concatenate(places))]


@dataclass(frozen=True)
class ResponseModel:
    """Predictors of responses in each modality, if only interventions change."""

    predictors: Sequence[ResponsePredictor | None]  # by modality; None without pseudobulks
    sizes: Sequence[int]  # numbers of genes of the modalities
    specs: Sequence[ConditionSpec]
    edges: Mapping[str, np.ndarray]  # limits of the bins of numeric conditions
    numbers: Mapping[str, np.ndarray]  # their distinct values in training cells

    def responses(
        self,
        source: Conditions[np.ndarray],
        target: Conditions[np.ndarray],
        scale: float = 1.0,
        *,
        unmeasured_only: bool = False,
    ) -> CellResponses:
        """Look up the response of each cell; ``unmeasured_only`` excludes contexts measured with the treatment."""
        before, after = (response_groups(conditions, self.specs, self.edges) for conditions in (source, target))
        rows = np.hstack([before.cell_context, before.interventions, after.interventions, before.doses, after.doses])
        _, first, group_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        responses = []
        for row in first:
            context, previous, requested = before.cell_context[row], before.treatment(row), after.treatment(row)
            is_measured = all(x.has_measured(context, requested) for x in self.predictors if x is not None)
            left_out = unmeasured_only and (not requested or is_measured)
            responses.append(None if left_out else self._respond(context, previous, requested, scale))
        return CellResponses(group_of.ravel(), responses)

    def transferred(self, conditions: Conditions[np.ndarray], scale: float = 1.0) -> CellResponses:
        """Look up the responses of cells whose context was not measured with their treatment."""
        return self.responses(without_treatment(conditions, self.specs), conditions, scale, unmeasured_only=True)

    def from_untreated(self, conditions: Conditions[np.ndarray]) -> list[JointResponse | None]:
        """Predict the response of untreated cells to the interventions of each row of conditions."""
        rows, responses = response_groups(conditions, self.specs, self.edges), []
        for i, context in enumerate(rows.cell_context):
            treatment = rows.treatment(i)
            response = self._respond(context, {}, treatment, 1.0)
            cautions = self.number_cautions(conditions.take(np.array([i]))) if treatment else []
            responses.append(response and response.with_cautions(cautions))
        return responses

    def number_cautions(self, conditions: Conditions[np.ndarray]) -> list[str]:
        """State for numbers that no training cell has which training numbers, those of their bin, stand for them."""
        cautions = []
        for name, limits in self.edges.items():
            trained = self.numbers[name]
            bins = np.searchsorted(limits, trained, side="right")
            for number in np.setdiff1d(distinct_numbers(conditions, name), trained) if len(trained) else ():
                near = trained[bins == np.searchsorted(limits, number, side="right")]
                low, high = (near if len(near) else trained)[[0, -1]]  # without cells of the bin, all numbers are used
                counts_as = f"{low:g}" if low == high else f"a number from {low:g} to {high:g}"
                cautions.append(f"no training cell has this {name!r}, which counts as {counts_as}")
        return cautions

    def _respond(self, context: np.ndarray, source: Treatment, target: Treatment, scale: float) -> JointResponse | None:
        parts = [None if x is None else x.respond(context, source, target, scale) for x in self.predictors]
        return JointResponse(parts, self.sizes) if any(part is not None for part in parts) else None


def build_response_model(
    module: DiffusionModule, bulks: Sequence[Pseudobulks | None], conditions: Conditions[np.ndarray]
) -> ResponseModel:
    """Build the response model of a module from pseudobulks and conditions of the training cells."""
    sizes, (name, *_) = module.blocks.sizes, module.intervention_names
    features, names = module.denoiser.embed.features(name), context_names(module.specs)
    vectors = None if features is None else features.cpu().numpy()
    columns = [columns_of(module.specs, key) for key in (REGISTRY_KEYS.BATCH, REGISTRY_KEYS.LABELS)]
    predictors = [None if x is None else ResponsePredictor(x, vectors, columns[0], names, columns[1]) for x in bulks]
    edges = number_edges(conditions, module.specs)
    numbers = {name: distinct_numbers(conditions, name) for name in edges}
    return ResponseModel(predictors, sizes, module.specs, edges, numbers)


def pseudobulks(
    cells: Iterable[tuple[Tensor, Conditions[Tensor]]],
    conditions: Conditions[np.ndarray],
    module: DiffusionModule,
    edges: Mapping[str, np.ndarray],
    references: Sequence[Pseudobulks | None],
) -> list[Pseudobulks | None]:
    """Compute pseudobulks of each modality, appended to those of a reference; None if they need too much memory."""
    sizes, groups = module.blocks.sizes, response_groups(conditions, module.specs, edges)
    batches, ends = columns_of(module.specs, REGISTRY_KEYS.BATCH), np.cumsum([0, *sizes])
    library = None
    if len(sizes) > 1:
        library = np.concatenate([module.library(counts).cpu().numpy() for counts, _ in cells])
    sums = []
    for modality, n_genes in enumerate(sizes):
        measured = None if library is None else library[:, modality] > 0
        sums.append(PseudobulkSums(groups, batches, n_genes, measured))
    for own in sums:
        if not own.fits and (n_groups := own.groups.n_rows):
            large = f"Sums of {n_groups:,} groups of cells over {own.n_genes:,} genes need too much memory"
            warn_user(f"{large}, so measured responses are not transferred. Register fewer genes, or merge groups.")
    for counts, _ in cells if any(own.fits for own in sums) else ():
        whole = to_scipy(counts)
        for own, first, last in zip(sums, ends[:-1], ends[1:], strict=True):
            if own.fits:
                own.add(whole if len(sums) == 1 else whole[:, first:last])
    references = references or [None] * len(sums)
    return [own.finish(known) if own.fits else None for own, known in zip(sums, references, strict=True)]


def response_groups(
    conditions: Conditions[np.ndarray], specs: Sequence[ConditionSpec], edges: Mapping[str, np.ndarray]
) -> GroupTable:
    """Return contexts and treatments of cells; each number of the context is a bin, in the last columns."""
    groups, columns = conditions.groups(specs), []
    for name, limits in edges.items():
        number = conditions.get(name)
        if number is None:
            columns.append(np.full(conditions.n_cells, Code.MISSING))
        else:
            bins = np.searchsorted(limits, number.values[:, 0], side="right")
            columns.append(np.where(number.given & number.mask[:, 0], bins, Code.MISSING))
    return groups._replace(cell_context=np.column_stack([groups.cell_context, *columns]))


def number_edges(conditions: Conditions[np.ndarray], specs: Sequence[ConditionSpec]) -> dict[str, np.ndarray]:
    """Return the inner limits of at most eight bins with equal numbers of cells for each numeric condition."""
    edges = {}
    for spec in (spec for spec in specs if spec.is_number):
        number = conditions[spec.name]
        values = number.values[:, 0][number.given & number.mask[:, 0]]
        n_bins = min(max(len(values) // 200, 1), 8)  # so that both arms of a context can have 20 cells in a bin
        edges[spec.name] = np.unique(np.quantile(values, np.arange(1, n_bins) / n_bins)) if len(values) else values
    return edges


def distinct_numbers(conditions: Conditions[np.ndarray], name: str) -> np.ndarray:
    """Return the distinct values of a numeric condition, in ascending order."""
    number = conditions.get(name)
    return np.array([]) if number is None else np.unique(number.values[:, 0][number.given & number.mask[:, 0]])


def without_treatment(
    conditions: Conditions[np.ndarray], specs: Sequence[ConditionSpec], rows: np.ndarray | None = None
) -> Conditions[np.ndarray]:
    """Turn treated cells into controls, all of them or the marked ``rows`` ``(cells,)``."""
    changed = {}
    for spec in (spec for spec in specs if spec.is_intervention and spec.name in conditions):
        own = conditions[spec.name]
        keeps = np.zeros(conditions.n_cells, bool) if rows is None else ~rows
        changed[spec.name] = own._replace(mask=own.mask & keeps[:, None])
    return conditions.replace(changed)


def context_names(specs: Sequence[ConditionSpec]) -> list[str]:
    """Return the name of the condition in each column of :func:`response_groups`."""
    context = [spec for spec in specs if not spec.is_intervention]
    coded = [spec.name for spec in context if not spec.is_number for _ in range(spec.n_slots)]
    return coded + [spec.name for spec in context if spec.is_number]


def columns_of(specs: Sequence[ConditionSpec], key: str) -> list[int]:
    """Return the columns of the codes of cell contexts that hold a registered field."""
    named = {spec.name for spec in specs if spec.registry_key == key}
    return [column for column, name in enumerate(context_names(specs)) if name in named]


def check_of(response: JointResponse | None) -> str:
    """Compare prediction and plain mean on left-out responses, in words, unless nothing changes significantly."""
    if response is not None and all(part.prediction.is_noise for part in response.parts if part is not None):
        return NOISE
    is_ahead = None if response is None else response.prediction.is_ahead
    return CHECKS[0 if is_ahead is None else 1 if is_ahead else 2]
