r"""Responses transferred from where they were measured to contexts, doses and perturbations where they were not.

A context is an identity (a cell type, say). Its response to a treatment is a change of its pseudobulk, in shares of all
molecules, on the scale of fourth roots: between a logarithm (responses multiply) and none (responses add), where a
response is much the same in contexts that express a gene at different levels. It comes, the first that serves,

1. from contexts that were measured with the treatment and without, its own or those like it
   (:mod:`scdiffgen.responses._context_regression`);
2. of one perturbation at a dose that was not measured, from the doses below and above, linearly in
   :math:`\log(1 + d / d_1)`, :math:`d_1` the smallest; at dose 0 nothing changes, and beyond the largest nothing more;
3. of one perturbation that was not measured at all, from those that were, if they have feature vectors
   (:mod:`scdiffgen.responses._feature_regression`).

What counts that are drawn at random would differ by is taken off the change of each gene.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from scdiffgen.conditions import Code, backoff_levels

from ._context_regression import LEAST_RATIO, POWER, Change, context_regression, mixed, shrunk
from ._feature_regression import MIN_PERTURBATIONS, feature_weights
from ._pseudobulks import MIN_CELLS, Pseudobulks

N_KNOWN = 100  # responses that are kept once they are computed

Codes = Sequence[int] | np.ndarray
Source = Literal["measured", "features"]
Treatment = Mapping[int, float]
"""Dose of each intervention, by its id."""


class PseudobulkResponse(NamedTuple):
    """What a context is predicted to do."""

    change: np.ndarray  # of fourth roots of shares (genes,)
    before: np.ndarray  # fourth roots of the shares of cells of the context as they were (genes,)
    log_correction: np.ndarray  # of the log-expression expected of untreated cells: what these really have (genes,)
    source: Source  # whether the perturbation was measured, or others with feature vectors were


@dataclass(frozen=True)
class ResponseTransfer:
    """Responses that pseudobulks show, transferred; ``features`` are those of all interventions, if they have them."""

    bulks: Pseudobulks
    features: np.ndarray | None = None  # (interventions, features)
    min_cells: int = MIN_CELLS
    _known: dict[object, PseudobulkResponse | None] = field(default_factory=dict, repr=False)
    _others: dict[object, dict[int, Change]] = field(default_factory=dict, repr=False)

    def response(self, identity: Codes, source: Treatment, target: Treatment) -> PseudobulkResponse | None:
        """The response of a context, from the interventions that its cells had to those that are requested.

        ``None`` if the network must be asked: there are no untreated cells of the context, or nothing that was measured
        tells of these interventions.
        """
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

    def _computed(self, identity: np.ndarray, source: Treatment, target: Treatment) -> PseudobulkResponse | None:
        untreated = self._untreated(identity)
        if untreated is None:
            return None
        root, correction = untreated
        changes = []
        told_by: Source = "measured"
        for treatment in (source, target):
            found = self._change(identity, treatment)
            if found is None and len(treatment) == 1:
                ((part, dose),) = treatment.items()
                found, told_by = self._like_others(identity, part, dose), "features"
            if found is None:
                return None
            changes.append(shrunk(found))
        before = np.maximum(root + changes[0], LEAST_RATIO * root)
        return PseudobulkResponse(changes[1] - changes[0], before, correction, told_by)

    def _change(self, identity: np.ndarray, treatment: Treatment) -> Change | None:
        """Of a treatment as it was measured, or of one perturbation between doses that were."""
        if not treatment:
            return Change(*np.zeros((2, self.bulks.n_genes)))
        measured = self._of_contexts(identity, treatment)
        if measured is None and len(treatment) == 1:
            ((part, dose),) = treatment.items()
            return self._between_doses(identity, part, dose)
        return measured

    def _of_contexts(self, identity: np.ndarray, treatment: Treatment) -> Change | None:
        """Contexts differ in the conditions that are given, down the back-off levels until some context serves.

        Where one of these is missing, cells of several contexts are pooled, other ones before treatment than after.
        """
        treated, untreated = self.bulks.have(treatment), self.bulks.have({})
        if self.bulks.n_cells[treated].sum() < self.min_cells:
            return None
        for columns in backoff_levels(np.flatnonzero(identity != Code.MISSING)):
            contexts, context_of = np.unique(self.bulks.identity[:, columns], axis=0, return_inverse=True)
            n_of, totals = zip(
                *(self.bulks.totals(context_of.ravel(), len(contexts), which) for which in (untreated, treated)),
                strict=True,
            )
            here = np.flatnonzero((contexts == identity[columns]).all(1) & (n_of[0] >= self.min_cells))
            both = np.flatnonzero((contexts != Code.MISSING).all(1) & (np.minimum(*n_of) >= self.min_cells))
            if len(here) and len(both):
                return context_regression(totals[0], totals[1], here[0], both)
        return None

    def _between_doses(self, identity: np.ndarray, part: int, dose: float) -> Change | None:
        """Of one perturbation, from those to doses that were measured; none if no dose, or an unknown one, is given."""
        ids = self.bulks.interventions
        alone = (ids == part) & ((ids >= 0).sum(1) == 1)[:, None]
        levels = np.unique(self.bulks.doses[alone])
        levels = levels[np.isfinite(levels)]
        found = {level: change for level in levels if (change := self._of_contexts(identity, {part: level}))}
        if not found or not np.isfinite(dose):
            return None
        known = np.array(list(found))
        scale, position = np.log1p(np.append(0.0, known) / known[0]), np.log1p(dose / known[0])
        weights = np.array([np.interp(position, scale, level) for level in np.eye(len(scale))])
        return mixed(list(found.values()), weights[1:])

    def _like_others(self, identity: np.ndarray, part: int, dose: float) -> Change | None:
        """Of one perturbation like those to others at the same dose."""
        if self.features is None:
            return None
        key = (tuple(identity), dose)
        if key not in self._others:
            self._others.clear()  # they are many
            parts = np.unique(self.bulks.interventions[self.bulks.interventions >= 0]).tolist()
            self._others[key] = {
                other: change for other in parts if (change := self._change(identity, {other: dose})) is not None
            }
        others = self._others[key]
        if len(others) < MIN_PERTURBATIONS:
            return None
        changes = list(others.values())
        means = np.stack([change.mean for change in changes])
        return mixed(changes, feature_weights(self.features[list(others)], self.features[part], means))

    def _untreated(self, identity: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Fourth roots of shares ``(genes,)`` of untreated cells, and log-ratio to what the network expects of them."""
        untreated = self.bulks.have({})
        for columns in backoff_levels(np.flatnonzero(identity != Code.MISSING)):
            rows = untreated & self.bulks.share(identity, columns)
            if self.bulks.n_cells[rows].sum() >= self.min_cells:
                real, expected = self.bulks.counts[rows].sum(0), self.bulks.expected[rows].sum(0)
                return ((real + 0.5) / (real + 0.5).sum()) ** POWER, np.log((real + 0.5) / (expected + 0.5))
        return None
