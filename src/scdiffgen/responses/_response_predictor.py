"""Prediction of responses in unmeasured contexts, and to unmeasured doses and perturbations.

A context is, for example, a cell type without its batch; a response is a change of mean log expression. The first
available source is used: the response measured in the context, shrunk (empirical Bayes) towards the next prediction;
other contexts or other doses; the parts of a combination; other perturbations by feature vectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from scdiffgen._codes import Code, Treatment
from scdiffgen._log_normalise import log_normalise

from ._comparisons import MOST_KEPT, Comparisons, MeasuredContexts
from ._expression_curves import (
    KEPT,
    STEPS,
    apply_response,
    depth_factor,
    mean_change,
    responding_share,
    shares_after,
    shares_at,
)
from ._predictors import Predictions, dose_predictions, dose_weights, feature_predictions, part_predictions
from ._pseudobulks import Pseudobulks
from ._stacking import FEW, MOST_LEFT_OUT, NO_CHANGE, Prediction, adaptive_shrinkage, shrink_towards, spread, stack

Estimate = tuple[np.ndarray, np.ndarray]
"""A change of mean log expression and its sampling variance, both ``(genes,)``."""

POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(5)  # quadrature over a normal distribution


class CellStates(NamedTuple):
    """Regression of log expression after a response on the cell state before it."""

    loadings: np.ndarray  # (genes, states)
    mean: np.ndarray  # (states,): mean state
    expression: np.ndarray  # (genes,): log expression after the response, at the mean state
    slopes: np.ndarray  # (states, genes)
    curves: np.ndarray  # (steps, genes): mean log expression after each step


class Responders(NamedTuple):
    """Cells that respond in each gene, where equal changes of all cells would give another sum of counts."""

    share: np.ndarray  # (genes,): share of the cells; a cell that responds in a gene does so in all with a larger share
    factor: np.ndarray  # (genes,): of their changes

    @classmethod
    def find(cls, curves: np.ndarray, before: np.ndarray, after: np.ndarray, ratio: np.ndarray) -> Self | None:
        """Find the cells in which ``ratio`` times the change leaves the mean log expression as it is; None for all."""
        # Only concentration is possible: it increases the sums of rising genes and those of falling ones.
        ratio = np.where(after > before, ratio.clip(min=1), ratio.clip(max=1))
        if (ratio == 1).all():
            return None
        share = responding_share(curves, before, after, ratio)
        return cls(share, ratio / share)

    def concentrate(self, before: np.ndarray, after: np.ndarray, rng: np.random.Generator, n_cells: int) -> np.ndarray:
        """Concentrate the changes of all cells in the cells that respond; return shares ``(cells, genes)``."""
        responds = rng.random((n_cells, 1)) < self.share
        return (before + responds * self.factor * (after - before)).clip(min=0)


class Response(NamedTuple):
    """Response of the cells of a context."""

    before: np.ndarray  # (genes,): shares of genes among the molecules before the response
    after: np.ndarray  # (genes,): shares after the response, at equal sequencing depth
    mean_change: np.ndarray  # (genes,): change of mean log expression at equal sequencing depth
    prediction: Prediction
    factor: float = 1.0  # of the sequencing depth
    responders: Responders | None = None  # None if all cells respond
    states: CellStates | None = None  # None if the response does not depend on the cell state

    def apply(self, counts: sparse.csr_matrix, rng: np.random.Generator, *, keep_library: bool) -> sparse.csr_matrix:
        """Predict counts ``(cells, genes)`` after the response, in chunks, because shares of cells are dense."""
        chunks = (counts[first : first + 1_000] for first in range(0, max(counts.shape[0], 1), 1_000))
        predicted = []
        for cells in chunks:
            after = self.shares(cells)
            if self.responders is not None:
                after = self.responders.concentrate(self.before, after, rng, cells.shape[0])
            predicted.append(
                apply_response(cells, self.before, after, rng, factor=self.factor, keep_library=keep_library)
            )
        return sparse.vstack(predicted, format="csr")

    def shares(self, counts: sparse.csr_matrix) -> np.ndarray:
        """Compute shares after the response, by cell ``(cells, genes)`` or for all cells ``(genes,)``."""
        if self.states is None:
            return self.after
        loadings, mean, expression, slopes, curves = self.states
        wanted = (expression + (log_normalise(counts) @ loadings - mean) @ slopes).clip(min=0)
        steps = [np.interp(gene, curve, STEPS) for gene, curve in zip(wanted.T, curves.T, strict=True)]
        return shares_at(self.before, np.column_stack(steps))


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
        """Predict the change of mean log expression by contexts, else doses or parts, else features."""
        # Doses beyond the largest measured dose have the response to the largest dose.
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
        levels = (self.comparisons.untreated(context, columns) for columns in self.comparisons.levels(context))
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
        for (treated, untreated), change, variance in zip(
            measured.arms, measured.change, measured.variance, strict=True
        ):
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
        for columns in self.comparisons.levels(context):
            measured = self.comparisons.measured(columns, treatment)
            if measured is None or self.comparisons.untreated(context, columns) is None:
                continue
            few = len(measured.states) < FEW and measured.row(context[columns]) is None
            if few or not self.bulks.state_loadings.size:
                return None
            return np.mean([treated.slopes - untreated.slopes for treated, untreated in measured.states], axis=0)
        return None

    def has_measured(self, context: np.ndarray, treatment: Treatment) -> bool:
        """Check whether enough cells of a context have exactly these interventions."""
        return self.comparisons.treated(context, treatment) is not None

    def _from_contexts(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict from measured contexts, with back-off over the columns of the context."""
        table = self.comparisons
        levels, treated = table.levels(context), table.treated(context, treatment)
        for columns in levels:
            n_cells, measured = table.untreated(context, columns), table.measured(columns, treatment)
            if n_cells is None or measured is None:
                continue
            gives_batch = (context[list(table.batches)] != Code.MISSING).any()
            has_label = not np.isin(self.labels, np.setdiff1d(levels[0], columns)).any()
            is_coarser = len(columns) < len(levels[0]) and has_label  # other labels are no controls
            if treated is not None and (is_coarser or (measured.confounded and gives_batch)):
                return self._confounded(context, treated, n_cells)
            row = measured.row(context[columns])
            others = measured if row is None else measured.without(row)
            priors = [others.predict(*table.means(n_cells))] if len(others.change) else []
            if row is None:
                return priors[0]
            own = self._own(context, columns, treatment, measured, row, priors)
            return own if len(columns) == len(levels[0]) else replace(own, source="transferred")  # of coarser contexts
        return None

    def _own(
        self,
        context: np.ndarray,
        columns: np.ndarray,
        treatment: Treatment,
        measured: MeasuredContexts,
        row: int,
        priors: list[Prediction],
    ) -> Prediction:
        """Shrink the response of a measured context towards the predictions of other contexts, doses or treatments."""
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
            cells = table.untreated(context, columns)
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
                    left_out += [(_over_doses(held_out, rest, pooled), change)] if is_alike else []
            sizes = np.array([contexts.log_ratio.mean() for contexts in measured.values()])
            log_ratio = float(dose_weights(dose, np.array(list(measured))) @ sizes)
            return replace(stack(_over_doses(dose, own, pooled), left_out, "transferred"), log_ratio=log_ratio)
        return None

    def _doses(self, part: int) -> list[float]:
        """List the finite doses of an intervention that was given alone."""
        ids = self.bulks.interventions
        alone = (ids == part) & ((ids >= 0).sum(1) == 1)[:, None]
        return [dose for dose in np.unique(self.bulks.doses[alone]).tolist() if np.isfinite(dose)]

    def _from_parts(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict the response to an unmeasured combination from its parts, stacked by leaving combinations out."""
        table = self.comparisons
        levels = [columns for columns in table.levels(context) if table.untreated(context, columns) is not None]
        if not levels:
            return None
        columns = levels[0]
        singles = [change for _, change in self._singles(context, columns)]

        def predict(whole: Treatment) -> tuple[Predictions, dict[str, Any]] | None:
            parts = [{part: dose} for part, dose in whole.items()]
            predicted = [change for part in parts if (change := self.change(context, part)) is not None]
            if len(predicted) < len(parts):
                return None
            own = [table.change(context, columns, part) for part in parts]
            changes = np.stack([x.change for x in predicted])
            measured = [shrunk if change is None else change for change, shrunk in zip(own, changes, strict=True)]
            predictions = part_predictions(changes, np.stack(measured), np.mean(singles or changes, axis=0))
            half_width = np.sqrt(np.mean([x.half_width**2 for x in predicted], axis=0))
            no_source = np.any(np.broadcast_arrays(*(x.no_source for x in predicted)), axis=0)
            ratio = sum(x.log_ratio for x in predicted)
            return predictions, {"half_width": half_width, "log_ratio": ratio, "no_source": no_source}

        combined = predict(treatment)
        if combined is None:
            return None
        left_out: list[tuple[Predictions, np.ndarray]] = []
        for whole in (combination for combination in self.bulks.treatments() if len(combination) > 1):
            truth = table.change(context, columns, whole) if len(left_out) < MOST_LEFT_OUT else None
            predicted = None if truth is None else predict(whole)
            left_out += [] if predicted is None or truth is None else [(predicted[0], truth)]
        stacked = stack(combined[0], left_out, "parts", shrinks=True)
        known = combined[1] if np.isnan(stacked.half_width).any() else combined[1] | {"half_width": stacked.half_width}
        return replace(stacked, **known)

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


def _over_doses(dose: float, own: Mapping[float, Estimate], pooled: Mapping[float, np.ndarray]) -> Predictions:
    """Predict the response to a dose from other doses, whose responses are shrunk towards their mean."""
    changes, averages = np.stack([change for change, _ in own.values()]), np.stack([pooled[x] for x in own])
    centre = changes.mean(0)
    smooth = [centre + adaptive_shrinkage(change - centre, variance)[0] for change, variance in own.values()]
    return dose_predictions(dose, np.array(list(own)), np.stack(smooth), averages)
