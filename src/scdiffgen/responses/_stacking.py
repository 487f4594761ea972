r"""Several predictions of a response, each weighted by how well it predicts responses that were measured.

Weights :math:`a_k \ge 0` that sum to 1 are those of least squares over responses that are left out in turn,

.. math:: \sum_u \frac{\lVert y_u - \sum_k a_k p_{uk} \rVert^2}{\lVert y_u \rVert^2 + s}
          + \lambda \lVert a - b \rVert^2,

:math:`s` the mean of :math:`\lVert y_u \rVert^2`, drawn towards equal ones :math:`b`, the more so the fewer are left
out (stacking: Wolpert 1992, Breiman 1996). "No change" is among the predictions, though not in :math:`b`, so that what
does not hold elsewhere is drawn towards none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.optimize import nnls

NO_CHANGE, OWN = "no change", "own cells"
PRIOR_UNITS = 0.5  # left-out responses that equal weights count for
SUM_TO_ONE = 1e3  # weight of this, relative to the errors

Predictions = Mapping[str, np.ndarray]
"""Changes of mean log expression ``(genes,)`` by the name of what predicts them."""
Source = Literal["network", "measured", "parts", "features"]


@dataclass(frozen=True)
class Stacked:
    """A predicted change of mean log expression, and what weighed how much in it."""

    change: np.ndarray  # (genes,)
    weights: Mapping[str, float] = field(default_factory=dict)
    source: Source = "measured"


def stacked(predictions: Predictions, left_out: Sequence[tuple[Predictions, np.ndarray]], source: Source) -> Stacked:
    """Weigh predictions as the same ones predict responses that are left out, pairs of predictions and truth."""
    names, changes = list(predictions), np.stack(list(predictions.values()))
    weights = _weights(names, [(np.stack([p[name] for name in names]), truth) for p, truth in left_out])
    return Stacked(weights @ changes, dict(zip(names, weights.tolist(), strict=True)), source)


def shrunk(change: np.ndarray, variance: np.ndarray, towards: Stacked | None) -> Stacked:
    """A measured change, drawn towards a predicted one by as much as chance makes of their difference.

    The mean of two rules of James and Stein (positive part), one for all genes together and one for each gene; without
    a prediction the first alone, towards no change.
    """
    predicted = Stacked(np.zeros_like(change), {NO_CHANGE: 1.0}) if towards is None else towards
    apart = change - predicted.change
    tiny = np.finfo(float).tiny
    kept = np.full_like(change, max(1 - variance.sum() / max((apart**2).sum(), tiny), 0.0))
    if towards is not None:
        kept = (kept + np.maximum(1 - variance / np.maximum(apart**2, tiny), 0)) / 2
    own = float((kept * apart**2).sum() / max((apart**2).sum(), tiny))
    others = {name: (1 - own) * weight for name, weight in predicted.weights.items()}
    return Stacked(predicted.change + kept * apart, {OWN: own, **others})


def mean_of(several: Sequence[Stacked]) -> Stacked | None:
    """The mean of several stacked predictions, none of none."""
    if not several:
        return None
    names = dict.fromkeys(name for each in several for name in each.weights)
    weights = {name: float(np.mean([each.weights.get(name, 0.0) for each in several])) for name in names}
    return Stacked(np.mean([each.change for each in several], axis=0), weights)


def _weights(names: Sequence[str], left_out: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Weights ``(predictions,)`` from pairs of predictions ``(predictions, genes)`` and truth ``(genes,)``."""
    equal = np.array([name != NO_CHANGE for name in names], dtype=float)
    equal = equal / equal.sum() if equal.any() else np.ones(len(names)) / len(names)
    if not left_out:
        return equal
    sizes = np.array([truth @ truth for _, truth in left_out])
    scale = np.maximum(sizes + sizes.mean(), np.finfo(float).tiny)
    gram = sum(made @ made.T / by for (made, _), by in zip(left_out, scale, strict=True))
    products = sum(made @ truth / by for (made, truth), by in zip(left_out, scale, strict=True))
    prior = max(PRIOR_UNITS / len(left_out) * np.trace(gram) / len(names), np.finfo(float).eps)
    ridge = prior + SUM_TO_ONE * np.trace(gram)
    normal = gram + prior * np.eye(len(names)) + (ridge - prior)
    root = np.linalg.cholesky(normal)
    weights, _ = nnls(root.T, np.linalg.solve(root, products + prior * equal + ridge - prior))
    return weights / weights.sum()
