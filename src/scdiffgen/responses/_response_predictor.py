"""Prediction of responses in unmeasured contexts, and to unmeasured doses and perturbations.

A context is, for example, a cell type without its batch; a response is a change of mean log expression. The first
available source is used: the response measured in the context, shrunk (empirical Bayes) towards the next prediction;
other contexts or other doses; the parts of a combination; other perturbations by feature vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TypeVar

import numpy as np
from scipy.stats import false_discovery_control, norm

from scdiffgen._codes import Code, Treatment, backoff_levels, distinct_rows

from ._expression_curves import KEPT, CellStates, Responders, Response, depth_factor, mean_change, shares_after
from ._predictors import (
    FEW,
    MOST_LEFT_OUT,
    NO_CHANGE,
    ContextComparison,
    MeasuredContexts,
    Prediction,
    Predictions,
    Untreated,
    between_doses,
    feature_predictions,
    part_predictions,
    spread,
    stack,
)
from ._pseudobulks import MIN_CELLS, Pseudobulks

MOST_KEPT = 300  # maximum number of cached comparisons and responses
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(5)  # quadrature over a normal distribution
Result = TypeVar("Result")


def remembered(known: dict[object, Result], key: object, compute: Callable[[], Result]) -> Result:
    """Look up a result, or compute and keep it, as minibatches request the same again."""
    if key not in known:
        if len(known) >= MOST_KEPT:
            known.clear()
        known[key] = compute()
    return known[key]


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of treated and untreated pseudobulks, matched by the columns ``batches`` of their cell context."""

    bulks: Pseudobulks
    batches: Sequence[int] = ()
    names: Sequence[str] = ()  # names of the conditions in the columns of contexts
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

    def measured(self, columns: np.ndarray, treatment: Treatment) -> MeasuredContexts | None:
        """Return the contexts with treated and untreated cells; None if there are none."""
        key = (tuple(columns), frozenset(treatment.items()))
        return remembered(self._known, key, lambda: self._compare(columns, treatment))

    def untreated(self, context: np.ndarray) -> Iterator[Untreated]:
        """Yield the untreated cells of a context at each back-off level with enough of them."""
        for columns in self.levels(context):
            if (n_cells := self.cells(context, columns)) is not None:
                log_mean, state = self.bulks.mean(n_cells)[0], np.average(self.bulks.state_mean, 0, n_cells)
                yield Untreated(columns, context[columns], n_cells, log_mean, state)

    def first_level(self, context: np.ndarray, treatment: Treatment) -> tuple[Untreated, MeasuredContexts] | None:
        """Find the first back-off level with untreated cells of the context and with the treatment, and both."""
        for untreated in self.untreated(context):
            if (measured := self.measured(untreated.columns, treatment)) is not None:
                return untreated, measured
        return None

    def change(self, untreated: Untreated, treatment: Treatment) -> np.ndarray | None:
        """Return the measured change of a context, or its prediction from other contexts; None without either."""
        measured = self.measured(untreated.columns, treatment)
        return None if measured is None else measured.estimate(untreated)[0]

    def _compare(self, columns: np.ndarray, treatment: Treatment) -> MeasuredContexts | None:
        """Compare both arms of each context; contexts without a shared batch are used only if no context has one."""
        groups, n_cells = self.bulks.groups, self.bulks.n_cells
        contexts, context_of = distinct_rows(groups.cell_context[:, columns])
        treated, untreated = groups.have(treatment), groups.untreated
        found: dict[bool, list[ContextComparison]] = {True: [], False: []}  # by whether a batch has both arms
        for which in np.unique(context_of[treated]):
            in_context = context_of == which
            arms, is_crossed = self._match(in_context & treated, in_context & untreated)
            if min(n_cells[arm > 0].sum() for arm in arms) >= MIN_CELLS and Code.MISSING not in contexts[which]:
                found[is_crossed].append(self.compare(contexts[which], *arms))
        chosen, named = found[True] or found[False], dict(enumerate(self.names))
        names = [named.get(column, f"condition {column}") for column in columns.tolist()]
        return MeasuredContexts(chosen, names, confounded=not found[True]) if chosen else None

    def compare(self, codes: np.ndarray, treated: np.ndarray, untreated: np.ndarray) -> ContextComparison:
        """Compare weighted groups of a context."""
        # Few cells may express a sparse gene by chance in one arm only, whose own variance is then far too small.
        # Changes are shrunk by the pooled variance, which holds without a response; intervals use the larger variance.
        bulks, arms = self.bulks, (treated, untreated)
        (after, noise), (before, noise_before) = map(bulks.mean, arms)
        change, n_cells = after - before, bulks.n_cells
        pooled = np.average(bulks.log_variance, axis=0, weights=n_cells * (treated + untreated > 0))
        variance = pooled * sum((arm**2 / n_cells).sum() / arm.sum() ** 2 for arm in arms)
        ratio = np.divide(noise + noise_before, variance, out=np.ones_like(variance), where=variance > 0)
        log_ratio = np.subtract(*(np.average(bulks.log_library, weights=arm) for arm in arms))
        inflation, moments = ratio.clip(min=1), map(bulks.moments, arms)
        z = np.abs(change[variance > 0]) / np.sqrt((variance * inflation)[variance > 0])
        is_noise = not (false_discovery_control(2 * norm.sf(z)) <= 0.05).any()  # Benjamini-Hochberg
        return ContextComparison(codes, arms, before, change, variance, inflation, log_ratio, is_noise, *moments)

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


@dataclass(frozen=True)
class ResponsePredictor:
    """Predictor of responses from pseudobulks, which are compared within the columns ``batches`` of their context."""

    bulks: Pseudobulks
    features: np.ndarray | None = None  # (interventions, features)
    batches: Sequence[int] = ()
    names: Sequence[str] = ()  # names of the conditions in the columns of contexts
    labels: Sequence[int] = ()  # columns of labels, such as cell types
    _known: dict[object, Response | None] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def comparisons(self) -> Comparisons:
        return Comparisons(self.bulks, self.batches, self.names)

    def change(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict the change of mean log expression from the first source with data; None if the network draws."""
        if not treatment:
            return Prediction.of_no_change(self.bulks.n_genes)
        ((part, dose), *others) = treatment.items()
        largest = max(self._doses(part), default=np.inf)
        if largest < dose < np.inf and not others:
            prediction = self.change(context, {part: largest})
            caution = f"doses beyond the largest measured dose, {largest:g}, have its response"  # same for all doses
            return prediction and prediction.with_cautions(caution)
        sources = self._from_contexts, self._from_doses, self._from_parts, self._from_features
        predictions = (predict(context, treatment) for predict in sources)
        return next((found for found in predictions if found is not None), None)

    def respond(self, context: np.ndarray, source: Treatment, target: Treatment, scale: float = 1.0) -> Response | None:
        """Predict the response of a context between two treatments, times ``scale``; None if no data predict it."""
        key = (*context.tolist(), frozenset(source.items()), frozenset(target.items()), scale)
        return remembered(self._known, key, lambda: self._respond(context, source, target, scale))

    def _respond(self, context: np.ndarray, source: Treatment, target: Treatment, scale: float) -> Response | None:
        untreated = next(self.comparisons.untreated(context), None)
        previous, requested = self.change(context, source), self.change(context, target)
        if untreated is None or previous is None or requested is None:
            return None
        share, curves = self.bulks.share_and_curves(untreated.n_cells)
        before, after = (shares_after(curves, share, scale * x.change) for x in (previous, requested))
        change = mean_change(curves, share, after) - mean_change(curves, share, before)
        factor = depth_factor(scale * (requested.log_ratio - previous.log_ratio))
        if source:
            return Response(before, after, change, requested, factor)
        states, ratio, slopes = None, self._sum_ratio(context, target), self._slopes(context, target)
        if slopes is not None:
            log_mean, own = curves[len(KEPT)], self.bulks.moments(untreated.n_cells)
            wanted = log_mean + scale * requested.change
            lost = np.divide((log_mean - wanted).clip(min=0), log_mean, out=np.zeros_like(wanted), where=log_mean > 0)
            slopes = scale * (1 - requested.weights.get(NO_CHANGE, 0.0)) * slopes + lost.clip(max=1) * own.slopes
            deviation = np.sqrt(np.einsum("sg,st,tg->g", slopes, own.covariance, slopes).clip(min=0))  # over states
            by_state = [shares_after(curves, share, wanted + point * deviation - log_mean) for point in POINTS]
            explained = np.average(by_state, axis=0, weights=WEIGHTS) - share
            has_one_sign = 2 * deviation < np.abs(wanted - log_mean)  # else cells gain or lose, by their states
            defined = has_one_sign & (explained != 0)
            ratio = np.divide(ratio * (after - share), explained, out=np.ones_like(share), where=defined)
            arrays = own.state, wanted, slopes, np.maximum.accumulate(curves)
            states = CellStates(self.bulks.state_loadings, *(x.astype(np.float32) for x in arrays))  # cached
        return Response(before, after, change, requested, factor, Responders.find(curves, share, after, ratio), states)

    def _sum_ratio(self, context: np.ndarray, treatment: Treatment) -> np.ndarray:
        """Compute the ratio ``(genes,)`` of changes of sums of counts to those if all cells changed alike."""
        levels = (self.comparisons.measured(columns, treatment) for columns in self.comparisons.levels(context))
        measured = next((found for found in levels if found is not None), None)
        sums, alike, noise = np.zeros((3, self.bulks.n_genes))  # over all contexts with the treatment
        if measured is None:
            return np.ones_like(sums)
        for compared in measured.comparisons:
            (treated, untreated), change = compared.arms, compared.change
            share, curves = self.bulks.share_and_curves(untreated)
            n_cells = (treated > 0) @ self.bulks.n_cells
            if_alike = shares_after(curves, share, change) - share
            slope = np.divide(if_alike, change, out=np.zeros_like(change), where=change != 0)
            sums += n_cells * (np.average(self.bulks.share, axis=0, weights=treated) - share)
            alike += n_cells * if_alike
            noise += (n_cells * slope) ** 2 * compared.variance
        floor = 2 * np.sqrt(noise) + np.finfo(float).tiny
        return ((sums * np.sign(alike)).clip(min=0) + floor) / (np.abs(alike) + floor)

    def _slopes(self, context: np.ndarray, treatment: Treatment) -> np.ndarray | None:
        """Average the slopes of the change on cell states ``(states, genes)`` over contexts; None if too few."""
        level = self.comparisons.first_level(context, treatment)
        if level is None or not self.bulks.state_loadings.size:
            return None
        untreated, measured = level
        if len(measured.comparisons) < FEW and measured.row(untreated.codes) is None:
            return None
        return np.mean([x.treated.slopes - x.untreated.slopes for x in measured.comparisons], axis=0)

    def has_measured(self, context: np.ndarray, treatment: Treatment) -> bool:
        """Check whether enough cells of a context, batch included, have exactly these interventions."""
        return self.comparisons.cells(context, np.flatnonzero(context != Code.MISSING), treatment) is not None

    def _from_contexts(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict from measured contexts, with back-off over the columns of the context."""
        table, given = self.comparisons, np.flatnonzero(context != Code.MISSING)
        if (level := table.first_level(context, treatment)) is None:
            return None
        untreated, measured = level
        left_out = np.setdiff1d(table.levels(context)[0], untreated.columns)
        is_coarser = len(left_out) > 0 and not np.isin(self.labels, left_out).any()  # other labels are no controls
        treated = table.cells(context, given, treatment)
        if treated is not None and (is_coarser or (measured.confounded and np.isin(table.batches, given).any())):
            return self._confounded(context, treated, untreated.n_cells)
        if (row := measured.row(untreated.codes)) is None:
            return measured.predict(untreated)
        # The measured response is shrunk towards predictions from other contexts and doses, else from other treatments.
        priors = [measured.without(row).predict(untreated)] if len(measured.comparisons) > 1 else []
        ((part, dose), *_) = treatment.items()
        is_below = dose < max(self._doses(part), default=0)  # others cannot predict the largest dose
        if is_below and (interpolated := self._from_doses(context, treatment)) is not None:
            priors.append(interpolated)
        if not priors and len(singles := self._other_singles(untreated, treatment)) >= FEW:
            priors.append(stack({"mean of perturbations": np.mean(singles, axis=0)}, [], "transferred"))
        own = measured.comparisons[row].shrunk(priors, *measured.cautions, is_noise=measured.is_noise)
        return replace(own, source="transferred") if len(left_out) else own  # of coarser contexts

    def _confounded(self, context: np.ndarray, treated: np.ndarray, untreated: np.ndarray) -> Prediction:
        """Compare treated cells of the requested conditions with control cells of other conditions."""
        compared = self.comparisons.compare(context, treated, untreated)
        differ = (context != Code.MISSING) & ~(self.bulks.cell_context[untreated > 0] == context).any(0)
        distinct = dict.fromkeys(name for name, other in zip(self.names, differ, strict=False) if other)
        names = " and ".join(map(repr, distinct)) or "other conditions"
        caution = f"treatment and {names} are confounded, as control cells have another {names}"
        return compared.shrunk([], caution, is_noise=compared.is_noise)

    def _from_doses(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict the response to one perturbation from its other doses, with back-off over the columns."""
        ((part, dose), *others) = treatment.items()
        doses = [] if others or not np.isfinite(dose) else [x for x in self._doses(part) if x != dose]
        for untreated in self.comparisons.untreated(context):
            at_doses = {x: self.comparisons.measured(untreated.columns, {part: x}) for x in doses}
            measured = {x: contexts for x, contexts in at_doses.items() if contexts is not None}
            if measured:
                return between_doses(untreated, dose, measured)
        return None

    def _doses(self, part: int) -> list[float]:
        """List the finite doses of an intervention that was given alone."""
        ids = self.bulks.interventions
        alone = (ids == part) & ((ids >= 0).sum(1) == 1)[:, None]
        return [dose for dose in np.unique(self.bulks.doses[alone]).tolist() if np.isfinite(dose)]

    def _from_parts(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict the response to an unmeasured combination from its parts, stacked by leaving combinations out."""
        table, untreated = self.comparisons, next(self.comparisons.untreated(context), None)
        if len(treatment) == 1 or untreated is None:
            return None
        singles = self._other_singles(untreated, treatment)

        def predict(whole: Treatment) -> tuple[Predictions, list[Prediction]] | None:
            parts = [{part: dose} for part, dose in whole.items()]
            predicted = [found for part in parts if (found := self.change(context, part)) is not None]
            if len(predicted) < len(parts):
                return None
            own = [table.change(untreated, part) for part in parts]
            changes = np.stack([x.change for x in predicted])
            measured = [shrunk if change is None else change for change, shrunk in zip(own, changes, strict=True)]
            return part_predictions(changes, np.stack(measured), np.mean(singles or changes, axis=0)), predicted

        if (combined := predict(treatment)) is None:
            return None
        predictions, parts = combined
        left_out = (
            (predicted[0], truth)
            for whole in self.bulks.treatments()
            if len(whole) > 1
            and (truth := table.change(untreated, whole)) is not None
            and (predicted := predict(whole)) is not None
        )
        stacked = stack(predictions, [*islice(left_out, MOST_LEFT_OUT)], "parts", shrinks=True)
        if np.isnan(stacked.half_width).any():
            stacked = replace(stacked, half_width=np.sqrt(np.mean([x.half_width**2 for x in parts], axis=0)))
        no_source = np.any(np.broadcast_arrays(*(x.no_source for x in parts)), axis=0)
        return replace(stacked, log_ratio=sum(x.log_ratio for x in parts), no_source=no_source)

    def _from_features(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict the response to a perturbation from others at the same dose by features (stacked, leave-one-out)."""
        ((part, dose), *others) = treatment.items()
        if others or self.features is None:
            return None
        ids = np.setdiff1d(self.bulks.interventions, [part, *Code]).tolist()
        found = {x: self._measured_or_interpolated(context, {x: dose}) for x in ids}
        changes = {x: change for x, change in found.items() if change is not None}
        if len(changes) < FEW:
            return None
        features, responses = self.features[list(changes)], np.stack(list(changes.values()))
        left_out = [
            (feature_predictions(np.delete(responses, i, 0), np.delete(features, i, 0), features[i]), responses[i])
            for i in (spread(len(responses)) if len(responses) > FEW else ())
        ]
        return stack(feature_predictions(responses, features, self.features[part]), left_out, "features")

    def _measured_or_interpolated(self, context: np.ndarray, treatment: Treatment) -> np.ndarray | None:
        """Return the change by the treatment in the context or in others, or from other doses; None without data."""
        if (level := self.comparisons.first_level(context, treatment)) is not None:
            untreated, measured = level
            return measured.estimate(untreated)[0]
        interpolated = self._from_doses(context, treatment)
        return None if interpolated is None else interpolated.change

    def _other_singles(self, untreated: Untreated, treatment: Treatment) -> list[np.ndarray]:
        """Return the changes of a context by the other measured single perturbations."""
        singles = (single for single in self.bulks.treatments() if len(single) == 1 and single != treatment)
        changes = (self.comparisons.change(untreated, single) for single in singles)
        return [change for change in changes if change is not None]
