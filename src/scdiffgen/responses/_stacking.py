r"""Stacked regression of predictors of a response (Wolpert 1992, Breiman 1996), and empirical-Bayes shrinkage.

Weights :math:`a_k \ge 0` of sum 1 minimise the error over left-out responses, shrunk towards equal weights :math:`b`,
:math:`\sum_u \lVert y_u - \sum_k a_k p_{uk} \rVert^2 + \lambda \lVert a - b \rVert^2`. The prediction is shrunk by the
slope of the regression of left-out responses on their predictions if this slope is below one half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import numpy as np
from scipy.optimize import nnls
from scipy.stats import norm

from ._predictors import Predictions

FEW = 3  # minimum number of measured contexts or perturbations; below it, the plain mean is predicted
MOST_LEFT_OUT = 50  # maximum number of responses to leave out
PRIOR_UNITS = 0.2  # prior strength of equal weights, in left-out responses
COVERAGE = 0.8  # nominal coverage of intervals
NO_CHANGE, OWN = "no change", "own cells"

Source = Literal["network", "measured", "parts", "features"]
SOURCES: tuple[Source, ...] = get_args(Source)
"""Sources of responses: the network, or cells with the perturbation, its parts, or other perturbations."""


@dataclass(frozen=True)
class Prediction:
    """A predicted change of mean log expression.

    Parameters
    ----------
    change
        Change of the mean of log(1 + counts per 10,000), (genes,).
    half_width
        Half of the 80 % interval for the change that an experiment measures, (genes,); NaN if nothing can be left out.
    source
        ``"measured"``, ``"parts"`` or ``"features"``.
    weights
        Stacking weights of the predictors, which sum to 1.
    pearson
        Correlations of left-out responses with their predictions, ``(left out,)``.
    gain
        1 minus the ratio of the squared errors of these predictions and of the plain mean; NaN without left-out ones.
    cautions
        Cautions in words.
    log_ratio
        Log ratio of library sizes, treated to untreated, as measured.
    """

    change: np.ndarray
    half_width: np.ndarray
    source: Source
    weights: Mapping[str, float]
    pearson: np.ndarray
    gain: float = np.nan
    cautions: tuple[str, ...] = ()
    log_ratio: float = 0.0

    def with_cautions(self, *cautions: str) -> Self:
        """Add distinct cautions."""
        return replace(self, cautions=tuple(dict.fromkeys([*self.cautions, *cautions])))

    @classmethod
    def of_no_change(cls, n_genes: int) -> Self:
        """Predict no change, with certainty."""
        return cls(np.zeros(n_genes), np.zeros(n_genes), "measured", {NO_CHANGE: 1.0}, np.zeros(0))


def stack(
    predictions: Predictions,
    left_out: Sequence[tuple[Predictions, np.ndarray]],
    source: Source,
    *,
    shrinks: bool = False,
    nuisance: np.ndarray | float = 0.0,
) -> Prediction:
    """Stack predictors by left-out predictions with truth; a ``nuisance`` ``(left out, genes)`` widens intervals."""
    # With `shrinks`, the prediction is shrunk by any slope below 1.
    names, changes = list(predictions), np.stack(list(predictions.values()))
    predictors = np.array([[pair[0][name] for name in names] for pair in left_out]).reshape(-1, *changes.shape)
    truth = np.array([truth for _, truth in left_out]).reshape(-1, changes.shape[1])
    weights = _weights(predictors, truth)
    predicted = np.tensordot(predictors, weights, (1, 0))
    slope = (predicted * truth).sum() / max((predicted**2).sum(), np.finfo(float).tiny) if len(truth) else 1.0
    kept = float(np.clip(slope, 0, 1)) if shrinks or slope < 0.5 else 1.0
    residuals, baseline = truth - kept * predicted, ((truth - predictors[:, 0]) ** 2).sum()
    by_name = {name: kept * weight for name, weight in zip(names, weights.tolist(), strict=True)}
    by_name |= {NO_CHANGE: 1 - kept} if kept < 1 else {}
    pairs = zip(predicted, truth, strict=True)
    pearson = np.array([np.corrcoef(*pair)[0, 1] if all(map(np.ptp, pair)) else np.nan for pair in pairs])
    gain = float(1 - (residuals**2).sum() / baseline) if baseline > 0 else np.nan
    return Prediction(kept * weights @ changes, interval(residuals + nuisance), source, by_name, pearson, gain)


def interval(residuals: np.ndarray) -> np.ndarray:
    """Compute half-widths ``(genes,)`` that cover 80 % of residuals ``(units, genes)``; NaN for a single unit."""
    # Residuals are scaled gene by gene by those of the other units. Their quantile over all genes and units calibrates
    # the width, as in the jackknife+ (Barber, Candes, Ramdas & Tibshirani 2021).
    n_units = len(residuals)
    if n_units < 2:
        return np.full(residuals.shape[1], np.nan)
    squares = residuals**2
    floor = squares.mean() / n_units + np.finfo(float).tiny
    rest = np.sqrt((squares.sum(0) - squares + floor) / n_units)
    return np.quantile(np.abs(residuals) / rest, COVERAGE) * np.sqrt((squares.sum(0) + floor) / (n_units + 1))


def james_stein(variance: np.ndarray | float, squares: np.ndarray) -> np.ndarray:
    """Compute positive-part James-Stein factors from squared estimates and their sampling variances."""
    return np.maximum(1 - variance / np.maximum(squares, np.finfo(float).tiny), 0)


def shrink_noise(predicted: Prediction, variance: float) -> Prediction:
    """Shrink a prediction by the sampling variance of its squared length (positive-part James-Stein)."""
    kept = float(james_stein(variance, predicted.change @ predicted.change))
    weights = {name: kept * weight for name, weight in predicted.weights.items()}
    weights[NO_CHANGE] = weights.get(NO_CHANGE, 0.0) + 1 - kept
    return replace(predicted, change=kept * predicted.change, weights=weights)


def shrink_towards(change: np.ndarray, variance: np.ndarray, towards: Prediction | None) -> Prediction:
    """Shrink a measured change towards a prediction, or 0, by the mean of joint and per-gene James-Stein factors."""
    # The interval covers the change in a replicate with as many cells: sampling variance, posterior variance and
    # squared shrinkage.
    prior = Prediction.of_no_change(len(change)) if towards is None else towards
    difference = change - prior.change
    kept = np.full_like(change, james_stein(variance.sum(), (difference**2).sum()))
    if towards is not None:
        kept = (kept + james_stein(variance, difference**2)) / 2
    own = float((kept * difference**2).sum() / max((difference**2).sum(), np.finfo(float).tiny))
    weights = {OWN: own, **{name: (1 - own) * weight for name, weight in prior.weights.items()}}
    squares = (1 + kept) * variance + (1 - kept) ** 2 * (difference**2 - variance).clip(min=0)
    half_width = norm.ppf((1 + COVERAGE) / 2) * np.sqrt(squares)
    return Prediction(prior.change + kept * difference, half_width, "measured", weights, np.zeros(0))


def mean_of(predictions: Sequence[Prediction]) -> Prediction | None:
    """Average several predictions; ``None`` without predictions."""
    if len(predictions) < 2:
        return next(iter(predictions), None)
    names = dict.fromkeys(name for x in predictions for name in x.weights)
    weights = {name: float(np.mean([x.weights.get(name, 0.0) for x in predictions])) for name in names}
    return replace(predictions[0], change=np.mean([x.change for x in predictions], axis=0), weights=weights)


def _weights(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Fit stacking weights to predictions ``(left out, predictors, genes)`` and truth; equal without left-out ones."""
    n_predictors = predicted.shape[1]
    if not len(truth):
        return np.full(n_predictors, 1 / n_predictors)
    gram, products = np.einsum("ukg,ulg->kl", predicted, predicted), np.einsum("ukg,ug->k", predicted, truth)
    ridge = max(PRIOR_UNITS / len(truth) * np.trace(gram) / n_predictors, np.finfo(float).tiny)
    penalty = 1e3 * max(np.trace(gram), ridge)  # makes the weights sum to 1
    root = np.linalg.cholesky(gram + ridge * np.eye(n_predictors) + penalty)
    weights = nnls(root.T, np.linalg.solve(root, products + ridge / n_predictors + penalty))[0]
    return weights / weights.sum()


def spread(n: int) -> np.ndarray:
    """Return at most 50 evenly spaced positions below ``n``."""
    return np.arange(n)[:: max(1, -(-n // MOST_LEFT_OUT))]
