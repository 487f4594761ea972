"""Measured responses: treated cells of a context beside untreated cells of the same batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from scdiffgen._codes import Code, backoff_levels, distinct_rows

from ._expression_curves import depth_effect
from ._predictors import Predictions, StateMoments, context_predictions, similarity_weights, state_prediction
from ._pseudobulks import MIN_CELLS, Pseudobulks
from ._stacking import FEW, Prediction, james_stein, shrink_noise, spread, stack

MOST_KEPT = 300  # comparisons, and responses, that are kept once they are computed
Treatment = Mapping[int, float]
"""Dose of each intervention, by its id; empty for untreated cells."""


class MeasuredContexts(NamedTuple):
    """Contexts in which a treatment was measured."""

    contexts: np.ndarray  # codes (contexts, columns)
    before: np.ndarray  # mean log expression of untreated cells (contexts, genes)
    change: np.ndarray  # of the mean (contexts, genes)
    variance: np.ndarray  # sampling variance of the change (contexts, genes)
    at_depth: np.ndarray  # change at equal sequencing depth (contexts, genes)
    log_ratio: np.ndarray  # of library sizes, treated to untreated (contexts,)
    states: Sequence[tuple[StateMoments, StateMoments]]  # of treated and of untreated cells
    confounded: bool  # whether no batch has both treated and untreated cells

    def without(self, row: int) -> MeasuredContexts:
        """All contexts but one."""
        fewer = {name: np.delete(getattr(self, name), row, axis=0) for name in self._fields[:6]}
        return self._replace(**fewer, states=[*self.states[:row], *self.states[row + 1 :]])

    def row(self, context: np.ndarray) -> int | None:
        """Where a context is, if it was measured."""
        return next(iter(np.flatnonzero((self.contexts == context).all(1)).tolist()), None)

    def pooled(self) -> np.ndarray:
        """Mean change of all contexts ``(genes,)``, by inverse variance."""
        return np.average(self.change, axis=0, weights=1 / (self.variance.sum(1) + np.finfo(float).tiny))

    def predict(self, before: np.ndarray, state: np.ndarray) -> Prediction:
        """Predict the change of a context with these untreated means and this mean state."""
        # Each context is left out in turn to weigh predictors; fewer than three predict their plain mean.
        n_contexts = len(self.change)
        plain, left_out = n_contexts < FEW, []
        rows = spread(n_contexts) if n_contexts > 1 else np.zeros(0, dtype=int)
        for row in rows:
            made = self.without(row)._predictions(self.before[row], self.states[row][1].state, plain=plain)
            left_out.append((made, self.at_depth[row]))
        of_depth = (self.change - self.at_depth)[rows] if left_out else 0.0
        found = stack(self._predictions(before, state, plain=plain), left_out, "measured", nuisance=of_depth)
        noise = similarity_weights(self.before, before) ** 2 @ self.variance
        few = f"measured in {n_contexts} other context{'s' * (n_contexts > 1)} alone, whose plain mean is predicted"
        sizes = self.log_ratio
        size = sizes.mean() * james_stein(sizes.var() / max(n_contexts - 1, 1), sizes.mean() ** 2) * (n_contexts > 1)
        found = shrink_noise(replace(found, log_ratio=float(size)), float(noise.sum()))
        return found.with_cautions(*self.cautions, *([few] if plain else []))

    def _predictions(self, before: np.ndarray, state: np.ndarray, *, plain: bool) -> Predictions:
        made = context_predictions(self.before, self.at_depth, before)
        if plain:
            return {"mean response": made["mean response"]}
        if state.size:
            treated, untreated = (StateMoments.mean_of(list(arm)) for arm in zip(*self.states, strict=True))
            made["latent arithmetic"] = state_prediction(treated, untreated, self.before, before, state)
        return made

    @property
    def cautions(self) -> list[str]:
        """What to be careful about, in words."""
        text = "treatment and batch are confounded, as no batch has both treated and untreated cells"
        return [text] if self.confounded else []


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of treated with untreated groups of pseudobulks, within columns ``batches`` of their cell context."""

    bulks: Pseudobulks
    batches: Sequence[int] = ()
    _known: dict[object, MeasuredContexts | None] = field(default_factory=dict, repr=False, compare=False)

    def levels(self, cell_context: np.ndarray) -> list[np.ndarray]:
        """Columns of the conditions that are given, without batches; then fewer and fewer."""
        given = np.flatnonzero(cell_context != Code.MISSING)
        return list(backoff_levels(given[~np.isin(given, self.batches)]))

    def untreated(self, cell_context: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        """Numbers of untreated cells ``(groups,)`` of a context; none if they are fewer than 20."""
        n_cells = self.bulks.n_cells * (self.bulks.have({}) & self.bulks.agree(cell_context, columns))
        return n_cells if n_cells.sum() >= MIN_CELLS else None

    def measured(self, columns: np.ndarray, treatment: Treatment) -> MeasuredContexts | None:
        """Contexts that were measured with a treatment and without, if any was."""
        key = (tuple(columns), frozenset(treatment.items()))
        if key not in self._known:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key] = self._compare(columns, treatment)
        return self._known[key]

    def change(self, cell_context: np.ndarray, columns: np.ndarray, treatment: Treatment) -> np.ndarray | None:
        """Change of a context as it was measured, or else as other contexts predict it; none if neither can."""
        measured, n_cells = self.measured(columns, treatment), self.untreated(cell_context, columns)
        if measured is None or n_cells is None:
            return None
        row = measured.row(cell_context[columns])
        return measured.predict(*self.means(n_cells)).change if row is None else measured.change[row]

    def means(self, n_cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean log expression ``(genes,)`` and mean state ``(states,)`` of groups with these numbers of cells."""
        return self.bulks.mean(n_cells)[0], self.bulks.moments(n_cells).state

    def _compare(self, columns: np.ndarray, treatment: Treatment) -> MeasuredContexts | None:
        """Compare the arms of each context; those without a batch that has both only if no context has such a batch."""
        bulks, rows = self.bulks, []
        contexts, context_of = distinct_rows(bulks.cell_context[:, columns])
        treated, untreated = bulks.have(treatment), bulks.have({})
        for which in np.unique(context_of[treated]):
            here = context_of == which
            arms, matched = self._match(here & treated, here & untreated)
            n_cells = [bulks.n_cells[arm > 0].sum() for arm in arms]
            if min(n_cells) < MIN_CELLS or (contexts[which] == Code.MISSING).any():
                continue
            (after, noise), (before, noise_before) = map(bulks.mean, arms)
            log_ratio = np.subtract(*(np.average(bulks.log_library, weights=arm) for arm in arms))
            curves = np.average(bulks.curves, axis=0, weights=arms[1][untreated])
            change = after - before
            sizes = change - depth_effect(curves, log_ratio), log_ratio
            states = bulks.moments(arms[0]), bulks.moments(arms[1])
            rows.append((matched, contexts[which], before, change, noise + noise_before, *sizes, states))
        crossed = any(row[0] for row in rows)
        chosen = [row[1:] for row in rows if row[0] == crossed]
        if not chosen:
            return None
        of_contexts = [row[-1] for row in chosen]
        arrays = zip(*(row[:-1] for row in chosen), strict=True)
        codes, before, change, variance, at_depth, log_ratio = map(np.stack, arrays)
        return MeasuredContexts(codes, before, change, variance, at_depth, log_ratio, of_contexts, not crossed)

    def _match(self, treated: np.ndarray, untreated: np.ndarray) -> tuple[list[np.ndarray], bool]:
        """Overlap weights ``(groups,)`` of both arms (Li, Morgan & Zaslavsky 2018); whether a batch has both arms."""
        # Each batch counts as much in one arm as in the other, and not at all without one of them.
        n_cells, cell_context = self.bulks.n_cells, self.bulks.cell_context[:, list(self.batches)]
        batch_of = distinct_rows(cell_context)[1]
        totals = [np.bincount(batch_of, n_cells * arm) for arm in (treated, untreated)]
        both = np.minimum(*totals) > 0
        if not both.any():
            return [n_cells * treated, n_cells * untreated], False
        treated_share, untreated_share = (total / np.maximum(sum(totals), 1) for total in totals)
        return [n_cells * treated * untreated_share[batch_of], n_cells * untreated * treated_share[batch_of]], True
