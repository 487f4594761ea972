r"""Responses that were measured, carried over to contexts, doses and perturbations that were not.

A context is an identity (a cell type, say). Its response to a treatment is a change of its mean expression, in shares
of all molecules, on the scale of fourth roots: between a logarithm (responses multiply) and none (responses add), where
a response is much the same in contexts that express a gene at different levels. It comes, the first that serves,

1. from contexts that were measured with the treatment and without, its own or those like it
   (:mod:`scdiffgen.module._context_regression`);
2. of one perturbation at a dose that was not measured, from the doses below and above, linearly in
   :math:`\log(1 + d / d_1)`, :math:`d_1` the smallest; at dose 0 nothing changes, and beyond the largest nothing more;
3. of one perturbation that was not measured at all, from those that were, if they have feature vectors
   (:mod:`scdiffgen.module._feature_regression`).

What counts that are drawn at random would differ by is taken off the change of each gene.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from ._context_regression import LEAST_RATIO, POWER, Change, context_regression, mixed, shrunk
from ._feature_regression import MIN_PERTURBATIONS, feature_weights
from ._library_size import NOT_TOLD, fewer_and_fewer, have_exactly

MIN_CELLS = 20  # from which a response is read, treated and untreated each
N_KNOWN = 100  # responses that are kept once they are computed

Codes = Sequence[int] | np.ndarray
Source = Literal["measured", "features"]
Treatment = Mapping[int, float]
"""Dose of each intervention, by its id."""


class CarriedResponse(NamedTuple):
    """What a context is predicted to do."""

    change: np.ndarray
    """Of fourth roots of shares ``(genes,)``."""
    before: np.ndarray
    """Fourth roots of the shares of cells of the context as they were ``(genes,)``."""
    log_correction: np.ndarray
    """Of the log-expression that the network expects of untreated cells: what these really have ``(genes,)``."""
    source: Source
    """Whether the perturbation was measured, or others with feature vectors were."""


@dataclass(frozen=True)
class MeasuredResponses:
    """Total counts of every group of training cells that share their conditions, and the responses that they show.

    Parameters
    ----------
    codes, doses
        Conditions of the groups, as of :class:`Groups`.
    n_cells
        Cells in each ``(groups,)``.
    counts
        Their total counts ``(groups, genes)``.
    expected
        What the network expects of them, library sizes times shares, summed ``(groups, genes)``; of groups that are
        treated it is not looked at.
    features
        Feature vectors of all interventions ``(interventions, features)``, if they have them.
    min_cells
        Smallest number of cells from which a response is read, treated and untreated each.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0, -2], [0, 5], [1, -2]])  # context 0 untreated and treated with 5, context 1 untreated
    >>> counts = 1000 * np.array([[90.0, 10.0], [60.0, 40.0], [90.0, 10.0]])
    >>> measured = MeasuredResponses(codes, np.array([[0.0], [1.0], [0.0]]), np.full(3, 50), counts, counts)
    >>> change = measured.carried([1], own={}, asked={5: 1.0}).change
    >>> shares = ((counts[2] / counts[2].sum()) ** 0.25 + change) ** 4
    >>> (100 * shares / shares.sum()).round().tolist()
    [60.0, 40.0]
    """

    codes: np.ndarray
    doses: np.ndarray
    n_cells: np.ndarray
    counts: np.ndarray
    expected: np.ndarray
    features: np.ndarray | None = None
    min_cells: int = MIN_CELLS
    _known: dict[object, CarriedResponse | None] = field(default_factory=dict, repr=False)
    _others: dict[object, dict[int, Change]] = field(default_factory=dict, repr=False)

    def carried(self, identity: Codes, own: Treatment, asked: Treatment) -> CarriedResponse | None:
        """The response of a context.

        Parameters
        ----------
        identity
            Codes of the context.
        own, asked
            Interventions that the cells had, and that are asked for.

        Returns
        -------
        ``None`` if the network must be asked: there are no untreated cells of the context, or nothing that was measured
        tells of these interventions.
        """
        key = (tuple(identity), frozenset(own.items()), frozenset(asked.items()))
        if key not in self._known:
            if len(self._known) >= N_KNOWN:
                self._known.clear()
            self._known[key] = self._computed(np.asarray(identity), own, asked)
        return self._known[key]

    def has_measured(self, identity: Codes, treatment: Treatment) -> bool:
        """Whether enough cells of a context were measured with exactly these interventions."""
        codes = np.asarray(identity)
        told = np.flatnonzero(codes != NOT_TOLD)
        here = (self.codes[:, told] == codes[told]).all(1) & self._has(treatment)
        return bool(self.n_cells[here].sum() >= self.min_cells)

    def _computed(self, identity: np.ndarray, own: Treatment, asked: Treatment) -> CarriedResponse | None:
        untreated = self._untreated(identity)
        if untreated is None:
            return None
        root, correction = untreated
        changes = []
        source: Source = "measured"
        for treatment in (own, asked):
            found = self._change(identity, treatment)
            if found is None and len(treatment) == 1:
                ((part, dose),) = treatment.items()
                found, source = self._like_others(identity, part, dose), "features"
            if found is None:
                return None
            changes.append(shrunk(found))
        return CarriedResponse(
            changes[1] - changes[0], np.maximum(root + changes[0], LEAST_RATIO * root), correction, source
        )

    def _change(self, identity: np.ndarray, treatment: Treatment) -> Change | None:
        """Of a treatment as it was measured, or of one perturbation between doses that were."""
        if not treatment:
            return Change(*np.zeros((2, self.counts.shape[1])))
        measured = self._of_contexts(identity, treatment)
        if measured is None and len(treatment) == 1:
            ((part, dose),) = treatment.items()
            return self._between_doses(identity, part, dose)
        return measured

    def _of_contexts(self, identity: np.ndarray, treatment: Treatment) -> Change | None:
        """Contexts differ in the conditions that are told, the last of which are let go until some context serves."""
        treated, untreated = self._has(treatment), self._has({})
        if self.n_cells[treated].sum() < self.min_cells:
            return None
        told = np.flatnonzero(identity != NOT_TOLD)
        for columns in fewer_and_fewer(told):
            contexts, context_of = np.unique(self.codes[:, columns], axis=0, return_inverse=True)
            n_of, totals = zip(
                *(self._totals(context_of.ravel(), len(contexts), which) for which in (untreated, treated)), strict=True
            )
            here = np.flatnonzero((contexts == identity[columns]).all(1) & (n_of[0] >= self.min_cells))
            both = np.flatnonzero(np.minimum(*n_of) >= self.min_cells)
            if len(here) and len(both):
                return context_regression(totals[0], totals[1], here[0], both)
        return None

    def _between_doses(self, identity: np.ndarray, part: int, dose: float) -> Change | None:
        alone = self._slots == part
        alone &= ((self._slots >= 0).sum(1) == 1)[:, None]
        levels = np.unique(self.doses[alone])
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
            parts = np.unique(self._slots[self._slots >= 0]).tolist()
            self._others[key] = {
                other: change for other in parts if (change := self._change(identity, {other: dose})) is not None
            }
        others = self._others[key]
        if len(others) < MIN_PERTURBATIONS:
            return None
        changes = list(others.values())
        weights = feature_weights(
            self.features[list(others)], self.features[part], np.stack([change.mean for change in changes])
        )
        return mixed(changes, weights)

    def _untreated(self, identity: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Fourth roots of shares ``(genes,)`` of untreated cells, and log-ratio to what the network expects of them."""
        untreated = self._has({})
        told = np.flatnonzero(identity != NOT_TOLD)
        for columns in fewer_and_fewer(told):
            rows = untreated & (self.codes[:, columns] == identity[columns]).all(1)
            if self.n_cells[rows].sum() >= self.min_cells:
                real, expected = self.counts[rows].sum(0), self.expected[rows].sum(0)
                return ((real + 0.5) / (real + 0.5).sum()) ** POWER, np.log((real + 0.5) / (expected + 0.5))
        return None

    @property
    def _slots(self) -> np.ndarray:
        """Ids of the interventions of the groups ``(groups, slots)``."""
        return self.codes[:, self.codes.shape[1] - self.doses.shape[1] :]

    def _has(self, treatment: Treatment) -> np.ndarray:
        """Which groups had exactly these interventions ``(groups,)``."""
        there = have_exactly(self._slots, list(treatment))
        for part, dose in treatment.items():
            there &= ((self._slots == part) & (self.doses == dose)).any(1)
        return there

    def _totals(self, context_of: np.ndarray, n_contexts: int, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cells and counts of some of the groups in every context: ``(contexts,)`` and ``(contexts, genes)``."""
        n_cells, counts = np.zeros(n_contexts), np.zeros((n_contexts, self.counts.shape[1]))
        np.add.at(n_cells, context_of[which], self.n_cells[which])
        np.add.at(counts, context_of[which], self.counts[which])
        return n_cells, counts
