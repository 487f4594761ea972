"""Normal scores of the training cells: how those of each group of conditions are standardised, and their factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds
from torch import Tensor, nn

from scdiffgen._codes import Code, distinct_rows
from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.normal_scores import FactorModel, Frame, ReferenceDistribution, fit_factors, fit_groups

Array = NDArray[np.float64]

Treatment = tuple[tuple[int, float], ...] | None
"""Interventions of a cell and their doses (-1: none given), sorted; None is missing."""

LARGEST_FIT = 10_000_000  # cells times genes from which factors are fitted, evenly spread
N_BURN_IN = 5  # draws of the scores of a cell before the first that is used


class NormalScores(nn.Module):
    """Tables of the training cells' groups, which are those that agree in all conditions but numbers."""

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
        self.specs = [spec for spec in specs if not spec.is_intervention]
        self.interventions = [spec for spec in specs if spec.is_intervention]
        for name in ("shares", "inverse_dispersions"):
            self.register_buffer(name, torch.zeros(n_genes, dtype=torch.float64))
        for name in ("loadings", "means", "deviations"):
            self.register_buffer(name, torch.zeros(0, n_genes))
        for name in ("contexts", "treatments", "doses", "n_cells"):
            self.register_buffer(name, torch.zeros((0, 0), dtype=torch.float32 if name == "doses" else torch.int64))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load tables of any length."""
        for name, table in list(self.named_buffers()):
            if prefix + name in state_dict:
                setattr(self, name, table.new_zeros(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def fit(
        self, counts: sparse.csr_matrix, conditions: Conditions[np.ndarray], n_axes: int
    ) -> tuple[FactorModel, Array]:
        """Fit groups and at most ``n_axes`` factors to training cells; also so many principal axes of their scores.

        A group is shrunk to its context, and that to its first part.
        """
        contexts, treatments, doses = self._codes(conditions)
        rows, groups = distinct_rows(np.concatenate([contexts, treatments, doses], axis=1))
        reference = ReferenceDistribution.fit(counts, groups)
        frame: Frame | None = None
        n_columns, before = contexts.shape[1], np.zeros(len(rows), dtype=np.intp)
        for n_kept in sorted({1, n_columns, rows.shape[1]} - {0}):
            _, parents = distinct_rows(rows[:, :n_kept])
            prior = None
            if frame is not None:
                first = np.unique(parents, return_index=True)[1]
                prior = frame.take(before[first])
            if frame is None or parents.max() > before.max():
                frame, before = fit_groups(reference, counts, parents[groups], prior), parents
        if frame is None:
            frame = fit_groups(reference, counts, groups)
        else:
            frame = frame.take(before)
        chosen = np.linspace(0, counts.shape[0] - 1, min(counts.shape[0], LARGEST_FIT // counts.shape[1])).astype(int)
        model, scores = fit_factors(reference, counts[chosen], frame.take(groups[chosen]), n_axes)
        n_slots = treatments.shape[1]
        tables = {
            "shares": reference.shares,
            "inverse_dispersions": reference.inverse_dispersions,
            "loadings": model.loadings,
            "contexts": rows[:, :n_columns],
            "treatments": rows[:, n_columns : n_columns + n_slots],
            "doses": rows[:, n_columns + n_slots :],
            "n_cells": np.bincount(groups),
            "means": frame.means,
            "deviations": frame.deviations,
        }
        for name, table in tables.items():
            setattr(self, name, torch.from_numpy(np.ascontiguousarray(table)).to(getattr(self, name)))
        return model, principal_axes(model.loadings, scores, n_axes)

    def model(self) -> FactorModel:
        """The factors."""
        reference = ReferenceDistribution(self.shares.cpu().numpy(), self.inverse_dispersions.cpu().numpy())
        return FactorModel(reference, self.loadings.double().cpu().numpy())

    def frame(self, conditions: Conditions[np.ndarray], rng: np.random.Generator | None) -> Frame:
        """Means and deviations of cells ``(cells, genes)``.

        Where conditions are missing, one of the groups that agree in the rest is drawn, or these are averaged without
        ``rng``. Where no group agrees, interventions add up to untreated cells of the context, and the last parts of
        the context are left out until some group agrees.
        """
        rows, of_cell = distinct_rows(np.concatenate(self._codes(conditions), axis=1))
        n_columns, n_slots = self.contexts.shape[1], (rows.shape[1] - self.contexts.shape[1]) // 2
        means, deviations = np.empty((2, conditions.n_cells, len(self.shares)))
        tables = self.means.cpu().numpy(), self.deviations.cpu().numpy()
        weights = self.n_cells.cpu().numpy()
        for position, row in enumerate(rows):
            treatment = _treatment(row[n_columns : n_columns + n_slots], row[n_columns + n_slots :])
            groups, shift = self._groups_like(row[:n_columns], treatment)
            cells, share = np.flatnonzero(of_cell == position), weights[groups] / weights[groups].sum()
            for found, table in zip((means, deviations), tables, strict=True):
                if len(groups) > 1 and rng is None:
                    found[cells] = share @ table[groups]
            if len(groups) == 1 or rng is not None:
                at = groups[0] if len(groups) == 1 else rng.choice(groups, len(cells), p=share)  # type: ignore[union-attr]
                means[cells], deviations[cells] = tables[0][at], tables[1][at]
            means[cells] += shift
        return Frame(means, deviations)

    def draw(
        self, counts: sparse.csr_matrix, frame: Frame, rng: np.random.Generator, n_draws: int = 1
    ) -> NDArray[np.float32]:
        """Draw standardised scores ``(cells, draws, genes)`` of counts around the factors of each cell."""
        model, drawn = self.model(), np.zeros((n_draws, *counts.shape), dtype=np.float32)
        ends, scores = model.ends(counts, frame), np.zeros(counts.shape)
        for sweep in range(N_BURN_IN + n_draws):
            factors = model.draw_factors(scores, rng)
            scores = model.draw_scores(ends, factors if sweep else np.zeros_like(factors), rng)
            drawn[max(sweep - N_BURN_IN, 0)] = scores
        return drawn.swapaxes(0, 1)

    def _codes(self, conditions: Conditions[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes of contexts ``(cells, columns)``, interventions of all kinds and their doses ``(cells, slots)``."""
        empty, first = np.zeros((conditions.n_cells, 0), dtype=np.int64), 0
        parts, doses = [empty], [empty.astype(np.float64)]
        for spec in self.interventions:
            codes, dose = conditions.codes([spec]), np.full((), np.nan)
            if spec.has_values and spec.name in conditions:
                dose = conditions[spec.name].values
            parts.append(np.where(codes >= 0, codes + first, codes))
            doses.append(np.where((codes >= 0) & np.isfinite(dose), dose, -1.0))
            first += spec.n_categories
        return conditions.codes(self.specs, open_ended=True), np.concatenate(parts, 1), np.concatenate(doses, 1)

    def _groups_like(self, context: np.ndarray, treatment: Treatment) -> tuple[np.ndarray, np.ndarray | float]:
        """Groups of a context and a treatment, and what is to be added to their means ``(genes,)``."""
        contexts, treatments = self.contexts.cpu().numpy(), self._treatments()
        same = np.array([treatment is None or each == treatment for each in treatments])
        untreated = np.array([each == () for each in treatments])
        for n_kept in range(len(context), -1, -1):
            kept = context[:n_kept]
            near = ((kept == Code.MISSING) | (contexts[:, :n_kept] == kept)).all(1)
            if (near & same).any():
                return np.flatnonzero(near & same), 0.0
            if treatment and (near & untreated).any():
                return np.flatnonzero(near & untreated), self._shift(treatment)
        return np.arange(len(contexts)), self._shift(treatment) if treatment else 0.0

    def _treatments(self) -> list[Treatment]:
        tables = zip(self.treatments.cpu().numpy(), self.doses.cpu().numpy(), strict=True)
        return [_treatment(parts, doses) for parts, doses in tables]

    def _shift(self, treatment: tuple[tuple[int, float], ...]) -> np.ndarray:
        """Sum ``(genes,)`` of what interventions add to untreated cells, on average over contexts that have both."""
        treatments, contexts = self._treatments(), self.contexts.cpu().numpy()
        means, weights = self.means.double().cpu().numpy(), self.n_cells.cpu().numpy()
        ids = sorted({part for each in treatments for part, _ in each or ()})
        design, changes, n_cells = [], [], []
        for group, each in enumerate(treatments):
            control = [
                i for i, other in enumerate(treatments) if other == () and (contexts[i] == contexts[group]).all()
            ]
            if each and control:
                design.append(self._gates(each, ids))
                changes.append(means[group] - means[control[0]])
                n_cells.append(weights[group])
        taught = {ids[i] for i in np.flatnonzero(np.sum(design, axis=0))} if design else set()
        unknown = [part for part, _ in treatment if part not in taught]
        if unknown:
            raise ValueError(
                f"`process='gaussian'` does not know the response to {len(unknown)} of the interventions: no training "
                "cell had it in a context with untreated cells. Ask for others, or train with `process='thinning'`."
            )
        gates, weighted = np.array(design), np.array(design).T * np.array(n_cells)
        shifts = np.linalg.solve(weighted @ gates + 2 * np.eye(len(ids)), weighted @ np.array(changes))
        return self._gates(treatment, ids) @ shifts

    def _gates(self, treatment: tuple[tuple[int, float], ...], ids: Sequence[int]) -> np.ndarray:
        """Share of its full response that each intervention ``(interventions,)`` has at its dose."""
        gates, scales = (
            np.zeros(len(ids)),
            np.concatenate([np.full(spec.n_categories, spec.transform.scale) for spec in self.interventions]),
        )
        for part, dose in treatment:
            if part in ids:
                gates[ids.index(part)] = 1.0 if dose < 0 else dose / (dose + scales[part])
        return gates


def principal_axes(loadings: Array, scores: NDArray[np.floating], n_axes: int) -> Array:
    """Axes ``(at most n_axes, genes)``: those of factors, and the first of scores ``(cells, genes)`` beside them."""
    own = np.linalg.svd(loadings, full_matrices=False)[2]
    start = np.ones(min(scores.shape), dtype=np.float32)
    axes = svds(scores, min(n_axes, min(scores.shape) - 1), v0=start)[2]
    beside = np.linalg.svd(axes - axes @ own.T @ own, full_matrices=False)[2]
    return np.concatenate([own, beside[: len(axes) - len(own)]])


def _treatment(parts: np.ndarray, doses: np.ndarray) -> Treatment:
    if (parts == Code.MISSING).any():
        return None
    return tuple(
        sorted((int(part), float(np.float32(dose))) for part, dose in zip(parts, doses, strict=True) if part >= 0)
    )
