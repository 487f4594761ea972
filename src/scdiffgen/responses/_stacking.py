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
from scipy.stats import norm, t

from ._predictors import Predictions

FEW = 3  # minimum number of measured contexts or perturbations; below it, the plain mean is predicted
MOST_LEFT_OUT = 50  # maximum number of responses to leave out
PRIOR_UNITS = 0.2  # prior strength of equal weights, in left-out responses
COVERAGE = 0.8  # nominal coverage of intervals
N_ALIKE = 500  # number of genes of similar variance that share a prior of shrinkage
N_LARGEST = 30  # number of genes of a response that change most, whose intervals are calibrated by themselves
NO_CHANGE, OWN = "no change", "own cells"

Source = Literal["own", "transferred", "parts", "features", "network"]
SOURCES: tuple[Source, ...] = get_args(Source)
"""Sources of responses: cells of the context, other contexts or doses, parts, other perturbations, the network."""


@dataclass(frozen=True)
class Prediction:
    """A predicted change of mean log expression.

    Parameters
    ----------
    change
        Change of the mean of log(1 + counts per 10,000) at equal sequencing depth, (genes,).
    half_width
        Half of the 80 % interval for the change that an experiment measures, (genes,); NaN if nothing can be left out,
        and for genes without a source.
    source
        ``"own"``, ``"transferred"``, ``"parts"`` or ``"features"``.
    weights
        Stacking weights of the predictors, which sum to 1.
    pearson
        Correlations of left-out responses with their predictions, ``(left out,)``.
    gain
        1 minus the ratio of the squared errors of these predictions and of the plain mean; NaN without left-out ones.
    is_ahead
        Whether squared errors are below those of the plain mean by more than an 80 % interval of the mean difference
        over left-out responses; ``None`` for fewer than two.
    cautions
        Cautions in words.
    log_ratio
        Log ratio of library sizes, treated to untreated, as measured.
    is_noise
        Whether no gene changes significantly in any context from which the response is predicted.
    no_source
        Genes that are expressed in the context and hardly in any source of the response, (genes,): no method can
        know their response.
    """

    change: np.ndarray
    half_width: np.ndarray
    source: Source
    weights: Mapping[str, float]
    pearson: np.ndarray
    gain: float = np.nan
    is_ahead: bool | None = None
    cautions: tuple[str, ...] = ()
    log_ratio: float = 0.0
    is_noise: bool = False
    no_source: np.ndarray | bool = False

    def with_cautions(self, *cautions: str) -> Self:
        """Add distinct cautions."""
        return replace(self, cautions=tuple(dict.fromkeys([*self.cautions, *cautions])))

    @classmethod
    def of_no_change(cls, n_genes: int) -> Self:
        """Predict no change, with certainty."""
        return cls(np.zeros(n_genes), np.zeros(n_genes), "own", {NO_CHANGE: 1.0}, np.zeros(0))


def stack(
    predictions: Predictions,
    left_out: Sequence[tuple[Predictions, np.ndarray]],
    source: Source,
    *,
    shrinks: bool = False,
) -> Prediction:
    """Stack predictors, the plain mean first, by left-out predictions with truth."""
    # With `shrinks`, the prediction is shrunk by any slope below 1.
    names, changes = list(predictions), np.stack(list(predictions.values()))
    predictors = np.array([[pair[0][name] for name in names] for pair in left_out]).reshape(-1, *changes.shape)
    truth = np.array([truth for _, truth in left_out]).reshape(-1, changes.shape[1])
    weights = _weights(predictors, truth)
    predicted = np.tensordot(predictors, weights, (1, 0))
    slope = (predicted * truth).sum() / max((predicted**2).sum(), np.finfo(float).tiny) if len(truth) else 1.0
    kept = float(np.clip(slope, 0, 1)) if shrinks or slope < 0.5 else 1.0
    change, shrunk = kept * weights @ changes, kept * predicted
    errors, plain = ((difference**2).sum(1) for difference in (truth - shrunk, truth - predictors[:, 0]))
    by_name = {name: kept * weight for name, weight in zip(names, weights.tolist(), strict=True)}
    by_name |= {NO_CHANGE: 1 - kept} if kept < 1 else {}
    pairs = zip(predicted, truth, strict=True)
    pearson = np.array([np.corrcoef(*pair)[0, 1] if all(map(np.ptp, pair)) else np.nan for pair in pairs])
    gain = float(1 - errors.sum() / plain.sum()) if plain.sum() > 0 else np.nan
    is_ahead = _is_below(errors, plain) if len(truth) > 1 and np.isfinite(gain) else None
    return Prediction(change, interval(shrunk, truth, change), source, by_name, pearson, gain, is_ahead)


def _is_below(errors: np.ndarray, plain: np.ndarray) -> bool:
    """Test whether an 80 % interval of the mean difference of squared errors excludes 0, beyond rounding errors."""
    lower = plain - errors
    half_width = t.ppf((1 + COVERAGE) / 2, len(lower) - 1) * lower.std(ddof=1) / np.sqrt(len(lower))
    return bool(lower.mean() > max(half_width, np.sqrt(np.finfo(float).eps) * plain.mean()))


def interval(predicted: np.ndarray, truth: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Compute half-widths ``(genes,)`` from left-out responses ``(units, genes)``; NaN for a single one."""
    # Residuals are scaled gene by gene by those of the other units. Their quantile over all genes and units calibrates
    # the width, as in the jackknife+ (Barber, Candes, Ramdas & Tibshirani 2021). Genes that may change as much as the
    # 30 genes of the largest true changes have the quantile of these 30 genes.
    n_units = len(truth)
    if n_units < 2:
        return np.full(truth.shape[1], np.nan)
    squares = (truth - predicted) ** 2
    floor = squares.mean() / n_units + np.finfo(float).tiny
    rest = np.sqrt((squares.sum(0) - squares + floor) / n_units)
    scale = np.sqrt((squares.sum(0) + floor) / (n_units + 1))
    ratios, sizes = np.sqrt(squares) / rest, np.abs(predicted) + rest
    largest = np.arange(n_units)[:, None], np.argsort(-np.abs(truth), axis=1)[:, :N_LARGEST]
    is_large = np.abs(change) + scale >= np.quantile(sizes[largest], 1 - COVERAGE)
    width = np.quantile(ratios, COVERAGE)
    return scale * np.where(is_large, max(width, np.quantile(ratios[largest], COVERAGE)), width)


def james_stein(variance: np.ndarray | float, squares: np.ndarray) -> np.ndarray:
    """Compute positive-part James-Stein factors from squared estimates and their sampling variances."""
    return np.maximum(1 - variance / np.maximum(squares, np.finfo(float).tiny), 0)


def adaptive_shrinkage(change: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shrink changes ``(genes,)`` with given sampling variance; return posterior means and variances.

    The prior of the z-scores is a scale mixture of normal distributions around 0, fitted by expectation maximisation
    :cite:p:`stephens2017ash`, so a response of few genes among thousands is kept. About 500 genes of similar variance
    share a prior, because sparse genes, whose z-scores are small, would shrink the changes of the others to 0.
    """
    shrunk, uncertainty = change.copy(), np.zeros_like(change)
    measured = np.flatnonzero(variance > 0)
    by_variance = measured[np.argsort(variance[measured], kind="stable")]
    for genes in np.array_split(by_variance, max(len(by_variance) // N_ALIKE, 1)) if len(measured) else ():
        factor, spread = _posterior(change[genes] / np.sqrt(variance[genes]))
        shrunk[genes], uncertainty[genes] = factor * change[genes], variance[genes] * spread
    return shrunk, uncertainty


def _posterior(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return shrinkage factors and posterior variances of z-scores ``(genes,)`` by the mixture that fits them."""
    scales = np.append(0.0, np.geomspace(0.1, max(2 * np.abs(z).max(), 1), 20))
    total = 1 + scales**2
    log_density = -(np.log(total) + z[:, None] ** 2 / total) / 2
    density = np.exp(log_density - log_density.max(1, keepdims=True))
    posterior = density / density.sum(1, keepdims=True)
    for _ in range(100):
        posterior = density * posterior.mean(0)
        posterior /= posterior.sum(1, keepdims=True)
    kept = scales**2 / total
    factor = posterior @ kept
    square = (posterior * (kept + (z[:, None] * kept) ** 2)).sum(1)
    return factor, np.maximum(square - (factor * z) ** 2, 0)


def shrink_towards(
    change: np.ndarray, variance: np.ndarray, inflation: np.ndarray | float, priors: Sequence[Prediction]
) -> Prediction:
    """Shrink a measured change towards the mean of predictions, or 0, gene by gene."""
    # The interval covers the change in a replicate with as many cells: sampling variance and posterior variance, both
    # larger by ``inflation`` because the variance of a gene that changes differs between the arms.
    priors = priors or [Prediction.of_no_change(len(change))]
    prior = np.mean([x.change for x in priors], axis=0)
    difference = change - prior
    shrunk, uncertainty = adaptive_shrinkage(difference, variance)
    own = float((shrunk * difference).sum() / max((difference**2).sum(), np.finfo(float).tiny))
    names = dict.fromkeys(name for x in priors for name in x.weights)
    weights = {name: (1 - own) * float(np.mean([x.weights.get(name, 0.0) for x in priors])) for name in names}
    half_width = norm.ppf((1 + COVERAGE) / 2) * np.sqrt(inflation * (variance + uncertainty))
    return Prediction(prior + shrunk, half_width, "own", {OWN: own, **weights}, np.zeros(0))


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
