r"""The response of one context from those of others, the more alike its untreated cells the more so.

.. math:: \delta_c = \sum_t w_{ct} \left( s_{t, 1}^{1/4} - s_{t, 0}^{1/4} \right), \qquad
          w_{ct} \propto \exp\left( - \frac{d_{ct}^2}{h \, \min_u d_{cu}^2} \right),

:math:`s_{t, 1}` and :math:`s_{t, 0}` the shares of the genes in treated and untreated cells of context :math:`t`,
:math:`d_{ct}` the distance of the untreated expression of two contexts on the scale of fourth roots (Nadaraya and
Watson's regression). The bandwidth :math:`h` is the one with which the contexts that were measured predict each other
best, each left out in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

POWER = 0.25
LEAST_RATIO = 0.1  # of the fourth root of a share to what it was before
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DEFAULT_BANDWIDTH = 1.0


class Change(NamedTuple):
    """A change of fourth roots of shares, and what chance makes of it, ``(genes,)`` each."""

    mean: np.ndarray
    variance: np.ndarray


def context_regression(untreated: np.ndarray, treated: np.ndarray, here: int, both: np.ndarray) -> Change:
    """Change of the context ``here``, from those with ``both`` treated and untreated cells.

    ``untreated`` and ``treated`` are total counts ``(contexts, genes)``.
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
    return Change(weights @ changes, POWER**2 * weights**2 @ noise)


def mixed(changes: Sequence[Change], weights: np.ndarray) -> Change:
    """A weighted sum of changes."""
    means, variances = (np.stack(arrays) for arrays in zip(*changes, strict=True))
    return Change(weights @ means, weights**2 @ variances)


def shrunk(change: Change) -> np.ndarray:
    """Changes drawn towards none by as much as chance makes of them: the positive part of James and Stein's rule."""
    return change.mean * np.maximum(1 - change.variance / np.maximum(change.mean**2, np.finfo(float).tiny), 0)


def _bandwidth(distances: np.ndarray, changes: np.ndarray, roots: np.ndarray, after: np.ndarray) -> float:
    """The bandwidth with which contexts predict each other best, from squared distances ``(contexts, contexts)``.

    The one of least error: Hellinger's distance, squared, of predicted to real shares, over that without a change.
    ``changes`` and ``roots`` are of fourth roots, of all shares and of untreated ones, ``after`` are treated shares.
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
    """Shares ``(rows, genes)`` after a change of their fourth roots, none of which falls below `LEAST_RATIO`."""
    shares = np.maximum(roots + change, LEAST_RATIO * roots) ** (1 / POWER)
    return shares / shares.sum(-1, keepdims=True)


def _hellinger(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return ((np.sqrt(one) - np.sqrt(other)) ** 2).sum(1)


def _shares(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum(1, keepdims=True).clip(min=1)
