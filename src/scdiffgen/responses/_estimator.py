"""Responses that training cells show, predicted for contexts, doses and perturbations that were not measured.

A context is a cell type (say) without its batch; a response is a change of mean log expression. The first that applies:

1. the measured response of the context itself, shrunk towards the prediction of 2 to 4;
2. other contexts with the treatment, or other doses of it;
3. for a combination its parts;
4. for a perturbation that was never measured the others, by feature vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from scdiffgen.conditions import Code, backoff_levels

from ._counts import depth_effect, mean_change, shares_after
from ._predictors import (
    Predictions,
    StateMoments,
    context_predictions,
    dose_predictions,
    feature_predictions,
    part_predictions,
    similarity_weights,
    state_prediction,
)
from ._pseudobulks import MIN_CELLS, ConditionGroups, Pseudobulks, PseudobulkSums
from ._stacking import Prediction, mean_of, shrink_noise, shrink_towards, stack

FEW = 3  # measured contexts, or perturbations, below which the plain mean is predicted
MOST_LEFT_OUT = 50  # responses that are left out in turn, at most
NO_DOSE = 1.0  # of an intervention where doses were not registered

Treatment = Mapping[int, float]
"""Dose of each intervention, by its id; empty for untreated cells."""


class Response(NamedTuple):
    """The response of the cells of a context."""

    before: np.ndarray  # shares of genes among the molecules of the cells as they were (genes,)
    after: np.ndarray  # shares after the response; their sums have the ratio of the library sizes (genes,)
    mean_change: np.ndarray  # of log expression (genes,)
    prediction: Prediction


class MeasuredContexts(NamedTuple):
    """Contexts in which a treatment was measured, beside untreated cells of the same batches."""

    contexts: np.ndarray  # codes (contexts, columns)
    before: np.ndarray  # mean log expression of untreated cells (contexts, genes)
    change: np.ndarray  # of the mean, at equal sequencing depth (contexts, genes)
    variance: np.ndarray  # sampling variance of the change (contexts, genes)
    raw_change: np.ndarray  # of the mean, sequencing depth included (contexts, genes)
    log_ratio: np.ndarray  # of library sizes, treated to untreated (contexts,)
    states: Sequence[tuple[StateMoments, StateMoments]]  # of treated and of untreated cells
    confounded: bool  # whether no batch has both treated and untreated cells

    def without(self, row: int) -> MeasuredContexts:
        """All contexts but one."""
        arrays = (np.delete(array, row, axis=0) for array in self[:6])
        return MeasuredContexts(*arrays, [*self.states[:row], *self.states[row + 1 :]], self.confounded)

    def row(self, context: np.ndarray) -> int | None:
        """Where a context is, if it was measured."""
        return next(iter(np.flatnonzero((self.contexts == context).all(1)).tolist()), None)

    def pooled(self) -> np.ndarray:
        """Mean change of all contexts ``(genes,)``, by inverse variance."""
        return np.average(self.change, axis=0, weights=1 / (self.variance.sum(1) + np.finfo(float).tiny))

    def predict(self, before: np.ndarray, state: np.ndarray) -> Predictions:
        """Predict the change of a context with these untreated means and this mean state."""
        made = context_predictions(self.before, self.change, before)
        if len(self.change) < FEW - 1:
            return {"mean response": made["mean response"]}
        if state.size:
            treated, untreated = (StateMoments.mean_of(list(arm)) for arm in zip(*self.states, strict=True))
            made["latent arithmetic"] = state_prediction(treated, untreated, before, state)
        return made


@dataclass(frozen=True)
class ResponseEstimator:
    """Estimate responses from pseudobulks; ``features`` are those of all interventions, if they have them.

    Parameters
    ----------
    bulks
        Moments of the training cells.
    features
        Feature vectors of perturbations, (interventions, features).
    batches
        Columns of the identity that are batches: cells are compared within them, and responses pooled over them.
    names
        Names of interventions, by which :meth:`fit` knows them.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> treatment = np.repeat(["control", "drug"], 100)
    >>> counts = rng.poisson(np.where(treatment == "drug", 4.0, 2.0)[:, None] * [1.0, 0.5] + [0.0, 3.0])
    >>> estimator = ResponseEstimator.fit(counts, treatment=treatment)
    >>> estimator.predict("drug").change.round(1)
    array([0.3, 0. ])
    """

    bulks: Pseudobulks
    features: np.ndarray | None = None
    batches: Sequence[int] = ()
    names: Sequence[str] = ()
    contexts: Sequence[object] = ()
    _cache: dict[object, MeasuredContexts | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def fit(
        cls,
        counts: ArrayLike | sparse.spmatrix,
        context: ArrayLike | None = None,
        batch: ArrayLike | None = None,
        treatment: ArrayLike | None = None,
        dose: ArrayLike | None = None,
        features: Mapping[str, ArrayLike] | None = None,
        *,
        control: str = "control",
    ) -> ResponseEstimator:
        """Fit on cells with labels.

        Parameters
        ----------
        counts
            Molecule counts, (cells, genes), dense or sparse.
        context, batch, treatment
            Labels of cells, (cells,). Parts of a combination are joined by "+".
        dose
            Doses of the treatments, (cells,).
        features
            Feature vectors of perturbations by name, also of perturbations that no cell has.
        control
            Treatment label of untreated cells.

        Returns
        -------
        The fitted estimator.

        Raises
        ------
        ValueError
            If lengths differ, or no cell is untreated.
        """
        cells = sparse.csr_matrix(counts)
        given = {"context": context, "batch": batch, "treatment": treatment, "dose": dose}
        for name, values in given.items():
            if values is not None and np.shape(values) != (cells.shape[0],):
                raise ValueError(
                    f"`{name}` has shape {np.shape(values)}: pass a value for each of {cells.shape[0]} cells."
                )
        labels = np.full(cells.shape[0], control) if treatment is None else np.asarray(treatment).astype(str)
        if control not in labels:
            raise ValueError(f"`treatment` has no cell {control!r}: pass the label of untreated cells as `control`.")
        parts = [[] if label == control else label.split("+") for label in labels]
        names = sorted({part for each in parts for part in each} | set(features or {}))
        interventions = np.full((len(parts), max(map(len, parts), default=0) or 1), int(Code.ABSENT))
        for row, each in enumerate(parts):
            interventions[row, : len(each)] = np.searchsorted(names, each)
        amounts = np.ones(len(parts)) if dose is None else np.asarray(dose, dtype=float)
        doses = np.where(interventions >= 0, amounts[:, None], 0.0)
        known, codes = np.unique(np.zeros(len(parts)) if context is None else np.asarray(context), return_inverse=True)
        of_batch = np.unique(np.zeros(len(parts)) if batch is None else np.asarray(batch), return_inverse=True)[1]
        conditions = ConditionGroups(np.column_stack([codes, of_batch]), interventions, doses)
        sums = PseudobulkSums(conditions, [1], cells.shape[1])
        sums.add(cells)
        vectors = None if features is None else np.stack([np.asarray(features[name], dtype=float) for name in names])
        return cls(sums.finish(), vectors, [1], names, known.tolist())

    def predict(self, treatment: str, context: object = None, dose: float = NO_DOSE) -> Prediction | None:
        """Predict the change of mean log expression in a context; ``None`` if no data predict it.

        Parameters
        ----------
        treatment
            Label of a treatment, as of :meth:`fit`.
        context
            Label of a context, which may be left out if there is one alone.
        dose
            Dose of the treatment.

        Returns
        -------
        The prediction: ``change`` (genes,), the ``half_width`` of its 80 % interval, its ``source`` and ``weights``.

        Raises
        ------
        ValueError
            If a label is not known.
        """
        parts = treatment.split("+")
        if unknown := [part for part in parts if part not in self.names]:
            raise ValueError(f"`treatment` has {unknown[0]!r}: known are {list(self.names)}.")
        if context is None and len(self.contexts) == 1:
            context = self.contexts[0]
        if context not in self.contexts:
            raise ValueError(f"`context` is {context!r}: known are {list(self.contexts)}.")
        identity = np.array([self.contexts.index(context), Code.MISSING])
        return self.change(identity, {self.names.index(part): dose for part in parts})

    def change(self, identity: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict the change of mean log expression of a context by a treatment; none if no data predict it."""
        if not treatment:
            return Prediction.of_no_change(self.bulks.n_genes)
        found = self._from_contexts(identity, treatment)
        if found is None and len(treatment) > 1:
            return self._from_parts(identity, treatment)
        if found is None:
            ((part, dose),) = treatment.items()
            found = self._from_doses(identity, part, dose) or self._from_others(identity, part, dose)
        return found

    def respond(
        self, identity: np.ndarray, source: Treatment, target: Treatment, scale: float = 1.0
    ) -> Response | None:
        """Response of a context between two treatments, ``scale`` times; none if only the network can predict it."""
        weights = self._untreated(identity)
        had, requested = self.change(identity, source), self.change(identity, target)
        if weights is None or had is None or requested is None:
            return None
        share = np.average(self.bulks.share, axis=0, weights=weights)
        curves = np.average(self.bulks.curves, axis=0, weights=weights[self.bulks.have({})])
        before, after = (
            shares_after(curves, share, scale * each.change, scale * each.log_ratio) for each in (had, requested)
        )
        change = mean_change(curves, share, after) - mean_change(curves, share, before)
        return Response(before, after, change, requested)

    def has_measured(self, identity: np.ndarray, treatment: Treatment) -> bool:
        """Whether enough cells of a context were measured with exactly these interventions."""
        given = np.flatnonzero(identity != Code.MISSING)
        here = self.bulks.share_columns(identity, given) & self.bulks.have(treatment)
        return bool(self.bulks.n_cells[here].sum() >= MIN_CELLS)

    def _from_contexts(self, identity: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict from measured contexts, by back-off over the columns of the identity."""
        for columns in self._levels(identity):
            here, measured = self._here(identity, columns), self._measured(columns, treatment)
            if here is None or measured is None:
                continue
            row = measured.row(identity[columns])
            others = measured if row is None else measured.without(row)
            made = [] if not len(others.change) else [self._stacked(others, *here)]
            if row is None:
                return made[0]
            if len(treatment) == 1:
                of_doses = self._from_doses(identity, *next(iter(treatment.items())))
                made += [] if of_doses is None else [of_doses]
            if not made:
                singles = [change for single, change in self._singles(identity, columns) if single != treatment]
                if len(singles) >= FEW:
                    made = [stack({"mean of perturbations": np.mean(singles, axis=0)}, [], "measured")]
            found = shrink_towards(measured.raw_change[row], measured.variance[row], mean_of(made))
            return replace(
                found,
                pearson=np.zeros(0),
                gain=np.nan,
                cautions=_cautions(measured, None),
                log_ratio=float(measured.log_ratio[row]),
            )
        return None

    def _stacked(self, measured: MeasuredContexts, before: np.ndarray, state: np.ndarray) -> Prediction:
        """Predict from contexts, each of which is left out in turn to weigh predictors."""
        n_contexts, left_out = len(measured.change), []
        plain = n_contexts < FEW

        def predictions(known: MeasuredContexts, target: np.ndarray, at: np.ndarray) -> Predictions:
            made = known.predict(target, at)
            return {"mean response": made["mean response"]} if plain else made

        for row in _spread(n_contexts) if n_contexts > 1 else ():
            rest = measured.without(row)
            made = predictions(rest, measured.before[row], measured.states[row][1].state)
            left_out.append((made, measured.change[row]))
        found = stack(predictions(measured, before, state), left_out, "measured")
        noise = similarity_weights(measured.before, before) ** 2 @ measured.variance
        return replace(shrink_noise(found, float(noise.sum())), cautions=_cautions(measured, n_contexts))

    def _from_doses(self, identity: np.ndarray, part: int, dose: float) -> Prediction | None:
        """Predict one perturbation from its other doses."""
        ids = self.bulks.interventions
        alone = (ids == part) & ((ids >= 0).sum(1) == 1)[:, None]
        doses = [each for each in np.unique(self.bulks.doses[alone]).tolist() if np.isfinite(each) and each != dose]
        for columns in self._levels(identity) if np.isfinite(dose) else ():
            known = {each: found for each in doses if (found := self._measured(columns, {part: each})) is not None}
            if not known or self._here(identity, columns) is None:
                continue
            pooled = {each: found.pooled() for each, found in known.items()}
            own = {each: self._unshrunk(identity, columns, {part: each}) for each in known}
            left_out = []
            for each, found in known.items():
                if (each < max(known)) == (dose < max(known)) and len(known) > 1:
                    for context, change in zip(found.contexts, found.change, strict=True):
                        rows = {other: there.row(context) for other, there in known.items() if other != each}
                        rest = {other: known[other].change[row] for other, row in rows.items() if row is not None}
                        if rest:
                            left_out.append((_over_doses(each, rest, pooled), change))
            return stack(_over_doses(dose, own, pooled), left_out, "measured")
        return None

    def _from_parts(self, identity: np.ndarray, treatment: Treatment) -> Prediction | None:
        """Predict a combination that was not measured from its parts."""
        columns = next((each for each in self._levels(identity) if self._here(identity, each) is not None), None)
        if columns is None:
            return None
        singles = [change for _, change in self._singles(identity, columns)]

        def predictions(whole: Treatment) -> Predictions | None:
            changes, measured = [], []
            for part in ({part: dose} for part, dose in whole.items()):
                predicted, own = self.change(identity, part), self._unshrunk(identity, columns, part)
                if predicted is None:
                    return None
                changes.append(predicted.change)
                measured.append(predicted.change if own is None else own)
            return part_predictions(np.stack(changes), np.stack(measured), np.mean(singles or changes, axis=0))

        asked = predictions(treatment)
        if asked is None:
            return None
        left_out: list[tuple[Predictions, np.ndarray]] = []
        for whole in (each for each in self.bulks.treatments() if len(each) > 1):
            truth = self._unshrunk(identity, columns, whole) if len(left_out) < MOST_LEFT_OUT else None
            made = None if truth is None else predictions(whole)
            left_out += [] if made is None or truth is None else [(made, truth)]
        of_parts = (self.change(identity, {part: dose}) for part, dose in treatment.items())
        log_ratio = sum(part.log_ratio for part in of_parts if part is not None)
        return replace(stack(asked, left_out, "parts", shrinks=True), log_ratio=log_ratio)

    def _from_others(self, identity: np.ndarray, part: int, dose: float) -> Prediction | None:
        """Predict one perturbation from others at the same dose, by feature vectors."""
        if self.features is None:
            return None
        changes: dict[int, np.ndarray] = {}
        for other in np.unique(self.bulks.interventions[self.bulks.interventions >= 0]).tolist():
            at = (self._unshrunk(identity, columns, {other: dose}) for columns in self._levels(identity))
            found = next((change for change in at if change is not None), None)
            if found is None and (between := self._from_doses(identity, other, dose)) is not None:
                found = between.change
            if found is not None and other != part:
                changes[other] = found
        if len(changes) < FEW:
            return None
        features, responses = self.features[list(changes)], np.stack(list(changes.values()))
        left_out: list[tuple[Predictions, np.ndarray]] = []
        for row in _spread(len(responses)) if len(responses) > FEW else ():
            rest = np.arange(len(responses)) != row
            left_out.append((feature_predictions(responses[rest], features[rest], features[row]), responses[row]))
        return stack(feature_predictions(responses, features, self.features[part]), left_out, "features")

    def _singles(self, identity: np.ndarray, columns: np.ndarray) -> list[tuple[Treatment, np.ndarray]]:
        """Changes of a context by single perturbations that were measured."""
        singles = (each for each in self.bulks.treatments() if len(each) == 1)
        found = ((each, self._unshrunk(identity, columns, each)) for each in singles)
        return [(each, change) for each, change in found if change is not None]

    def _unshrunk(self, identity: np.ndarray, columns: np.ndarray, treatment: Treatment) -> np.ndarray | None:
        """Change of a context as it was measured, or else as other contexts predict it."""
        measured, here = self._measured(columns, treatment), self._here(identity, columns)
        if measured is None or here is None:
            return None
        row = measured.row(identity[columns])
        return self._stacked(measured, *here).change if row is None else measured.change[row]

    def _levels(self, identity: np.ndarray) -> list[np.ndarray]:
        """Columns of the conditions that are given, without batches; then fewer and fewer."""
        given = np.flatnonzero(identity != Code.MISSING)
        return list(backoff_levels(given[~np.isin(given, self.batches)]))

    def _here(self, identity: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean log expression and mean state of untreated cells of a context; none if they are few."""
        n_cells = self.bulks.n_cells * (self.bulks.have({}) & self.bulks.share_columns(identity, columns))
        if n_cells.sum() < MIN_CELLS:
            return None
        return self.bulks.mean(n_cells)[0], self.bulks.moments(n_cells).state

    def _untreated(self, identity: np.ndarray) -> np.ndarray | None:
        """Numbers of untreated cells ``(groups,)`` of the context, by back-off; none if there are few anywhere."""
        for columns in self._levels(identity):
            n_cells = self.bulks.n_cells * (self.bulks.have({}) & self.bulks.share_columns(identity, columns))
            if n_cells.sum() >= MIN_CELLS:
                return n_cells
        return None

    def _measured(self, columns: np.ndarray, treatment: Treatment) -> MeasuredContexts | None:
        """Contexts that were measured with a treatment and without, if any was."""
        key = (tuple(columns), frozenset(treatment.items()))
        if key not in self._cache:
            self._cache[key] = self._compare(columns, treatment)
        return self._cache[key]

    def _compare(self, columns: np.ndarray, treatment: Treatment) -> MeasuredContexts | None:
        """Compare treated with untreated cells of each context; unmatched ones only if no batch has both."""
        bulks, rows = self.bulks, []
        contexts, context_of = np.unique(bulks.identity[:, columns], axis=0, return_inverse=True)
        treated, untreated = bulks.have(treatment), bulks.have({})
        for which in np.unique(context_of.ravel()[treated]):
            here = context_of.ravel() == which
            if (contexts[which] == Code.MISSING).any():
                continue
            arms, matched = self._match(here & treated, here & untreated)
            if min(arm[arm > 0].size and (bulks.n_cells * (arm > 0)).sum() for arm in arms) < MIN_CELLS:
                continue
            (after, noise), (before, noise_before) = map(bulks.mean, arms)
            sizes = [np.average(bulks.log_library, weights=arm) for arm in arms]
            curves = np.average(bulks.curves, axis=0, weights=arms[1][untreated])
            matched_change = after - before - depth_effect(curves, sizes[0] - sizes[1])
            moments = bulks.moments(arms[0]), bulks.moments(arms[1])
            rows.append(
                (
                    matched,
                    contexts[which],
                    before,
                    matched_change,
                    noise + noise_before,
                    after - before,
                    sizes[0] - sizes[1],
                    moments,
                )
            )
        matched_any = any(row[0] for row in rows)
        rows = [row[1:] for row in rows if row[0] == matched_any]
        if not rows:
            return None
        *arrays, states = zip(*rows, strict=True)
        return MeasuredContexts(*map(np.stack, arrays), states, not matched_any)

    def _match(self, treated: np.ndarray, untreated: np.ndarray) -> tuple[list[np.ndarray], bool]:
        """Weights of groups in both arms ``(groups,)``, those of batches with both; and whether there is such a batch."""
        n_cells, batches = self.bulks.n_cells, self.bulks.identity[:, list(self.batches)]
        which = (
            np.unique(batches, axis=0, return_inverse=True)[1].ravel() if batches.size else np.zeros(len(n_cells), int)
        )
        totals = [np.bincount(which, n_cells * arm) for arm in (treated, untreated)]
        both = np.minimum(*totals) > 0
        if not both.any():
            return [n_cells * treated * 1.0, n_cells * untreated * 1.0], False
        per_untreated = np.divide(totals[0], totals[1], out=np.zeros(len(both)), where=both)
        return [n_cells * (treated & both[which]) * 1.0, n_cells * untreated * per_untreated[which]], True


def _cautions(measured: MeasuredContexts, n_contexts: int | None) -> tuple[str, ...]:
    """What to be careful about, in words; of predictions from so many contexts."""
    cautions = []
    if measured.confounded:
        cautions.append("treatment and batch are confounded: no batch has both treated and untreated cells")
    if n_contexts is not None and n_contexts < FEW:
        cautions.append(
            f"measured in {n_contexts} other context{'s'[: n_contexts > 1]} only: their plain mean is predicted"
        )
    return tuple(cautions)


def _over_doses(dose: float, own: Mapping[float, np.ndarray | None], pooled: Mapping[float, np.ndarray]) -> Predictions:
    known = {each: change for each, change in own.items() if change is not None}
    changes, of_all = np.stack(list(known.values())), np.stack([pooled[each] for each in known])
    return dose_predictions(dose, np.array(list(known)), changes, of_all)


def _spread(n: int) -> np.ndarray:
    """At most 50 positions, evenly spread."""
    return np.arange(n)[:: max(1, -(-n // MOST_LEFT_OUT))]
