"""Pseudobulks: sums and means over the training cells that share their conditions, interventions with their doses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scdiffgen.conditions import Code, Conditions, ConditionSpec, backoff_levels, have_exactly

from ._cell_states import log_expression, state_covariance, state_loadings
from ._response_curves import STEPS, response_curves
from ._strengths import strength_variances

if TYPE_CHECKING:
    from scdiffgen.module import ThinningModule

MIN_CELLS = 20  # from which counts are summed and a response is read, treated and untreated each
LARGEST = 200_000_000  # numbers above which pseudobulks are not kept
NO_DOSE = 1.0  # of an intervention where doses were not registered


class TreatedGroups(NamedTuple):
    """Conditions of cells, or of groups of cells."""

    identity: np.ndarray  # codes of all conditions but the interventions (rows, columns), as of Conditions.codes
    interventions: np.ndarray  # ids (rows, slots); a Code where there is none
    doses: np.ndarray  # of the interventions (rows, slots); 0 where there is none, infinite where none was given

    @classmethod
    def of_cells(cls, conditions: Conditions[np.ndarray], specs: Sequence[ConditionSpec]) -> TreatedGroups:
        """Codes of cells; the last of ``specs`` are the interventions, absent at dose 0."""
        given = conditions[specs[-1].name]
        identity, interventions = np.split(conditions.codes(specs), [-given.ids.shape[1]], axis=1)
        doses = given.values.astype(np.float64) if specs[-1].has_values else np.full(given.ids.shape, NO_DOSE)
        doses = np.where(interventions >= 0, np.nan_to_num(doses, nan=np.inf), 0.0)
        return cls(identity, np.where((interventions >= 0) & (doses == 0), Code.ABSENT, interventions), doses)

    def treatment(self, row: int) -> dict[int, float]:
        """Dose of each intervention of a row, by its id."""
        ids, doses = self.interventions[row].tolist(), self.doses[row].tolist()
        return {part: dose for part, dose in zip(ids, doses, strict=True) if part >= 0}

    def distinct(self) -> tuple[TreatedGroups, np.ndarray]:
        """Distinct rows, whatever the order of interventions, and the index of each row among them ``(rows,)``."""
        order = np.argsort(-self.interventions, axis=1, kind="stable")
        interventions, doses = (np.take_along_axis(array, order, axis=1) for array in self[1:])
        rows = np.hstack([self.identity, interventions, doses])
        _, first, group_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return TreatedGroups(self.identity[first], interventions[first], doses[first]), group_of.ravel()

    def pooled(self, n_cells: np.ndarray, least: int) -> tuple[TreatedGroups, np.ndarray]:
        """Pool rows of a treatment by back-off to groups of ``least`` cells; also the group of each row, or -1."""
        pool_of, pools = np.full(len(n_cells), -1), [TreatedGroups(*(array[:0] for array in self))]
        for columns in backoff_levels(np.arange(self.identity.shape[1])):
            left = np.flatnonzero(pool_of < 0)
            coarser = np.full_like(self.identity[left], Code.MISSING)
            coarser[:, columns] = self.identity[left][:, columns]
            groups, which = TreatedGroups(coarser, self.interventions[left], self.doses[left]).distinct()
            large = np.bincount(which, n_cells[left]) >= least
            first = sum(len(pool.identity) for pool in pools)
            pool_of[left] = np.where(large, first + large.cumsum() - 1, -1)[which]
            pools.append(TreatedGroups(*(array[large] for array in groups)))
        return TreatedGroups(*map(np.concatenate, zip(*pools, strict=True))), pool_of


@dataclass(frozen=True)
class Pseudobulks:
    """Sums and means over groups of cells that share their conditions; plain arrays, saved with the model."""

    identity: np.ndarray  # (groups, columns), these three as of TreatedGroups; Code.MISSING where identities are pooled
    interventions: np.ndarray  # (groups, slots)
    doses: np.ndarray  # (groups, slots)
    n_cells: np.ndarray  # (groups,)
    counts: np.ndarray  # (groups, genes)
    expected: np.ndarray  # (groups, genes): library sizes times the shares that the network expects, of untreated cells
    log_mean: np.ndarray  # (groups, genes): of log(1 + counts per 10,000)
    log_variance: np.ndarray  # (groups, genes): of the same, over the cells
    curves: np.ndarray  # (untreated groups, steps, genes): mean log expression once moved, see _response_curves
    strength_variance: np.ndarray  # (groups,): of the strengths with which cells respond, see _strengths
    state_covariance: np.ndarray  # (groups, states, genes): of log expression with states, over the cells
    state_loadings: np.ndarray  # (genes, states): of the states of cells, see _cell_states
    log_library: np.ndarray  # (groups, 2): mean and variance of log(1 + library size), over the cells
    saturation: np.ndarray  # (untreated groups, steps, genes): what curves fall by the logarithm of a library size

    @property
    def n_genes(self) -> int:
        """Number of genes."""
        return self.counts.shape[1]

    def have(self, treatment: Mapping[int, float]) -> np.ndarray:
        """Select groups with exactly these interventions and doses ``(groups,)``."""
        there = have_exactly(self.interventions, list(treatment))
        for part, dose in treatment.items():
            there &= ((self.interventions == part) & (self.doses == dose)).any(1)
        return there

    def share(self, identity: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Select groups with these columns of an identity ``(groups,)``."""
        return (self.identity[:, columns] == identity[columns]).all(1)

    def mean(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted means of log expression and log library size, and their sampling variance, both ``(genes + 1,)``."""
        rows = np.flatnonzero(weights)
        weights = weights[rows] / weights[rows].sum()
        means, variances = (
            np.column_stack([of_genes[rows], of_library[rows]])
            for of_genes, of_library in zip((self.log_mean, self.log_variance), self.log_library.T, strict=True)
        )
        return weights @ means, weights**2 @ (variances / self.n_cells[rows, None])

    def treatments(self) -> list[dict[int, float]]:
        """Distinct treatments."""
        groups = TreatedGroups(self.identity[:, :0], self.interventions, self.doses).distinct()[0]
        return [found for row in range(len(groups.doses)) if (found := groups.treatment(row))]

    def concatenate(self, others: Pseudobulks | None) -> Pseudobulks:
        """Append groups of the same cell states, with at most as many slots; none if genes differ."""
        if others is None or others.n_genes != self.n_genes:
            return self
        more = ((0, 0), (0, self.doses.shape[1] - others.doses.shape[1]))
        widened = {
            **others.to_plain(),
            "interventions": np.pad(others.interventions, more, constant_values=Code.ABSENT),
            "doses": np.pad(others.doses, more),
        }
        by_group = {name: array for name, array in self.to_plain().items() if name != "state_loadings"}
        both = {name: np.concatenate([array, widened[name]]) for name, array in by_group.items()}
        if not (self.log_library.any() and others.log_library.any()):  # nothing to compare library sizes with
            both |= {name: np.zeros_like(both[name]) for name in ("log_library", "saturation")}
        return replace(self, **both)

    def to_plain(self) -> dict[str, np.ndarray]:
        """Arrays by name."""
        return dict(vars(self))

    @classmethod
    def from_plain(cls, plain: Mapping[str, np.ndarray]) -> Pseudobulks:
        """Undo :meth:`to_plain`; files of earlier versions lack strengths, states and library sizes."""
        n_groups, n_genes = plain["log_mean"].shape
        none = {
            "strength_variance": np.zeros(n_groups),
            "state_covariance": np.zeros((n_groups, 0, n_genes)),
            "state_loadings": np.zeros((n_genes, 0)),
            "log_library": np.zeros((n_groups, 2)),
            "saturation": np.zeros_like(plain["curves"]),
        }
        return cls(**{**none, **plain})


def pseudobulks(
    module: ThinningModule,
    batches: Iterable[tuple[Tensor, Conditions[Tensor]]],
    conditions: Conditions[np.ndarray],
    specs: Sequence[ConditionSpec],
    reference: Pseudobulks | None = None,
) -> Pseudobulks | None:
    """Compute pseudobulks of the cells in ``batches``, after those of a ``reference``; None for too many groups.

    Groups are disjoint and of at least 20 cells, so that neither sums nor their differences disclose single cells.
    """
    distinct, group_of = TreatedGroups.of_cells(conditions, specs).distinct()
    groups, pool_of = distinct.pooled(np.bincount(group_of), MIN_CELLS)
    row_of, n_groups = pool_of[group_of], len(groups.identity)
    untreated = have_exactly(groups.interventions, [])
    if (n_groups + 2 * len(STEPS) * untreated.sum()) * module.n_vars > LARGEST:
        return None
    sums = torch.zeros(4, n_groups + 1, module.n_vars, device=module.device, dtype=torch.float64)
    log_library, first = np.zeros((2, n_groups + 1)), 0
    for there, given in batches:
        rows = torch.from_numpy(row_of[first : first + len(there)] % (n_groups + 1)).to(module.device)
        first += len(there)
        counts = there.to_dense().double()
        expression, logarithm = log_expression(counts), counts.sum(1).log1p().cpu().numpy()
        of_row = rows.cpu().numpy()
        log_library += [np.bincount(of_row, each, n_groups + 1) for each in (logarithm, logarithm**2)]
        summed = [counts, torch.zeros_like(counts), expression, expression**2]
        if module.denoiser.unaffected(given, len(there)).any():
            summed[1] = (module.library(there)[:, None] * module.expression(there, given)).double()
        sums.index_add_(1, rows, torch.stack(summed))
    totals, expected, log_sum, log_squares = sums[:, :-1].cpu().numpy()
    n_cells = np.bincount(row_of[row_of >= 0], minlength=n_groups)
    log_mean = log_sum / n_cells[:, None]
    log_variance = (log_squares / n_cells[:, None] - log_mean**2).clip(min=0)
    mean, square = log_library[:, :-1] / n_cells
    log_library = np.column_stack([mean, (square - mean**2).clip(min=0)])
    untreated_of = np.append(np.where(untreated, untreated.cumsum() - 1, -1), -1)[row_of]
    correction = np.log((totals + 0.5) / (expected + 0.5))[untreated]
    curves, saturation = response_curves(module, batches, untreated_of, correction)
    sums_of, expected_of, means, variances = (
        array.astype(np.float32) for array in (totals, expected, log_mean, log_variance)
    )
    no_states = np.zeros((n_groups, 0, module.n_vars)), np.zeros((module.n_vars, 0))
    arrays = (*groups, n_cells, sums_of, expected_of, means, variances, curves)
    bulks = Pseudobulks(*arrays, np.zeros(n_groups), *no_states, log_library, saturation)
    if reference is not None and reference.n_genes == module.n_vars:
        loadings = reference.state_loadings
    else:
        loadings = state_loadings(batches, bulks, untreated_of)
    bulks = replace(bulks, **state_covariance(batches, row_of, bulks.log_mean, loadings))
    treatment_of = TreatedGroups(groups.identity[:, :0], *groups[1:]).distinct()[1]
    strengths = strength_variances(module, batches, bulks, row_of, treatment_of)
    return replace(bulks, strength_variance=strengths).concatenate(reference)
