"""Normal scores of the training cells: standardisation by group of conditions, and factors."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds
from torch import Tensor, nn

from scdiffgen._codes import Code, distinct_rows
from scdiffgen.conditions import Conditions, ConditionSpec, GroupTable
from scdiffgen.normal_scores import FactorModel, Frame, ReferenceDistribution, fit_factors, fit_groups


class NormalScores(nn.Module):
    """Tables of the groups of training cells with equal conditions, except numbers."""

    shares: Tensor  # (genes,)
    inverse_dispersions: Tensor  # (genes,)
    loadings: Tensor  # (factors, genes)
    contexts: Tensor  # (groups, columns)
    treatments: Tensor  # (groups, slots)
    doses: Tensor  # (groups, slots)
    n_cells: Tensor  # (groups,)
    means: Tensor  # (groups, genes)
    deviations: Tensor  # (groups, genes)

    def __init__(self, n_genes: int, specs: Sequence[ConditionSpec]) -> None:
        super().__init__()
        self.specs = list(specs)
        coded = [spec for spec in specs if not spec.is_number]
        n_columns, n_slots = (sum(x.n_slots for x in coded if x.is_intervention == kind) for kind in (False, True))
        tables = {  # before fitting, a single group without conditions
            "shares": torch.full((n_genes,), 1 / n_genes),
            "inverse_dispersions": torch.ones(n_genes),
            "loadings": torch.zeros(0, n_genes),
            "contexts": torch.full((1, n_columns), int(Code.MISSING)),
            "treatments": torch.full((1, n_slots), int(Code.MISSING)),
            "doses": torch.zeros(1, n_slots),
            "n_cells": torch.ones(1, dtype=torch.int64),
            "means": torch.zeros(1, n_genes),
            "deviations": torch.ones(1, n_genes),
        }
        for name, table in tables.items():
            self.register_buffer(name, table)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load tables of any length."""
        for name, table in list(self.named_buffers()):
            if prefix + name in state_dict:
                setattr(self, name, table.new_zeros(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def fit(
        self, counts: sparse.csr_matrix, conditions: Conditions[np.ndarray], n_axes: int
    ) -> tuple[FactorModel, NDArray[np.float64]]:
        """Fit groups and at most ``n_axes`` factors to training cells; also return principal axes of their scores.

        A group is shrunk towards its context, and the context towards its first part.
        """
        table, _, groups = conditions.groups(self.specs).distinct()
        rows = np.hstack(table)
        reference = ReferenceDistribution.fit(counts, groups)
        parents, frame = np.zeros(len(rows), dtype=np.intp), None
        for n_kept in (1, table.cell_context.shape[1], rows.shape[1]):
            _, finer = distinct_rows(rows[:, :n_kept])
            if frame is None or finer.max() > parents.max():
                prior = None if frame is None else frame.take(parents[np.unique(finer, return_index=True)[1]])
                frame, parents = fit_groups(reference, counts, finer[groups], prior), finer
        frame = cast("Frame", frame).take(parents)
        chosen = np.linspace(0, counts.shape[0] - 1, min(counts.shape[0], 10_000_000 // counts.shape[1])).astype(int)
        model, scores = fit_factors(reference, counts[chosen], frame.take(groups[chosen]), n_axes)
        tables = {
            **dict(zip(("contexts", "treatments", "doses"), table, strict=True)),
            **{"shares": reference.shares, "inverse_dispersions": reference.inverse_dispersions},
            **{"loadings": model.loadings, "n_cells": np.bincount(groups), **frame._asdict()},
        }
        for name, values in tables.items():
            setattr(self, name, torch.from_numpy(np.ascontiguousarray(values)).to(getattr(self, name)))
        return model, principal_axes(model.loadings, scores, n_axes)

    def model(self) -> FactorModel:
        """Return the factor model."""
        tables = self.shares, self.inverse_dispersions, self.loadings
        shares, inverse_dispersions, loadings = (table.cpu().numpy().astype(np.float64) for table in tables)
        return FactorModel(ReferenceDistribution(shares, inverse_dispersions), loadings)

    def frame(
        self, conditions: Conditions[np.ndarray], rng: np.random.Generator | None, *, open_ended: bool = False
    ) -> Frame:
        """Return means and SDs of cells ``(cells, genes)``; with ``open_ended``, partial hierarchy paths match.

        If conditions are missing, a group that matches the given ones is drawn, or without ``rng`` matching groups are
        averaged. If no group matches, the match backs off over the last parts of the context, and from treatments that
        were not measured to untreated cells.
        """
        requested, _, of_cell = conditions.groups(self.specs, open_ended=open_ended).distinct()
        tables, n_cells = (self.means.cpu().numpy(), self.deviations.cpu().numpy()), self.n_cells.cpu().numpy()
        groups = GroupTable(*(table.cpu().numpy() for table in (self.contexts, self.treatments, self.doses)))
        frame = np.empty((2, conditions.n_cells, len(self.shares)))
        for row in range(requested.n_rows):
            matching = _matching(groups, requested, row)
            cells, shares = of_cell == row, n_cells[matching] / n_cells[matching].sum()
            which = None if rng is None else rng.choice(matching, cells.sum(), p=shares)
            for part, table in zip(frame, tables, strict=True):
                part[cells] = shares @ table[matching] if which is None else table[which]
        return Frame(*frame)

    def draw(
        self, counts: sparse.csr_matrix, frame: Frame, rng: np.random.Generator, n_draws: int = 1, n_burn_in: int = 5
    ) -> NDArray[np.float32]:
        """Draw standardised scores ``(cells, draws, genes)`` of counts by Gibbs sampling of factors and scores."""
        model, drawn = self.model(), np.zeros((n_draws, *counts.shape), dtype=np.float32)
        ends, scores = model.ends(counts, frame), np.zeros(counts.shape)
        for sweep in range(n_burn_in + n_draws):
            factors = model.draw_factors(scores, rng)
            scores = model.draw_scores(ends, factors if sweep else np.zeros_like(factors), rng)
            drawn[max(sweep - n_burn_in, 0)] = scores
        return drawn.swapaxes(0, 1)


def principal_axes(loadings: NDArray[np.float64], scores: NDArray[np.floating], n_axes: int) -> NDArray[np.float64]:
    """Return at most ``n_axes`` axes ``(axes, genes)``: of the factors, then orthogonal axes of the scores."""
    own = np.linalg.svd(loadings, full_matrices=False)[2]
    start = np.ones(min(scores.shape), dtype=np.float32)
    axes = svds(scores, min(n_axes, min(scores.shape) - 1), v0=start)[2]
    beside = np.linalg.svd(axes - axes @ own.T @ own, full_matrices=False)[2]
    return np.concatenate([own, beside[: len(axes) - len(own)]])


def _matching(groups: GroupTable, requested: GroupTable, row: int) -> np.ndarray:
    """Find the groups of a requested row, with back-off over its context, then to untreated groups."""
    context, treatment = requested.cell_context[row], requested.treatment(row)
    is_missing = (requested.interventions[row] == Code.MISSING).any()
    for same in (np.ones(groups.n_rows, dtype=bool) if is_missing else groups.have(treatment), groups.untreated):
        for n_kept in range(len(context), -1, -1):
            kept = context[:n_kept]
            near = same & ((kept == Code.MISSING) | (groups.cell_context[:, :n_kept] == kept)).all(1)
            if near.any():
                return np.flatnonzero(near)
    return np.arange(groups.n_rows)
