r"""Responses that were measured in some contexts, carried over to others.

A context is an identity (a cell type, say). Where context :math:`t` was measured with treatment :math:`p` and without
(0), its response is the difference of its mean expression, in shares :math:`s` of all molecules, on the scale of
fourth roots. Another context :math:`c` is predicted to respond as those that resemble it,

.. math:: \delta_{c, p} = \sum_t w_{ct} \left( s_{t, p}^{1/4} - s_{t, 0}^{1/4} \right), \qquad
          w_{ct} \propto \exp\left( - \frac{d_{ct}^2}{h \, \min_u d_{cu}^2} \right),

:math:`d_{ct}` the distance of the untreated expression of both on the same scale (Nadaraya and Watson's regression).
The bandwidth :math:`h` is the one with which the contexts that were measured predict each other best, each left out in
turn.

What counts that are drawn at random would differ by is taken off the change of each gene (:func:`_shrunk`).

On this scale, between a logarithm (responses multiply) and none (responses add), a response is much the same in
contexts that express a gene at different levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ._library_size import NOT_TOLD, have_exactly

POWER = 0.25
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DEFAULT_BANDWIDTH = 1.0
N_KNOWN = 100  # responses that are kept once they are computed


class CarriedResponse(NamedTuple):
    """What a context is predicted to do, ``(genes,)`` each."""

    change: np.ndarray
    """Of fourth roots of shares."""
    log_correction: np.ndarray
    """Of the log-expression that the network expects of untreated cells: what these really have."""


@dataclass(frozen=True)
class MeasuredResponses:
    """Total counts of every group of training cells that share their conditions, and the responses that they show.

    Parameters
    ----------
    codes
        Conditions of the groups ``(groups, conditions)``, as of :func:`group_codes`.
    n_cells
        Cells in each ``(groups,)``.
    counts
        Their total counts ``(groups, genes)``.
    expected
        What the network expects of them, library sizes times shares, summed ``(groups, genes)``; of groups that are
        treated it is not looked at.
    n_interventions
        Number of last columns of ``codes`` that are the interventions, a set; the others are the identity.
    min_cells
        Smallest number of cells from which a response is read, treated and untreated each.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0, -2], [0, 5], [1, -2]])  # context 0 untreated and treated with 5, context 1 untreated
    >>> counts = 1000 * np.array([[90.0, 10.0], [60.0, 40.0], [90.0, 10.0]])
    >>> measured = MeasuredResponses(codes, np.full(3, 50), counts, counts, n_interventions=1)
    >>> change = measured.carried([1], own=[], asked=[5]).change
    >>> shares = ((counts[2] / counts[2].sum()) ** 0.25 + change) ** 4
    >>> (100 * shares / shares.sum()).round().tolist()
    [60.0, 40.0]
    """

    codes: np.ndarray
    n_cells: np.ndarray
    counts: np.ndarray
    expected: np.ndarray
    n_interventions: int
    min_cells: int = 20
    _known: dict[object, CarriedResponse | None] = field(default_factory=dict, repr=False)

    def carried(self, identity: Sequence[int], own: Sequence[int], asked: Sequence[int]) -> CarriedResponse | None:
        """The response of a context, its own if that was measured, or else that of contexts like it.

        Parameters
        ----------
        identity
            Codes of the context.
        own, asked
            Ids of the interventions that the cells had, and that are asked for; an order is no matter.

        Returns
        -------
        ``None`` if the network must be asked: there are no untreated cells of the context, or no context shows the
        response to exactly these interventions.
        """
        key = (tuple(identity), frozenset(own), frozenset(asked))
        if key not in self._known:
            if len(self._known) >= N_KNOWN:
                self._known.clear()
            self._known[key] = self._computed(np.asarray(identity), sorted(set(own)), sorted(set(asked)))
        return self._known[key]

    def has_measured(self, identity: Sequence[int], parts: Sequence[int]) -> bool:
        """Whether enough cells of a context were measured with exactly these interventions."""
        codes = np.asarray(identity)
        told = np.flatnonzero(codes != NOT_TOLD)
        here = (self.codes[:, told] == codes[told]).all(1) & self._has(sorted(set(parts)))
        return bool(self.n_cells[here].sum() >= self.min_cells)

    def _computed(self, identity: np.ndarray, own: Sequence[int], asked: Sequence[int]) -> CarriedResponse | None:
        correction = self._log_correction(identity)
        before, after = (self._change(identity, parts) for parts in (own, asked))
        if correction is None or before is None or after is None:
            return None
        return CarriedResponse(after - before, correction)

    def _change(self, identity: np.ndarray, parts: Sequence[int]) -> np.ndarray | None:
        """Contexts differ in the conditions that are told, the last of which are let go until some context serves."""
        if not parts:
            return np.zeros(self.counts.shape[1])
        treated, untreated = self._has(parts), self._has([])
        told = np.flatnonzero(identity != NOT_TOLD)
        for n_conditions in range(len(told), -1, -1):
            columns = told[:n_conditions]
            contexts, context_of = np.unique(self.codes[:, columns], axis=0, return_inverse=True)
            n_of, totals = zip(
                *(self._totals(context_of.ravel(), len(contexts), which) for which in (untreated, treated)), strict=True
            )
            here = np.flatnonzero((contexts == identity[columns]).all(1) & (n_of[0] >= self.min_cells))
            both = np.flatnonzero(np.minimum(*n_of) >= self.min_cells)
            if len(here) and len(both):
                return _regression(totals[0], totals[1], here[0], both)
        return None

    def _log_correction(self, identity: np.ndarray) -> np.ndarray | None:
        """Log-ratio ``(genes,)`` of what untreated cells of a context have to what the network expects of them."""
        untreated = self._has([])
        told = np.flatnonzero(identity != NOT_TOLD)
        for n_conditions in range(len(told), -1, -1):
            columns = told[:n_conditions]
            rows = untreated & (self.codes[:, columns] == identity[columns]).all(1)
            if self.n_cells[rows].sum() >= self.min_cells:
                real, expected = self.counts[rows].sum(0), self.expected[rows].sum(0)
                return np.log((real + 0.5) / (expected + 0.5))
        return None

    def _has(self, parts: Sequence[int]) -> np.ndarray:
        """Which groups had exactly these interventions ``(groups,)``."""
        return have_exactly(self.codes[:, self.codes.shape[1] - self.n_interventions :], parts)

    def _totals(self, context_of: np.ndarray, n_contexts: int, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cells and counts of some of the groups in every context: ``(contexts,)`` and ``(contexts, genes)``."""
        n_cells, counts = np.zeros(n_contexts), np.zeros((n_contexts, self.counts.shape[1]))
        np.add.at(n_cells, context_of[which], self.n_cells[which])
        np.add.at(counts, context_of[which], self.counts[which])
        return n_cells, counts


def _regression(untreated: np.ndarray, treated: np.ndarray, here: int, both: np.ndarray) -> np.ndarray:
    """Change ``(genes,)`` of one context, from those with ``both`` kinds of cells.

    Parameters
    ----------
    untreated, treated
        Total counts ``(contexts, genes)``.
    here
        The context.
    both
        The contexts that were measured.
    """
    if here in both:
        both = np.array([here])
    least = np.maximum(np.minimum(untreated[both].sum(1), treated[both].sum(1)), 1)[:, None]
    before, after = (_shares(counts[both]) for counts in (untreated, treated))
    changes = (after + 1 / least) ** POWER - (before + 1 / least) ** POWER  # a molecule of the smaller group is added
    roots = (_shares(untreated) + 0.5 / untreated.sum(1, keepdims=True).clip(min=1)) ** POWER
    distances = ((roots[both][:, None] - roots[both][None]) ** 2).sum(2) if len(both) > 2 else None
    bandwidth = DEFAULT_BANDWIDTH if distances is None else _bandwidth(distances, changes, roots[both], after)
    weights = _weights(((roots[both] - roots[here]) ** 2).sum(1), bandwidth)
    noise = 1 / (untreated[both].sum(1, keepdims=True).clip(min=1) * (before + 1 / least) ** (2 * POWER))
    noise += 1 / (treated[both].sum(1, keepdims=True).clip(min=1) * (after + 1 / least) ** (2 * POWER))
    return _shrunk(weights @ changes, POWER**2 * weights**2 @ noise)


def _shrunk(change: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Changes drawn towards none by as much as chance makes of them: the positive part of James and Stein's rule."""
    return change * np.maximum(1 - variance / np.maximum(change**2, np.finfo(float).tiny), 0)


def _bandwidth(distances: np.ndarray, changes: np.ndarray, roots: np.ndarray, after: np.ndarray) -> float:
    """The bandwidth with which contexts predict each other best.

    Parameters
    ----------
    distances
        Squared distances ``(contexts, contexts)``.
    changes
        Their changes ``(contexts, genes)``, of fourth roots.
    roots
        Fourth roots of their untreated shares.
    after
        Their treated shares.

    Returns
    -------
    The one of least error: Hellinger's distance, squared, of predicted to real shares, over that without a change.
    """
    apart = distances + np.diag(np.full(len(distances), np.inf))
    no_change = _hellinger(responded(roots, np.zeros_like(roots)), after)
    errors = []
    for bandwidth in BANDWIDTHS:
        weights = np.stack([_weights(row, bandwidth) for row in apart])
        errors.append((_hellinger(responded(roots, weights @ changes), after) / no_change).mean())
    return BANDWIDTHS[int(np.argmin(errors))]


def _weights(distances: np.ndarray, bandwidth: float) -> np.ndarray:
    """Weights ``(contexts,)`` by squared distance, relative to the nearest."""
    nearest = max(distances.min(), np.finfo(float).tiny)
    weights = np.exp(-(distances / nearest - 1) / bandwidth)
    return weights / weights.sum()


def responded(roots: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Shares ``(rows, genes)`` after a change of their fourth roots, none of which falls below half of what it was."""
    shares = np.maximum(roots + change, roots / 2) ** (1 / POWER)
    return shares / shares.sum(-1, keepdims=True)


def _hellinger(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return ((np.sqrt(one) - np.sqrt(other)) ** 2).sum(1)


def _shares(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum(1, keepdims=True).clip(min=1)


def group_codes(codes: np.ndarray, n_interventions: int) -> tuple[np.ndarray, np.ndarray]:
    """Groups of cells with the same conditions, whatever the order of their interventions.

    Parameters
    ----------
    codes
        Categories of the cells ``(cells, conditions)``, as of :func:`condition_codes`.
    n_interventions
        Number of last columns that are the interventions.

    Returns
    -------
    Codes of the groups ``(groups, conditions)``, and the group of each cell ``(cells,)``.
    """
    split = codes.shape[1] - n_interventions
    ordered = np.concatenate([codes[:, :split], -np.sort(-codes[:, split:], axis=1)], axis=1)
    groups, group_of = np.unique(ordered, axis=0, return_inverse=True)
    return groups, group_of.ravel()
