"""Prediction of responses in unmeasured contexts, and to unmeasured doses and perturbations.

A context is, for example, a cell type without its batch; a response is a change of mean log expression. The first
available source is used: the response measured in the context, shrunk (empirical Bayes) towards the next prediction;
other contexts or other doses; the parts of a combination; other perturbations by feature vectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy import sparse

from scdiffgen._codes import Code
from scdiffgen._log_normalise import log_normalise

from ._comparisons import MOST_KEPT, Comparisons, Treatment
from ._expression_curves import KEPT, STEPS, apply_response, mean_change, shares_after, shares_at
from ._predictors import Predictions, dose_predictions, feature_predictions, part_predictions
from ._pseudobulks import MIN_CELLS, Pseudobulks
from ._stacking import FEW, MOST_LEFT_OUT, NO_CHANGE, Prediction, mean_of, shrink_towards, spread, stack


class CellStates(NamedTuple):
    """Regression of mean log expression after a response on cell states before it."""

    loadings: np.ndarray  # (genes, states)
    mean: np.ndarray  # state (states,)
    expression: np.ndarray  # after the response, at this state (genes,)
    slopes: np.ndarray  # (states, genes)
    curves: np.ndarray  # mean log expression after each step, at the library size after the response (steps, genes)


class Response(NamedTuple):
    """The response of the cells of a context."""

    before: np.ndarray  # shares of genes among the molecules of the cells as they were (genes,)
    after: np.ndarray  # shares after the response; their sums have the ratio of the library sizes (genes,)
    mean_change: np.ndarray  # of log expression (genes,)
    prediction: Prediction
    states: CellStates | None = None  # none if all cells change alike

    def apply(self, counts: sparse.csr_matrix, rng: np.random.Generator, *, keep_library: bool) -> sparse.csr_matrix:
        """Predict counts ``(cells, genes)`` after the response, in chunks, as the shares of cells are dense."""
        chunks = (counts[first : first + 1_000] for first in range(0, max(counts.shape[0], 1), 1_000))
        moved = [apply_response(x, self.before, self.shares(x), rng, keep_library=keep_library) for x in chunks]
        return sparse.vstack(moved, format="csr")

    def shares(self, counts: sparse.csr_matrix) -> np.ndarray:
        """Shares after the response, of each cell ``(cells, genes)`` or of all ``(genes,)``."""
        if self.states is None:
            return self.after
        loadings, mean, expression, slopes, curves = self.states
        wanted = (expression + (log_normalise(counts) @ loadings - mean) @ slopes).clip(min=0)
        steps = [np.interp(of_gene, curve, STEPS) for of_gene, curve in zip(wanted.T, curves.T, strict=True)]
        return shares_at(self.before, np.column_stack(steps))


@dataclass(frozen=True)
class ResponsePredictor:
    """Predict responses from pseudobulks, compared within columns ``batches`` of their cell context."""

    bulks: Pseudobulks
    features: np.ndarray | None = None  # of all interventions (interventions, features)
    batches: Sequence[int] = ()
    comparisons: Comparisons = field(init=False, repr=False, compare=False)
    _known: dict[object, Response | None] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "comparisons", Comparisons(self.bulks, self.batches))

    def change(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict the change of mean log expression of a context by a treatment; none if no data predict it."""
        # Beyond the largest dose of a perturbation the response is that to the largest dose.
        if not treatment:
            return Prediction.of_no_change(self.bulks.n_genes)
        if len(treatment) > 1:
            return self._from_contexts(context, treatment) or self._from_parts(context, treatment)
        ((part, dose),) = treatment.items()
        doses = self._doses(part)
        if doses and max(doses) < dose < np.inf:
            found = self.change(context, {part: max(doses)})
            caution = f"dose {dose:g} is beyond the largest measured dose, {max(doses):g}, whose response is predicted"
            return found and found.with_cautions(caution)
        found = self._from_contexts(context, treatment)
        return found or self._from_doses(context, part, dose) or self._from_others(context, part, dose)

    def respond(self, context: np.ndarray, source: Treatment, target: Treatment, scale: float = 1.0) -> Response | None:
        """Response of a context between two treatments, ``scale`` times; none if only the network can predict it."""
        key = (*context.tolist(), frozenset(source.items()), frozenset(target.items()), scale)
        if key not in self._known:  # minibatches ask for the same responses
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key] = self._respond(context, source, target, scale)
        return self._known[key]

    def _respond(self, context: np.ndarray, source: Treatment, target: Treatment, scale: float) -> Response | None:
        levels = (self.comparisons.untreated(context, columns) for columns in self.comparisons.levels(context))
        n_cells = next((found for found in levels if found is not None), None)
        had, requested = self.change(context, source), self.change(context, target)
        if n_cells is None or had is None or requested is None:
            return None
        share = np.average(self.bulks.share, axis=0, weights=n_cells)
        curves = np.average(self.bulks.curves, axis=0, weights=n_cells[self.bulks.have({})])
        before, after = (
            shares_after(curves, share, scale * each.change, scale * each.log_ratio) for each in (had, requested)
        )
        change = mean_change(curves, share, after) - mean_change(curves, share, before)
        slopes = None if source else self._slopes(context, target)
        if slopes is None:
            return Response(before, after, change, requested)
        log_mean, own = curves[0, len(KEPT)], self.bulks.moments(n_cells)
        wanted = log_mean + scale * requested.change
        lost = np.divide((log_mean - wanted).clip(min=0), log_mean, out=np.zeros_like(wanted), where=log_mean > 0)
        slopes = scale * (1 - requested.weights.get(NO_CHANGE, 0.0)) * slopes + lost.clip(max=1) * own.slopes
        moved = np.maximum.accumulate(curves[0] - np.log(after.sum() / before.sum()) * curves[1])
        kept = (array.astype(np.float32) for array in (own.state, wanted, slopes, moved))  # many responses are kept
        return Response(before, after, change, requested, CellStates(self.bulks.state_loadings, *kept))

    def _slopes(self, context: np.ndarray, treatment: Treatment) -> np.ndarray | None:
        """Slopes of the change on cell states ``(states, genes)``, if the context itself or enough others show them."""
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
        """Whether enough cells of a context were measured with exactly these interventions."""
        here = self.bulks.agree(context, np.flatnonzero(context != Code.MISSING)) & self.bulks.have(treatment)
        return bool(self.bulks.n_cells[here].sum() >= MIN_CELLS)

    def _from_contexts(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict from measured contexts, by back-off over the columns of the context."""
        for columns in self.comparisons.levels(context):
            n_cells = self.comparisons.untreated(context, columns)
            measured = self.comparisons.measured(columns, treatment)
            if n_cells is None or measured is None:
                continue
            row = measured.row(context[columns])
            others = measured if row is None else measured.without(row)
            made = [others.predict(*self.comparisons.means(n_cells))] if len(others.change) else []
            if row is None:
                return made[0]
            ((part, dose), *combined) = treatment.items()
            if not combined and dose < max(self._doses(part), default=0):  # others cannot predict the largest dose
                of_doses = self._from_doses(context, part, dose)
                made += [] if of_doses is None else [of_doses]
            if not made:
                singles = [change for single, change in self._singles(context, columns) if single != treatment]
                if len(singles) >= FEW:
                    made = [stack({"mean of perturbations": np.mean(singles, axis=0)}, [], "measured")]
            found = shrink_towards(measured.change[row], measured.variance[row], mean_of(made))
            return replace(found, log_ratio=float(measured.log_ratio[row])).with_cautions(*measured.cautions)
        return None

    def _from_doses(self, context: np.ndarray, part: int, dose: float) -> Prediction | None:
        """Predict one perturbation from its other doses; each of them is left out in turn."""
        table, doses = self.comparisons, [each for each in self._doses(part) if each != dose]
        for columns in table.levels(context) if np.isfinite(dose) else ():
            known = {each: found for each in doses if (found := table.measured(columns, {part: each})) is not None}
            if not known or table.untreated(context, columns) is None:
                continue
            pooled = {each: found.pooled() for each, found in known.items()}
            own = {each: table.change(context, columns, {part: each}) for each in known}
            left_out = []
            for each in [each for each in known if each < max(known)]:
                for known_context, change in zip(known[each].contexts, known[each].change, strict=True):
                    rows = {other: there.row(known_context) for other, there in known.items() if other != each}
                    rest = {other: known[other].change[row] for other, row in rows.items() if row is not None}
                    left_out += [(_over_doses(each, rest, pooled), change)] if rest else []
            return stack(_over_doses(dose, own, pooled), left_out, "measured")
        return None

    def _doses(self, part: int) -> list[float]:
        """Doses of an intervention alone that cells have."""
        ids = self.bulks.interventions
        alone = (ids == part) & ((ids >= 0).sum(1) == 1)[:, None]
        return [dose for dose in np.unique(self.bulks.doses[alone]).tolist() if np.isfinite(dose)]

    def _from_parts(self, context: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict a combination that was not measured from its parts; measured combinations are left out in turn."""
        table = self.comparisons
        levels = [columns for columns in table.levels(context) if table.untreated(context, columns) is not None]
        if not levels:
            return None
        columns = levels[0]
        singles = [change for _, change in self._singles(context, columns)]

        def predict(whole: Treatment) -> tuple[Predictions, np.ndarray, float] | None:
            parts = [{part: dose} for part, dose in whole.items()]
            predicted = [found for part in parts if (found := self.change(context, part)) is not None]
            if len(predicted) < len(parts):
                return None
            own = [table.change(context, columns, part) for part in parts]
            changes = np.stack([each.change for each in predicted])
            measured = [change if known is None else known for known, change in zip(own, changes, strict=True)]
            made = part_predictions(changes, np.stack(measured), np.mean(singles or changes, axis=0))
            sizes = np.sqrt(np.mean([each.half_width**2 for each in predicted], axis=0))
            return made, sizes, sum(each.log_ratio for each in predicted)

        asked = predict(treatment)
        if asked is None:
            return None
        left_out: list[tuple[Predictions, np.ndarray]] = []
        for whole in (each for each in self.bulks.treatments() if len(each) > 1):
            truth = table.change(context, columns, whole) if len(left_out) < MOST_LEFT_OUT else None
            made = None if truth is None else predict(whole)
            left_out += [] if made is None or truth is None else [(made[0], truth)]
        found = stack(asked[0], left_out, "parts", shrinks=True)
        half_width = asked[1] if np.isnan(found.half_width).any() else found.half_width
        return replace(found, half_width=half_width, log_ratio=asked[2])

    def _from_others(self, context: np.ndarray, part: int, dose: float) -> Prediction | None:
        """Predict one perturbation from others at the same dose, by feature vectors; each is left out in turn."""
        if self.features is None:
            return None
        changes, table = dict[int, np.ndarray](), self.comparisons
        ids = np.unique(self.bulks.interventions)
        for other in ids[(ids >= 0) & (ids != part)].tolist():
            at = (table.change(context, level, {other: dose}) for level in table.levels(context))
            found = next((change for change in at if change is not None), None)
            if found is None and (between := self._from_doses(context, other, dose)) is not None:
                found = between.change
            if found is not None:
                changes[other] = found
        if len(changes) < FEW:
            return None
        features, responses = self.features[list(changes)], np.stack(list(changes.values()))
        left_out: list[tuple[Predictions, np.ndarray]] = []
        for row in spread(len(responses)) if len(responses) > FEW else ():
            rest = np.arange(len(responses)) != row
            left_out.append((feature_predictions(responses[rest], features[rest], features[row]), responses[row]))
        return stack(feature_predictions(responses, features, self.features[part]), left_out, "features")

    def _singles(self, context: np.ndarray, columns: np.ndarray) -> list[tuple[Treatment, np.ndarray]]:
        """Changes of a context by single perturbations that were measured."""
        singles = (each for each in self.bulks.treatments() if len(each) == 1)
        found = ((each, self.comparisons.change(context, columns, each)) for each in singles)
        return [(each, change) for each, change in found if change is not None]


def _over_doses(dose: float, own: Mapping[float, np.ndarray | None], pooled: Mapping[float, np.ndarray]) -> Predictions:
    known = {each: change for each, change in own.items() if change is not None}
    changes, of_all = np.stack(list(known.values())), np.stack([pooled[each] for each in known])
    return dose_predictions(dose, np.array(list(known)), changes, of_all)
