"""Transfer of pseudobulk responses to contexts, doses and perturbations without measurements.

A context is a cell type (say) without its batch, a response a change of mean log expression. The first that applies:

1. the measured response of the context itself, shrunk towards the prediction of 2 to 4;
2. other contexts with the treatment, or other doses of it;
3. for a combination its parts; for an unmeasured perturbation others, by feature vectors.

Predictors are stacked (:mod:`scdiffgen.responses._stacking`); curves say how molecules must change for the response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from scdiffgen.conditions import Code, backoff_levels

from ._candidates import from_contexts, from_doses, from_others, from_parts
from ._cell_states import StateResponse, StateSlopes, state_slopes
from ._feature_regression import MIN_PERTURBATIONS
from ._library_sizes import N_SIZES, UntreatedCells, of_genes
from ._measured import Measured
from ._pseudobulks import MIN_CELLS, Pseudobulks
from ._response_curves import POWER
from ._stacking import NO_CHANGE, Predictions, Source, Stacked, less_noise, mean_of, shrunk, stacked
from ._strengths import nodes

N_KNOWN = 100  # responses that are kept once they are computed
N_LEFT_OUT, N_OTHERS = 50, 300  # responses that are left out in turn, at most, and perturbations that predict them

Codes = Sequence[int] | np.ndarray
Treatment = Mapping[int, float]
"""Dose of each intervention, by its id."""


class PseudobulkResponse(NamedTuple):
    """Predicted response of a context."""

    change: np.ndarray  # of fourth roots of shares (genes,)
    before: np.ndarray  # fourth roots of the shares of cells of the context as they were (genes,)
    log_correction: np.ndarray  # of the log-expression expected of untreated cells: what these really have (genes,)
    source: Source  # whether the perturbation was measured, or its parts, or others with feature vectors
    strength_variance: float  # of the strengths with which cells respond
    library_change: float  # of the logarithm of the library size
    by_state: StateResponse | None  # of untreated cells whose responses differ by their state
    weights: Mapping[str, float]  # of the predictions of the target
    mean_change: np.ndarray  # of log expression, of cells as they are drawn (genes,)


@dataclass(frozen=True)
class ResponseTransfer:
    """Transferred pseudobulk responses; ``features`` are those of all interventions, if they have them."""

    bulks: Pseudobulks
    features: np.ndarray | None = None  # (interventions, features)
    batches: Sequence[int] = ()  # columns of the identity that are batches, over which responses are pooled
    min_cells: int = MIN_CELLS
    _known: dict[object, PseudobulkResponse | None] = field(default_factory=dict, repr=False)
    _found: dict[object, Measured | None] = field(default_factory=dict, repr=False)

    def response(self, identity: Codes, source: Treatment, target: Treatment) -> PseudobulkResponse | None:
        """Response of a context between two treatments; ``None`` if only the network can predict it."""
        key = (tuple(identity), frozenset(source.items()), frozenset(target.items()))
        if key not in self._known:
            if len(self._known) >= N_KNOWN:
                self._known.clear()
            self._known[key] = self._computed(np.asarray(identity), source, target)
        return self._known[key]

    def has_measured(self, identity: Codes, treatment: Treatment) -> bool:
        """Whether enough cells of a context were measured with exactly these interventions."""
        codes = np.asarray(identity)
        given = np.flatnonzero(codes != Code.MISSING)
        here = self.bulks.share(codes, given) & self.bulks.have(treatment)
        return bool(self.bulks.n_cells[here].sum() >= self.min_cells)

    def predicted(self, identity: np.ndarray, treatment: Treatment) -> Stacked | None:
        """Change of means by a treatment; none if no data predict it."""
        if not treatment:
            return Stacked(np.zeros(self.bulks.n_genes + N_SIZES), {NO_CHANGE: 1.0})
        measured = self._of_contexts(identity, treatment)
        if measured is not None:
            return measured
        if len(treatment) > 1:
            return self._of_parts(identity, treatment)
        ((part, dose),) = treatment.items()
        return self._of_doses(identity, part, dose) or self._of_others(identity, part, dose)

    def _computed(self, identity: np.ndarray, source: Treatment, target: Treatment) -> PseudobulkResponse | None:
        untreated = self._untreated(identity)
        had, requested = (self.predicted(identity, treatment) for treatment in (source, target))
        if untreated is None or had is None or requested is None:
            return None
        cells, correction = untreated
        rows = self.bulks.have(target) if not source else np.zeros(0, dtype=int)  # cells that responded differ already
        variance = float(self.bulks.strength_variance[rows].mean()) if rows.any() else 0.0
        found = []
        for change, strengths in ((had.change, np.ones(1)), (requested.change, nodes(variance))):
            root, composition = cells.balanced(of_genes(change), strengths, change[-N_SIZES])
            size = composition + float(change[-1])
            found.append((root, composition, size, cells.mean_change(root, strengths, size)))
        (before, _, was, mean_before), (after, composition, size, mean_after) = found
        by_state = None if source else self._by_state(identity, target, cells.in_library(composition))
        of_cells = (after - before, before, correction, requested.source, variance, size - was, by_state)
        return PseudobulkResponse(*of_cells, requested.weights, mean_after - mean_before)

    def _by_state(self, identity: np.ndarray, treatment: Treatment, curve: np.ndarray) -> StateResponse | None:
        """Dependence of the response of a context on cell state; none if it was not measured."""
        for columns in self._levels(identity):
            here, known = self._here(identity, columns), self._measured(columns, treatment)
            if here is not None and known is not None:
                found = self._slopes(known)
                if not found.slopes.any():
                    return None
                rising = np.maximum.accumulate(curve, axis=0).T
                return StateResponse(of_genes(here) @ found.loadings, found.slopes, rising)
        return None

    def _slopes(self, known: Measured) -> StateSlopes:
        return state_slopes(self.bulks, known.groups, known.n_cells, of_genes(known.before), of_genes(known.change))

    def _of_contexts(self, identity: np.ndarray, treatment: Treatment) -> Stacked | None:
        """Predict from measured contexts, by back-off."""
        for columns in self._levels(identity):
            here, known = self._here(identity, columns), self._measured(columns, treatment)
            if here is None or known is None:
                continue
            row, others = known.row(identity[columns]), known
            if row is not None:
                others = known.without(row)
            predicted = []
            if len(others.change):
                units = [(others.without(i), others.before[i], others.change[i]) for i in _spread(len(others.change))]
                left_out = [(self._made(rest, before), truth) for rest, before, truth in units if len(rest.change)]
                found = stacked(self._made(others, here), left_out, "measured")
                predicted.append(less_noise(found, others.chance(here)))
            if row is None:
                return predicted[0]
            if len(treatment) == 1:
                ((part, dose),) = treatment.items()
                of_doses = self._of_doses(identity, part, dose)
                predicted += [] if of_doses is None else [of_doses]
            if not predicted:
                singles = [change for single, change in self._singles(identity, columns) if single != treatment]
                if len(singles) >= MIN_PERTURBATIONS:
                    predicted.append(Stacked(np.mean(singles, axis=0), {"mean of perturbations": 1.0}))
            return shrunk(known.change[row], known.variance[row], mean_of(predicted))
        return None

    def _made(self, known: Measured, here: np.ndarray) -> Predictions:
        """Predictions of a context from measured ones."""
        return from_contexts(known.before, known.change, here, self._slopes(known))

    def _of_doses(self, identity: np.ndarray, part: int, dose: float) -> Stacked | None:
        """Of one perturbation from its other doses; none if no dose, or an unknown one, is given."""
        ids = self.bulks.interventions
        alone = (ids == part) & ((ids >= 0).sum(1) == 1)[:, None]
        doses = [each for each in np.unique(self.bulks.doses[alone]).tolist() if np.isfinite(each) and each != dose]
        for columns in self._levels(identity) if np.isfinite(dose) else ():
            known = {each: found for each in doses if (found := self._measured(columns, {part: each})) is not None}
            if not known or self._here(identity, columns) is None:
                continue
            pooled = {each: found.mean() for each, found in known.items()}
            own = {each: self._unshrunk(identity, columns, {part: each}) for each in known}
            left_out = []
            for each, found in known.items():
                if (each < max(known)) == (dose < max(known)) and len(known) > 1:
                    for context, change in zip(found.contexts, found.change, strict=True):
                        rows = {other: there.row(context) for other, there in known.items() if other != each}
                        rest = {other: known[other].change[row] for other, row in rows.items() if row is not None}
                        if rest:
                            left_out.append((_over_doses(each, rest, pooled), change))
            return stacked(_over_doses(dose, own, pooled), left_out, "measured")
        return None

    def _of_parts(self, identity: np.ndarray, treatment: Treatment) -> Stacked | None:
        """Of a combination that was not measured, from its parts."""
        for columns in self._levels(identity):
            if self._here(identity, columns) is None:
                continue
            singles = [change for _, change in self._singles(identity, columns)]

            def predictions(
                whole: Treatment, columns: np.ndarray = columns, singles: Sequence[np.ndarray] = singles
            ) -> Predictions | None:
                changes, measured = [], []
                for each in ({part: dose} for part, dose in whole.items()):
                    part, own = self.predicted(identity, each), self._unshrunk(identity, columns, each)
                    if part is None:
                        return None
                    changes.append(part.change)
                    measured.append(part.change if own is None else own)
                return from_parts(np.stack(changes), np.stack(measured), np.mean(singles or changes, axis=0))

            asked = predictions(treatment)
            if asked is None:
                return None
            left_out: list[tuple[Predictions, np.ndarray]] = []
            for whole in (each for each in self.bulks.treatments() if len(each) > 1):
                truth = self._unshrunk(identity, columns, whole) if len(left_out) < N_LEFT_OUT else None
                made = None if truth is None else predictions(whole)
                left_out += [] if made is None or truth is None else [(made, truth)]
            return stacked(asked, left_out, "parts")
        return None

    def _of_others(self, identity: np.ndarray, part: int, dose: float) -> Stacked | None:
        """Of one perturbation with a feature vector like those to others at the same dose."""
        if self.features is None:
            return None
        changes: dict[int, np.ndarray] = {}
        for other in np.unique(self.bulks.interventions[self.bulks.interventions >= 0]).tolist():
            at = (self._unshrunk(identity, columns, {other: dose}) for columns in self._levels(identity))
            found = next((change for change in at if change is not None), None)
            if found is None and (between := self._of_doses(identity, other, dose)) is not None:
                found = between.change
            if found is not None and other != part:
                changes[other] = found
        if len(changes) < MIN_PERTURBATIONS:
            return None
        known, responses = self.features[list(changes)], np.stack(list(changes.values()))
        chosen, left_out = _spread(len(known), N_OTHERS), list[tuple[Predictions, np.ndarray]]()
        for row in _spread(len(known)) if len(known) > MIN_PERTURBATIONS else ():
            rest = chosen[chosen != row]
            left_out.append((from_others(responses[rest], known[rest], known[row]), responses[row]))
        return stacked(from_others(responses, known, self.features[part]), left_out, "features")

    def _singles(self, identity: np.ndarray, columns: np.ndarray) -> list[tuple[Treatment, np.ndarray]]:
        """Changes of a context by single perturbations that were measured."""
        singles = (each for each in self.bulks.treatments() if len(each) == 1)
        found = ((each, self._unshrunk(identity, columns, each)) for each in singles)
        return [(each, change) for each, change in found if change is not None]

    def _unshrunk(self, identity: np.ndarray, columns: np.ndarray, treatment: Treatment) -> np.ndarray | None:
        """Change of a context as it was measured, or else as other contexts predict it."""
        known, here = self._measured(columns, treatment), self._here(identity, columns)
        if known is None or here is None:
            return None
        row = known.row(identity[columns])
        if row is not None:
            return known.change[row]
        predicted = self._of_contexts(identity, treatment)
        return None if predicted is None else predicted.change

    def _levels(self, identity: np.ndarray) -> list[np.ndarray]:
        """Columns of the conditions that are given, batches left out; then fewer and fewer."""
        given = np.flatnonzero(identity != Code.MISSING)
        return list(backoff_levels(given[~np.isin(given, self.batches)]))

    def _here(self, identity: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        """Means of untreated cells of a context ``(genes + 2,)``."""
        n_cells = self.bulks.n_cells * (self.bulks.have({}) & self.bulks.share(identity, columns))
        return self._means(n_cells) if n_cells.sum() >= self.min_cells else None

    def _measured(self, columns: np.ndarray, treatment: Treatment) -> Measured | None:
        """Contexts that were measured with a treatment and without, if any was."""
        key = (tuple(columns), frozenset(treatment.items()))
        if key not in self._found:
            if len(self._found) >= N_OTHERS:
                self._found.clear()
            contexts, context_of = np.unique(self.bulks.identity[:, columns], axis=0, return_inverse=True)
            treated, untreated = self.bulks.have(treatment), self.bulks.have({})
            rows = []
            for which in np.unique(context_of.ravel()[treated]):
                here = context_of.ravel() == which
                n_of = [self.bulks.n_cells * (here & state) for state in (treated, untreated)]
                if min(n.sum() for n in n_of) >= self.min_cells and (contexts[which] != Code.MISSING).all():
                    rows.append((contexts[which], self._means(n_of[1]), *self._difference(*n_of), np.stack(n_of)))
            self._found[key] = Measured.of(rows) if rows else None
        return self._found[key]

    def _difference(self, treated: np.ndarray, untreated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Difference of means and its variance ``(genes + 2,)``, with matched batches."""
        of_batches, matched = self.bulks.identity[:, list(self.batches)], np.zeros(len(treated))
        for row in np.flatnonzero(treated):
            same = untreated * (of_batches == of_batches[row]).all(1)
            among = same if same.any() else untreated
            matched += treated[row] * among / among.sum()
        (after, chance), (before, chance_before) = self.bulks.mean(treated), self.bulks.mean(matched)
        change, variance = after - before, chance + chance_before
        return self._cells(matched).without_depth(change, variance), _with_sizes(variance)

    def _means(self, n_cells: np.ndarray) -> np.ndarray:
        return _with_sizes(self.bulks.mean(n_cells)[0])

    def _cells(self, n_cells: np.ndarray) -> UntreatedCells:
        """Untreated cells of groups ``(groups,)``."""
        weights = n_cells[self.bulks.have({})]
        curve, saturation = (
            np.average(array, axis=0, weights=weights) for array in (self.bulks.curves, self.bulks.saturation)
        )
        total = (n_cells / self.bulks.n_cells) @ self.bulks.counts + 0.5
        return UntreatedCells(curve, saturation, (total / total.sum()) ** POWER)

    def _untreated(self, identity: np.ndarray) -> tuple[UntreatedCells, np.ndarray] | None:
        """Untreated cells, and the log-ratio ``(genes,)`` of measured to expected expression in the batch."""
        found = []
        given = np.flatnonzero(identity != Code.MISSING)
        for levels in (self._levels(identity), backoff_levels(given)):
            rows = (self.bulks.have({}) & self.bulks.share(identity, columns) for columns in levels)
            found.append(next((row for row in rows if self.bulks.n_cells[row].sum() >= self.min_cells), None))
        here, of_batch = found
        if here is None or of_batch is None:
            return None
        real, expected = (array[of_batch].sum(0) + 0.5 for array in (self.bulks.counts, self.bulks.expected))
        return self._cells(self.bulks.n_cells * here), np.log(real / expected)


def _with_sizes(means: np.ndarray) -> np.ndarray:
    """Means of genes and of library sizes, the last once more: of composition and of depth."""
    return np.append(means, means[-1])


def _over_doses(dose: float, own: Mapping[float, np.ndarray | None], pooled: Mapping[float, np.ndarray]) -> Predictions:
    known = {each: change for each, change in own.items() if change is not None}
    return from_doses(dose, list(known), np.stack(list(known.values())), np.stack([pooled[each] for each in known]))


def _spread(n: int, at_most: int = N_LEFT_OUT) -> np.ndarray:
    """At most so many positions, evenly spread."""
    return np.arange(n)[:: max(1, -(-n // at_most))]
