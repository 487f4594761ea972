"""Measured responses: comparisons of treated and untreated cells of a context, matched by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import false_discovery_control, norm

from scdiffgen._codes import Code, Treatment, backoff_levels, distinct_rows

from ._predictors import Predictions, StateMoments, context_predictions, no_source, similarity_weights, state_prediction
from ._pseudobulks import MIN_CELLS, Pseudobulks
from ._stacking import FEW, Prediction, adaptive_shrinkage, james_stein, spread, stack

MOST_KEPT = 300  # maximum number of cached comparisons and responses


class MeasuredContexts(NamedTuple):
    """Contexts in which a treatment was measured."""

    contexts: np.ndarray  # (contexts, columns): codes
    before: np.ndarray  # (contexts, genes): mean log expression of untreated cells
    change: np.ndarray  # (contexts, genes): change of mean log expression at equal sequencing depth
    variance: np.ndarray  # (contexts, genes): sampling variance of the change if both arms have the pooled variance
    inflation: np.ndarray  # (contexts, genes): factor, at least 1, if the variances of the arms differ
    log_ratio: np.ndarray  # (contexts,): log ratio of library sizes, treated to untreated
    n_changed: np.ndarray  # (contexts,): number of genes that change significantly
    states: Sequence[tuple[StateMoments, StateMoments]]  # moments of treated and of untreated cells
    arms: Sequence[Sequence[np.ndarray]]  # numbers of treated and of untreated cells (groups,)
    confounded: bool  # whether no batch has both treated and untreated cells

    def without(self, row: int) -> MeasuredContexts:
        """Leave one context out."""
        fewer = {name: np.delete(getattr(self, name), row, axis=0) for name in self._fields[:7]}
        states, arms = ([*x[:row], *x[row + 1 :]] for x in (self.states, self.arms))
        return self._replace(**fewer, states=states, arms=arms)

    def row(self, context: np.ndarray) -> int | None:
        """Find the row of a context; None if it was not measured."""
        return next(iter(np.flatnonzero((self.contexts == context).all(1)).tolist()), None)

    def estimate(self, row: int | None, before: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the change of a measured context and its variance, or a prediction with variance 0."""
        if row is not None:
            return self.change[row], self.variance[row]
        predicted = self.predict(before, state).change
        return predicted, np.zeros_like(predicted)

    def pooled(self) -> np.ndarray:
        """Average the changes of all contexts ``(genes,)``, weighted by inverse variance."""
        return np.average(self.change, axis=0, weights=1 / (self.variance.sum(1) + np.finfo(float).tiny))

    def predict(self, before: np.ndarray, state: np.ndarray) -> Prediction:
        """Predict the change of a context by stacked regression, given its untreated means and its mean state."""
        # Stacking weights are fitted to left-out contexts; with fewer than three contexts, the plain mean is predicted.
        n_contexts = len(self.change)
        plain = n_contexts < FEW
        left_out = [
            (self.without(row)._predictions(self.before[row], self.states[row][1].state, plain=plain), self.change[row])
            for row in (spread(n_contexts) if n_contexts > 1 else ())
        ]
        stacked = stack(self._predictions(before, state, plain=plain), left_out, "transferred")
        few = f"measured in only {n_contexts} other context{'s' * (n_contexts > 1)}, whose plain mean is predicted"
        sizes = self.log_ratio
        noise = sizes.var(ddof=1) / n_contexts if n_contexts > 1 else 0.0
        size = float(sizes.mean() * james_stein(noise, sizes.mean() ** 2))
        is_noise = not self.n_changed.any()
        lacking = no_source(self.before, self.change, before)
        width = np.where(lacking, np.nan, stacked.half_width)
        known = replace(stacked, half_width=width, log_ratio=size, is_noise=is_noise, no_source=lacking)
        return known.with_cautions(*self.cautions, *([few] if plain else []))

    def _predictions(self, before: np.ndarray, state: np.ndarray, *, plain: bool) -> Predictions:
        """Predict by each predictor, with adaptive shrinkage by the sampling variance of the measured changes."""
        predictions = context_predictions(self.before, self.change, before)
        similar = similarity_weights(self.before, before) ** 2 @ self.variance
        if plain:
            predictions = {"mean response": predictions["mean response"]}
        elif state.size:
            treated, untreated = (StateMoments.mean_of(list(arm)) for arm in zip(*self.states, strict=True))
            predictions["latent arithmetic"] = state_prediction(treated, untreated, self.before, before, state)
        noise = {"mean response": self.variance.sum(0) / len(self.variance) ** 2}
        return {name: adaptive_shrinkage(x, noise.get(name, similar))[0] for name, x in predictions.items()}

    @property
    def cautions(self) -> list[str]:
        """Cautions in words: confounding of treatment and batch."""
        text = "treatment and batch are confounded, as no batch has both treated and untreated cells"
        return [text] if self.confounded else []


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of treated and untreated pseudobulks, matched by the columns ``batches`` of their cell context."""

    bulks: Pseudobulks
    batches: Sequence[int] = ()
    _known: dict[object, MeasuredContexts | None] = field(default_factory=dict, repr=False, compare=False)

    def levels(self, cell_context: np.ndarray) -> list[np.ndarray]:
        """List the back-off levels: columns of all given conditions except batches, then fewer columns."""
        given = np.flatnonzero(cell_context != Code.MISSING)
        return list(backoff_levels(given[~np.isin(given, self.batches)]))

    def untreated(self, cell_context: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        """Count the untreated cells ``(groups,)`` of a context; None if there are fewer than 20."""
        groups = self.bulks.groups
        n_cells = self.bulks.n_cells * (groups.untreated & groups.agree(cell_context, columns))
        return n_cells if n_cells.sum() >= MIN_CELLS else None

    def treated(self, cell_context: np.ndarray, treatment: Treatment) -> np.ndarray | None:
        """Count treated cells ``(groups,)`` under all given conditions, batch included; None if fewer than 20."""
        groups = self.bulks.groups
        given = np.flatnonzero(cell_context != Code.MISSING)
        n_cells = self.bulks.n_cells * (groups.have(treatment) & groups.agree(cell_context, given))
        return n_cells if n_cells.sum() >= MIN_CELLS else None

    def measured(self, columns: np.ndarray, treatment: Treatment) -> MeasuredContexts | None:
        """Return the contexts with treated and untreated cells; None if there are none."""
        key = (tuple(columns), frozenset(treatment.items()))
        if key not in self._known:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key] = self._compare(columns, treatment)
        return self._known[key]

    def change(self, cell_context: np.ndarray, columns: np.ndarray, treatment: Treatment) -> np.ndarray | None:
        """Return the measured change of a context, or its prediction from other contexts; None without either."""
        measured, n_cells = self.measured(columns, treatment), self.untreated(cell_context, columns)
        if measured is None or n_cells is None:
            return None
        row = measured.row(cell_context[columns])
        return measured.predict(*self.means(n_cells)).change if row is None else measured.change[row]

    def means(self, n_cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Average log expression ``(genes,)`` and cell states ``(states,)`` over groups, weighted by ``n_cells``."""
        return self.bulks.mean(n_cells)[0], self.bulks.moments(n_cells).state

    def _compare(self, columns: np.ndarray, treatment: Treatment) -> MeasuredContexts | None:
        """Compare both arms of each context; contexts without a shared batch are used only if no context has one."""
        bulks, rows = self.bulks, []
        contexts, context_of = distinct_rows(bulks.cell_context[:, columns])
        treated, untreated = bulks.groups.have(treatment), bulks.groups.untreated
        for which in np.unique(context_of[treated]):
            in_context = context_of == which
            arms, matched = self._match(in_context & treated, in_context & untreated)
            if min(bulks.n_cells[arm > 0].sum() for arm in arms) < MIN_CELLS or (contexts[which] == Code.MISSING).any():
                continue
            rows.append((matched, contexts[which], *self.compare(*arms), arms))
        crossed = any(row[0] for row in rows)
        chosen = [row[1:] for row in rows if row[0] == crossed]
        if not chosen:
            return None
        *arrays, moments, weights = zip(*chosen, strict=True)
        return MeasuredContexts._make([*map(np.stack, arrays), moments, weights, not crossed])

    def compare(self, treated: np.ndarray, untreated: np.ndarray) -> tuple[Any, ...]:
        """Compare weighted groups; return the fields of :class:`MeasuredContexts` from the means to the states."""
        # Few cells may express a sparse gene by chance in one arm only, whose own variance is then far too small.
        # Changes are shrunk by the pooled variance, which holds without a response; intervals use the larger variance.
        bulks, arms = self.bulks, (treated, untreated)
        (after, noise), (before, noise_before) = map(bulks.mean, arms)
        change, n_cells = after - before, bulks.n_cells
        pooled = np.average(bulks.log_variance, axis=0, weights=n_cells * (treated + untreated > 0))
        variance = pooled * sum((arm**2 / n_cells).sum() / arm.sum() ** 2 for arm in arms)
        ratio = np.divide(noise + noise_before, variance, out=np.ones_like(variance), where=variance > 0)
        log_ratio = np.subtract(*(np.average(bulks.log_library, weights=arm) for arm in arms))
        inflation, states = ratio.clip(min=1), tuple(map(bulks.moments, arms))
        return before, change, variance, inflation, log_ratio, _n_changed(change, variance * inflation), states

    def _match(self, treated: np.ndarray, untreated: np.ndarray) -> tuple[list[np.ndarray], bool]:
        """Compute overlap weights ``(groups,)`` of both arms (Li et al. 2018), and whether any batch has both arms."""
        # Each batch has the same weight in both arms: 0 if it lacks an arm, as have groups that are pooled over it.
        n_cells, in_batch, tiny = self.bulks.n_cells, self.bulks.in_batch, np.finfo(np.float32).tiny
        shares = in_batch / np.maximum(in_batch.sum(1, keepdims=True), tiny)  # of the batches in a group
        n_treated, n_untreated = (np.maximum(in_batch[arm].sum(0), tiny) for arm in (treated, untreated))
        is_covered = ~((in_batch > 0) @ (n_untreated <= tiny))
        after = treated * is_covered * (in_batch @ (n_untreated / (n_treated + n_untreated)))
        before = untreated * (in_batch @ (after @ shares / n_untreated))
        n_unmatched = np.abs((after - before) @ shares).sum() / 2
        if not after.any() or n_unmatched * MIN_CELLS > after.sum():  # more than one cell in twenty
            return [n_cells * treated, n_cells * untreated], False
        return [after, before], True


def _n_changed(change: np.ndarray, variance: np.ndarray) -> int:
    """Count genes that change at a false discovery rate of 5 % (Benjamini-Hochberg)."""
    z = np.abs(change[variance > 0]) / np.sqrt(variance[variance > 0])
    return int((false_discovery_control(2 * norm.sf(z)) <= 0.05).sum())
