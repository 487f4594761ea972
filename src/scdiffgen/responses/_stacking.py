r"""Stacked regression of predictors of a response (Wolpert 1992, Breiman 1996).

Weights :math:`a_k \ge 0` of sum 1 minimise the error over left-out responses, shrunk towards equal weights :math:`b`,

.. math:: \sum_u \Big\lVert y_u - \sum_k a_k p_{uk} \Big\rVert^2 + \lambda \lVert a - b \rVert^2.

"No change" is a predictor of combinations, else only where the other predictors have a larger error than no change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.optimize import nnls

from ._library_sizes import N_SIZES

NO_CHANGE, OWN = "no change", "own cells"
PRIOR_UNITS = 0.2  # left-out responses that equal weights count for
SUM_TO_ONE = 1e3  # weight of this, relative to the errors

Predictions = Mapping[str, np.ndarray]
"""Changes of means ``(genes + 2,)`` by the name of what predicts them."""
Source = Literal["network", "measured", "parts", "features"]


@dataclass(frozen=True)
class Stacked:
    """A predicted change of means, and what weighed how much in it."""

    change: np.ndarray  # (genes + 2,), the last two of library sizes
    weights: Mapping[str, float] = field(default_factory=dict)
    source: Source = "measured"


def stacked(predictions: Predictions, left_out: Sequence[tuple[Predictions, np.ndarray]], source: Source) -> Stacked:
    """Stack predictors by left-out pairs of predictions and truth; library sizes are then shrunk, each by itself."""
    names, changes = list(predictions), np.stack(list(predictions.values()))
    units = [(np.stack([p[name] for name in names]), truth) for p, truth in left_out]
    weights = _weights(names, units, shrinks=source == "parts")
    change = weights @ changes
    if units:
        made, truth = (np.stack(each)[:, -N_SIZES:] for each in zip(*((weights @ p, y) for p, y in units), strict=True))
        change[-N_SIZES:] *= ((made * truth).sum(0) / np.maximum((made**2).sum(0), np.finfo(float).tiny)).clip(0, 1)
    return Stacked(change, dict(zip(names, weights.tolist(), strict=True)), source)


def james_stein(variance: np.ndarray | float, squares: np.ndarray) -> np.ndarray:
    """Positive-part James-Stein factor of estimates with these squares and sampling variances."""
    return np.maximum(1 - variance / np.maximum(squares, np.finfo(float).tiny), 0)


def less_noise(predicted: Stacked, chance: float) -> Stacked:
    """Shrink a prediction by its sampling variance (positive-part James-Stein)."""
    kept = float(james_stein(chance, predicted.change @ predicted.change))
    weights = {name: kept * weight for name, weight in predicted.weights.items()}
    weights[NO_CHANGE] = weights.get(NO_CHANGE, 0.0) + 1 - kept
    return Stacked(kept * predicted.change, weights, predicted.source)


def shrunk(change: np.ndarray, variance: np.ndarray, towards: Stacked | None) -> Stacked:
    """Shrink a measured change towards a predicted one (else none) by positive-part James-Stein factors."""
    predicted = Stacked(np.zeros_like(change), {NO_CHANGE: 1.0}) if towards is None else towards
    apart = change - predicted.change
    kept = np.full_like(change, james_stein(variance.sum(), (apart**2).sum()))
    if towards is not None:
        kept = (kept + james_stein(variance, apart**2)) / 2
    own = float((kept * apart**2).sum() / max((apart**2).sum(), np.finfo(float).tiny))
    others = {name: (1 - own) * weight for name, weight in predicted.weights.items()}
    return Stacked(predicted.change + kept * apart, {OWN: own, **others})


def mean_of(several: Sequence[Stacked]) -> Stacked | None:
    """The mean of several stacked predictions, none of none."""
    if not several:
        return None
    names = dict.fromkeys(name for each in several for name in each.weights)
    weights = {name: float(np.mean([each.weights.get(name, 0.0) for each in several])) for name in names}
    return Stacked(np.mean([each.change for each in several], axis=0), weights)


def _weights(
    names: Sequence[str], left_out: Sequence[tuple[np.ndarray, np.ndarray]], *, shrinks: bool = False
) -> np.ndarray:
    """Weights ``(predictions,)`` from pairs of predictions ``(predictions, genes)`` and truth ``(genes,)``."""
    changing = np.array([name != NO_CHANGE for name in names])
    if not left_out:
        return changing / changing.sum()
    gram = sum((made @ made.T for made, _ in left_out), np.zeros((len(names), len(names))))
    products = sum((made @ truth for made, truth in left_out), np.zeros(len(names)))
    weights = _least_squares(gram, products, changing, changing, len(left_out))
    if shrinks or weights @ gram @ weights > 2 * weights @ products:
        weights = _least_squares(gram, products, np.ones_like(changing), changing, len(left_out))
    return weights


def _least_squares(
    gram: np.ndarray, products: np.ndarray, used: np.ndarray, prior: np.ndarray, n_left_out: int
) -> np.ndarray:
    """Weights of those predictions that are ``used``, drawn towards equal ones of ``prior``."""
    rows, total = np.ix_(used, used), np.trace(gram)
    ridge = max(PRIOR_UNITS / n_left_out * total / prior.sum(), np.finfo(float).tiny)
    one = SUM_TO_ONE * max(total, ridge)
    root = np.linalg.cholesky(gram[rows] + ridge * np.eye(used.sum()) + one)
    wanted = products[used] + ridge * (prior / prior.sum())[used] + one
    weights = np.zeros(len(used))
    weights[used] = nnls(root.T, np.linalg.solve(root, wanted))[0]
    return weights / weights.sum()
