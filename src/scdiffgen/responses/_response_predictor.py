"""Prediction of responses in unmeasured contexts, and to unmeasured doses and perturbations.

A context is, for example, a cell type without its batch; a response is a change of mean log expression. The first
available source is used: the response measured in the context, shrunk (empirical Bayes) towards the next prediction;
other contexts or other doses; the parts of a combination; other perturbations by feature vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control, norm

from scdiffgen._codes import Code, Treatment, backoff_levels, distinct_rows

from ._expression_curves import KEPT, CellStates, Responders, Response, depth_factor, mean_change, shares_after
from ._predictors import (
    FEW,
    MOST_LEFT_OUT,
    NO_CHANGE,
    MeasuredContexts,
    Prediction,
    Predictions,
    dose_weights,
    feature_predictions,
    over_doses,
    part_predictions,
    shrink_towards,
    spread,
    stack,
)
from ._pseudobulks import MIN_CELLS, Pseudobulks

MOST_KEPT = 300  # maximum number of cached comparisons and responses
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(5)  # quadrature over a normal distribution
ContextLevel = tuple[np.ndarray, np.ndarray, MeasuredContexts]
"""Columns of a back-off level, numbers of untreated cells ``(groups,)``, and contexts with the treatment."""


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

    def cells(self, context: np.ndarray, columns: np.ndarray, treatment: Treatment | None = None) -> np.ndarray | None:
        """Count the cells ``(groups,)`` of a context with a treatment, by default none; None if fewer than 20."""
        groups = self.bulks.groups
        n_cells = self.bulks.n_cells * (groups.have(treatment or {}) & groups.agree(context, columns))
        return n_cells if n_cells.sum() >= MIN_CELLS else None

    def first_level(self, context: np.ndarray, treatment: Treatment) -> ContextLevel | None:
        """Find the first back-off level with untreated cells of the context and with the treatment, and both."""
        for columns in self.levels(context):
            n_cells, measured = self.cells(context, columns), self.measured(columns, treatment)
            if n_cells is not None and measured is not None:
                return columns, n_cells, measured
        return None

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
        measured, n_cells = self.measured(columns, treatment), self.cells(cell_context, columns)
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


@dataclass(frozen=True)
class ResponsePredictor:
    """Predictor of responses from pseudobulks, which are compared within the columns ``batches`` of their context."""

    bulks: Pseudobulks
    features: np.ndarray | None = None  # (interventions, features)
    batches: Sequence[int] = ()
    names: Sequence[str] = ()  # names of the conditions in the columns of contexts
    labels: Sequence[int] = ()  # columns of labels, such as cell types
    comparisons: Comparisons = field(init=False, repr=False, compare=False)
    _known: dict[object, Response | None] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "comparisons", Comparisons(self.bulks, self.batches))

    def change(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict the change of mean log expression by contexts, else doses or parts, else features; else None."""
        # Doses beyond the largest measured dose have the response to the largest dose. The network draws for None.
        if not treatment:
            return Prediction.of_no_change(self.bulks.n_genes)
        if len(treatment) > 1:
            return self._from_contexts(context, treatment) or self._from_parts(context, treatment)
        ((part, dose),) = treatment.items()
        doses = self._doses(part)
        if doses and max(doses) < dose < np.inf:
            prediction = self.change(context, {part: max(doses)})
            caution = f"doses beyond the largest measured dose, {max(doses):g}, have its response"  # same for all doses
            return prediction and prediction.with_cautions(caution)
        prediction = self._from_contexts(context, treatment)
        return prediction or self._from_doses(context, part, dose) or self._from_features(context, part, dose)

    def respond(self, context: np.ndarray, source: Treatment, target: Treatment, scale: float = 1.0) -> Response | None:
        """Predict the response of a context between two treatments, times ``scale``; None if no data predict it."""
        key = (*context.tolist(), frozenset(source.items()), frozenset(target.items()), scale)
        if key not in self._known:  # minibatches request the same responses
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key] = self._respond(context, source, target, scale)
        return self._known[key]

    def _respond(self, context: np.ndarray, source: Treatment, target: Treatment, scale: float) -> Response | None:
        levels = (self.comparisons.cells(context, columns) for columns in self.comparisons.levels(context))
        n_cells = next((numbers for numbers in levels if numbers is not None), None)
        previous, requested = self.change(context, source), self.change(context, target)
        if n_cells is None or previous is None or requested is None:
            return None
        share, curves = self.bulks.share_and_curves(n_cells)
        before, after = (shares_after(curves, share, scale * x.change) for x in (previous, requested))
        change = mean_change(curves, share, after) - mean_change(curves, share, before)
        factor = depth_factor(scale * (requested.log_ratio - previous.log_ratio))
        ratio = np.ones_like(share) if source else self._sum_ratio(context, target)
        slopes = None if source else self._slopes(context, target)
        if slopes is None:
            return Response(before, after, change, requested, factor, Responders.find(curves, share, after, ratio))
        log_mean, own = curves[len(KEPT)], self.bulks.moments(n_cells)
        wanted = log_mean + scale * requested.change
        lost = np.divide((log_mean - wanted).clip(min=0), log_mean, out=np.zeros_like(wanted), where=log_mean > 0)
        slopes = scale * (1 - requested.weights.get(NO_CHANGE, 0.0)) * slopes + lost.clip(max=1) * own.slopes
        deviation = np.sqrt(np.einsum("sg,st,tg->g", slopes, own.covariance, slopes).clip(min=0))  # over states
        by_state = [shares_after(curves, share, wanted + point * deviation - log_mean) for point in POINTS]
        explained = np.average(by_state, axis=0, weights=WEIGHTS) - share
        has_one_sign = 2 * deviation < np.abs(wanted - log_mean)  # else cells gain or lose, by their states
        defined = has_one_sign & (explained != 0)
        unexplained = np.divide(ratio * (after - share), explained, out=np.ones_like(share), where=defined)
        responders = Responders.find(curves, share, after, unexplained)
        rising = np.maximum.accumulate(curves)
        state, wanted, slopes, rising = (x.astype(np.float32) for x in (own.state, wanted, slopes, rising))  # cached
        states = CellStates(self.bulks.state_loadings, state, wanted, slopes, rising)
        return Response(before, after, change, requested, factor, responders, states)

    def _sum_ratio(self, context: np.ndarray, treatment: Treatment) -> np.ndarray:
        """Compute the ratio ``(genes,)`` of changes of sums of counts to those if all cells changed alike."""
        levels = (self.comparisons.measured(columns, treatment) for columns in self.comparisons.levels(context))
        measured = next((found for found in levels if found is not None), None)
        sums, alike, noise = np.zeros((3, self.bulks.n_genes))  # over all contexts with the treatment
        if measured is None:
            return np.ones_like(sums)
        rows = zip(measured.arms, measured.change, measured.variance, strict=True)
        for (treated, untreated), change, variance in rows:
            share, curves = self.bulks.share_and_curves(untreated)
            treated_share = np.average(self.bulks.share, axis=0, weights=treated)
            n_cells = (treated > 0) @ self.bulks.n_cells
            if_alike = shares_after(curves, share, change) - share
            slope = np.divide(if_alike, change, out=np.zeros_like(change), where=change != 0)
            sums += n_cells * (treated_share - share)
            alike += n_cells * if_alike
            noise += (n_cells * slope) ** 2 * variance
        floor = 2 * np.sqrt(noise) + np.finfo(float).tiny
        return ((sums * np.sign(alike)).clip(min=0) + floor) / (np.abs(alike) + floor)

    def _slopes(self, context: np.ndarray, treatment: Treatment) -> np.ndarray | None:
        """Average the slopes of the change on cell states ``(states, genes)`` over contexts; None if too few."""
        level = self.comparisons.first_level(context, treatment)
        if level is None or not self.bulks.state_loadings.size:
            return None
        columns, _, measured = level
        if len(measured.states) < FEW and measured.row(context[columns]) is None:
            return None
        return np.mean([treated.slopes - untreated.slopes for treated, untreated in measured.states], axis=0)

    def has_measured(self, context: np.ndarray, treatment: Treatment) -> bool:
        """Check whether enough cells of a context, batch included, have exactly these interventions."""
        return self.comparisons.cells(context, np.flatnonzero(context != Code.MISSING), treatment) is not None

    def _from_contexts(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict from measured contexts, with back-off over the columns of the context."""
        table, given = self.comparisons, np.flatnonzero(context != Code.MISSING)
        if (level := table.first_level(context, treatment)) is None:
            return None
        columns, n_cells, measured = level
        left_out = np.setdiff1d(table.levels(context)[0], columns)
        is_coarser = len(left_out) > 0 and not np.isin(self.labels, left_out).any()  # other labels are no controls
        treated = table.cells(context, given, treatment)
        if treated is not None and (is_coarser or (measured.confounded and np.isin(table.batches, given).any())):
            return self._confounded(context, treated, n_cells)
        row = measured.row(context[columns])
        if row is None:
            return measured.predict(*table.means(n_cells))
        own = self._own(context, treatment, level, row)
        return replace(own, source="transferred") if len(left_out) else own  # of coarser contexts

    def _own(self, context: np.ndarray, treatment: Treatment, level: ContextLevel, row: int) -> Prediction:
        """Shrink the response of a measured context towards the predictions of other contexts, doses or treatments."""
        columns, n_cells, measured = level
        others = measured.without(row)
        priors = [others.predict(*self.comparisons.means(n_cells))] if len(others.change) else []
        ((part, dose), *combined) = treatment.items()
        if not combined and dose < max(self._doses(part), default=0):  # others cannot predict the largest dose
            interpolated = self._from_doses(context, part, dose)
            priors += [] if interpolated is None else [interpolated]
        if not priors:
            singles = [change for single, change in self._singles(context, columns) if single != treatment]
            if len(singles) >= FEW:
                priors = [stack({"mean of perturbations": np.mean(singles, axis=0)}, [], "transferred")]
        shrunk = shrink_towards(measured.change[row], measured.variance[row], measured.inflation[row], priors)
        log_ratio, is_noise = float(measured.log_ratio[row]), not measured.n_changed.any()
        return replace(shrunk, log_ratio=log_ratio, is_noise=is_noise).with_cautions(*measured.cautions)

    def _confounded(self, context: np.ndarray, treated: np.ndarray, untreated: np.ndarray) -> Prediction:
        """Compare treated cells of the requested conditions with control cells of other conditions."""
        _, change, variance, inflation, log_ratio, n_changed, _ = self.comparisons.compare(treated, untreated)
        differ = (context != Code.MISSING) & ~(self.bulks.cell_context[untreated > 0] == context).any(0)
        distinct = dict.fromkeys(name for name, other in zip(self.names, differ, strict=False) if other)
        names = " and ".join(map(repr, distinct)) or "other conditions"
        caution = f"treatment and {names} are confounded, as control cells have another {names}"
        shrunk = shrink_towards(change, variance, inflation, [])
        return replace(shrunk, log_ratio=float(log_ratio), is_noise=not n_changed).with_cautions(caution)

    def _from_doses(self, context: np.ndarray, part: int, dose: float) -> Prediction | None:
        """Predict the response to one perturbation from its other doses, stacked by leaving each dose out."""
        table, doses = self.comparisons, [other for other in self._doses(part) if other != dose]
        for columns in table.levels(context) if np.isfinite(dose) else ():
            measured = {x: contexts for x in doses if (contexts := table.measured(columns, {part: x})) is not None}
            cells = table.cells(context, columns)
            if not measured or cells is None:
                continue
            pooled = {x: contexts.pooled() for x, contexts in measured.items()}
            means, is_below = table.means(cells), dose < min(measured)
            own = {x: contexts.estimate(contexts.row(context[columns]), *means) for x, contexts in measured.items()}
            left_out = []
            for held_out in [x for x in measured if x < max(measured)]:
                for held_context, change in zip(measured[held_out].contexts, measured[held_out].change, strict=True):
                    rows = {x: contexts.row(held_context) for x, contexts in measured.items() if x != held_out}
                    rest = {x: measured[x].estimate(row, *means) for x, row in rows.items() if row is not None}
                    is_alike = rest and (held_out < min(rest)) == is_below  # as far from the others as the dose
                    left_out += [(over_doses(held_out, rest, pooled), change)] if is_alike else []
            log_ratios = np.array([contexts.log_ratio.mean() for contexts in measured.values()])
            log_ratio = float(dose_weights(dose, np.array(list(measured))) @ log_ratios)
            return replace(stack(over_doses(dose, own, pooled), left_out, "transferred"), log_ratio=log_ratio)
        return None

    def _doses(self, part: int) -> list[float]:
        """List the finite doses of an intervention that was given alone."""
        ids = self.bulks.interventions
        alone = (ids == part) & ((ids >= 0).sum(1) == 1)[:, None]
        return [dose for dose in np.unique(self.bulks.doses[alone]).tolist() if np.isfinite(dose)]

    def _from_parts(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict the response to an unmeasured combination from its parts, stacked by leaving combinations out."""
        table = self.comparisons
        levels = (level for level in table.levels(context) if table.cells(context, level) is not None)
        if (columns := next(levels, None)) is None:
            return None
        singles = [change for _, change in self._singles(context, columns)]

        def predict(whole: Treatment) -> tuple[Predictions, list[Prediction]] | None:
            parts = [{part: dose} for part, dose in whole.items()]
            predicted = [change for part in parts if (change := self.change(context, part)) is not None]
            if len(predicted) < len(parts):
                return None
            own = [table.change(context, columns, part) for part in parts]
            changes = np.stack([x.change for x in predicted])
            measured = [shrunk if change is None else change for change, shrunk in zip(own, changes, strict=True)]
            return part_predictions(changes, np.stack(measured), np.mean(singles or changes, axis=0)), predicted

        combined = predict(treatment)
        if combined is None:
            return None
        predictions, parts = combined
        left_out: list[tuple[Predictions, np.ndarray]] = []
        for whole in (combination for combination in self.bulks.treatments() if len(combination) > 1):
            truth = table.change(context, columns, whole) if len(left_out) < MOST_LEFT_OUT else None
            predicted = None if truth is None else predict(whole)
            left_out += [] if predicted is None or truth is None else [(predicted[0], truth)]
        stacked = stack(predictions, left_out, "parts", shrinks=True)
        if np.isnan(stacked.half_width).any():
            stacked = replace(stacked, half_width=np.sqrt(np.mean([x.half_width**2 for x in parts], axis=0)))
        no_source = np.any(np.broadcast_arrays(*(x.no_source for x in parts)), axis=0)
        return replace(stacked, log_ratio=sum(x.log_ratio for x in parts), no_source=no_source)

    def _from_features(self, context: np.ndarray, part: int, dose: float) -> Prediction | None:
        """Predict the response to a perturbation from others at the same dose by features (stacked, leave-one-out)."""
        if self.features is None:
            return None
        changes, table = dict[int, np.ndarray](), self.comparisons
        ids = np.unique(self.bulks.interventions)
        for other in ids[(ids >= 0) & (ids != part)].tolist():
            by_level = (table.change(context, level, {other: dose}) for level in table.levels(context))
            response = next((change for change in by_level if change is not None), None)
            if response is None and (interpolated := self._from_doses(context, other, dose)) is not None:
                response = interpolated.change
            if response is not None:
                changes[other] = response
        if len(changes) < FEW:
            return None
        features, responses = self.features[list(changes)], np.stack(list(changes.values()))
        left_out: list[tuple[Predictions, np.ndarray]] = []
        for row in spread(len(responses)) if len(responses) > FEW else ():
            rest = np.arange(len(responses)) != row
            left_out.append((feature_predictions(responses[rest], features[rest], features[row]), responses[row]))
        return stack(feature_predictions(responses, features, self.features[part]), left_out, "features")

    def _singles(self, context: np.ndarray, columns: np.ndarray) -> list[tuple[Treatment, np.ndarray]]:
        """Return the changes of a context by measured single perturbations."""
        singles = (treatment for treatment in self.bulks.treatments() if len(treatment) == 1)
        pairs = ((single, self.comparisons.change(context, columns, single)) for single in singles)
        return [(single, change) for single, change in pairs if change is not None]
