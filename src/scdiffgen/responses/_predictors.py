r"""Simple predictors of responses, i.e. of changes of mean log expression, stacked (Wolpert 1992, Breiman 1996).

Stacking weights :math:`a_k \ge 0` of sum 1 minimise the error over left-out responses, shrunk towards equal weights
:math:`b`, :math:`\sum_u \lVert y_u - \sum_k a_k p_{uk} \rVert^2 + \lambda \lVert a - b \rVert^2`. The prediction is
shrunk by the slope of the regression of left-out responses on their predictions if this slope is below one half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self, get_args

import numpy as np
from scipy.optimize import nnls
from scipy.stats import norm, t
from sklearn.linear_model import RidgeCV

OFFSET = 0.1  # pseudocount of expression levels, in counts per 10,000
PENALTIES = np.array([0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 1e6])  # ridge penalties, relative to the features' mean square
TINY = np.finfo(np.float32).tiny
FEW = 3  # minimum number of measured contexts or perturbations; below it, the plain mean is predicted
MOST_LEFT_OUT = 50  # maximum number of responses to leave out
PRIOR_UNITS = 0.2  # prior strength of equal weights, in left-out responses
COVERAGE = 0.8  # nominal coverage of intervals
N_ALIKE = 500  # number of genes of similar variance that share a prior of shrinkage
N_LARGEST = 30  # number of genes of a response that change most, whose intervals are calibrated by themselves
NO_CHANGE, OWN = "no change", "own cells"
CONFOUNDED = "treatment and batch are confounded, as no batch has both treated and untreated cells"

Predictions = Mapping[str, np.ndarray]
"""Changes of mean log expression ``(genes,)`` by the name of the predictor."""

Source = Literal["own", "transferred", "parts", "features", "network"]
SOURCES: tuple[Source, ...] = get_args(Source)
"""Sources of responses: cells of the context, other contexts or doses, parts, other perturbations, the network."""


class StateMoments(NamedTuple):
    """Moments of cell states and log expression over cells."""

    state: np.ndarray  # (states,): mean
    square: np.ndarray  # (states, states): mean outer product
    product: np.ndarray  # (states, genes): mean product with log expression
    expression: np.ndarray  # (genes,): mean

    @classmethod
    def mean_of(cls, contexts: list[StateMoments]) -> StateMoments:
        return cls(*(np.mean(part, axis=0) for part in zip(*contexts, strict=True)))

    def regress(self, state: np.ndarray) -> np.ndarray:
        """Predict log expression ``(genes,)`` at a state by ridge regression."""
        return self.expression + (state - self.state) @ self.slopes

    @property
    def slopes(self) -> np.ndarray:
        """Slopes of the ridge regression ``(states, genes)``; the penalty is the mean variance of a state."""
        penalty = max(np.trace(self.covariance) / len(self.state), np.finfo(float).tiny)
        shared = self.product - np.outer(self.state, self.expression)
        return np.linalg.solve(self.covariance + penalty * np.eye(len(self.state)), shared)

    @property
    def covariance(self) -> np.ndarray:
        return self.square - np.outer(self.state, self.state)


def context_predictions(before: np.ndarray, changes: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
    """Predict the response of a context with untreated means ``target`` from other contexts ``(contexts, genes)``."""
    # Nadaraya-Watson kernel regression, gene by gene: weights are higher for contexts with a similar level of the gene
    # and, except for the mean response, a correlated profile. Gains are transferred as differences of fourth roots of
    # expression, and losses as ratios.
    comparable = np.exp(-np.abs(_levels(before) - _levels(target)))
    kernel = similarity_weights(before, target)[:, None] * comparable
    predictions = {}
    for name, weights in {"mean response": comparable + 1e-12, "similar contexts": kernel + 1e-12}.items():
        weights = weights / weights.sum(0)
        increase = (weights * (_roots(before + changes) - _roots(before))).sum(0)
        gains = np.log1p((_roots(target) + increase).clip(min=0) ** 4) - target
        level, change = (weights * before).sum(0), (weights * changes).sum(0)
        losses = _losses(before, change, target, change / np.maximum(level, TINY))
        predictions[name] = np.where(change < 0, losses, gains)
    return predictions


def _losses(before: np.ndarray, change: np.ndarray, target: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Transfer losses as ratios, up to the highest level of the gene in any context, and as differences beyond."""
    reach = np.divide(before.max(0), target, out=np.ones_like(target), where=target > 0).clip(0, 1)
    return np.maximum(reach * ratio.clip(min=-1) * target + (1 - reach) * change, -target)


def state_prediction(
    treated: StateMoments, untreated: StateMoments, before: np.ndarray, target: np.ndarray, state: np.ndarray
) -> np.ndarray:
    """Predict a response by latent arithmetic: regressions of treated and untreated cells on cell states."""
    expected, mean_change = untreated.regress(state), treated.expression - untreated.expression
    change = treated.regress(state) - expected
    losses = _losses(before, mean_change.clip(max=0), target, change / np.maximum(expected, TINY))
    return np.where(change < 0, losses, change)


def similarity_weights(before: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Compute exponential kernel weights ``(contexts,)`` of 1 - correlation, relative to the nearest context."""
    centred, own = before - before.mean(1, keepdims=True), target - target.mean()
    sizes = np.sqrt((centred**2).sum(1) * (own**2).sum())
    distances = (1 - centred @ own / np.maximum(sizes, np.finfo(float).tiny)).clip(min=np.finfo(np.float32).eps)
    weights = np.exp(1 - distances / distances.min())
    return weights / weights.sum()


def dose_predictions(
    dose: float, own: Mapping[float, tuple[np.ndarray, np.ndarray]], pooled: Mapping[float, np.ndarray]
) -> Predictions:
    """Predict the response to a dose by own responses to others, with variances, and those pooled over contexts."""
    # Own responses are shrunk towards their mean. No mean is predicted for doses below the lowest.
    changes, averages = np.stack([change for change, _ in own.values()]), np.stack([pooled[x] for x in own])
    centre, weights = changes.mean(0), dose_weights(dose, np.array(list(own)))
    smooth = [centre + adaptive_shrinkage(change - centre, variance)[0] for change, variance in own.values()]
    interpolated = {"between doses": weights @ np.stack(smooth), "between doses, all contexts": weights @ averages}
    return interpolated if dose < min(own) else {"mean of doses": averages.mean(0), **interpolated}


def dose_weights(dose: float, doses: np.ndarray) -> np.ndarray:
    r"""Compute weights ``(doses,)`` of linear interpolation in :math:`\log(1 + d / d_1)`, with the lowest dose."""
    # Responses are 0 at dose 0 and constant beyond the largest dose.
    order = np.argsort(doses)
    scale = np.log1p(np.append(0.0, doses[order]) / doses.min())
    weights = np.empty(len(doses))
    weights[order] = [np.interp(np.log1p(dose / doses.min()), scale, unit) for unit in np.eye(len(scale))[1:]]
    return weights


def part_predictions(parts: np.ndarray, measured: np.ndarray, mean: np.ndarray) -> dict[str, np.ndarray]:
    """Sum responses to the parts of a combination ``(parts, genes)``: shrunk, as measured, or around the mean."""
    return {
        "sum of parts": parts.sum(0),
        "sum of parts as measured": measured.sum(0),
        "sum of parts around the mean": mean + (parts - mean).sum(0),
    }


def feature_predictions(changes: np.ndarray, features: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
    """Predict the response at features ``target`` by ridge regression on the features of other perturbations."""
    # The penalty minimises the leave-one-out error.
    lengths = max(((features - features.mean(0)) ** 2).sum(1).mean(), np.finfo(float).eps)
    return {
        "mean of perturbations": changes.mean(0),
        "ridge on features": RidgeCV(lengths * PENALTIES).fit(features, changes).predict(target[None])[0],
    }


def _levels(log_mean: np.ndarray) -> np.ndarray:
    return np.log(np.expm1(log_mean) + OFFSET)


def _roots(log_mean: np.ndarray) -> np.ndarray:
    return np.expm1(log_mean.clip(min=0)) ** 0.25


@dataclass(frozen=True)
class Prediction:
    """A predicted change of mean log expression, at equal sequencing depth."""

    change: np.ndarray  # (genes,): of the mean of log(1 + counts per 10,000)
    half_width: np.ndarray  # (genes,): of the 80 % interval; NaN without left-out responses, and for `no_source`
    source: Source
    weights: Mapping[str, float]  # stacking weights of the predictors, which sum to 1
    pearson: np.ndarray  # (left out,): correlations of left-out responses with their predictions
    gain: float = np.nan  # 1 minus the ratio of the squared errors of these predictions and of the plain mean
    is_ahead: bool | None = None  # whether errors are below the plain mean's by an 80 % interval; None if too few
    cautions: tuple[str, ...] = ()
    log_ratio: float = 0.0  # of library sizes, treated to untreated, as measured
    is_noise: bool = False  # whether no gene changes significantly in any context that the prediction rests on
    no_source: np.ndarray | bool = False  # (genes,): expressed in the context and hardly in any source

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
    ridge = PRIOR_UNITS / len(truth) * np.trace(gram) / n_predictors or 1.0  # 1: no prediction changes a gene
    penalty = 1e3 * max(np.trace(gram), ridge)  # makes the weights sum to 1
    root = np.linalg.cholesky(gram + ridge * np.eye(n_predictors) + penalty)
    weights = nnls(root.T, np.linalg.solve(root, products + ridge / n_predictors + penalty))[0]
    return weights / weights.sum()


def spread(n: int) -> np.ndarray:
    """Return at most 50 evenly spaced positions below ``n``."""
    return np.arange(n)[:: max(1, -(-n // MOST_LEFT_OUT))]


class ContextComparison(NamedTuple):
    """Comparison of the treated and the untreated cells of a context."""

    codes: np.ndarray  # (columns,): of the context
    arms: Sequence[np.ndarray]  # numbers of treated and of untreated cells (groups,)
    before: np.ndarray  # (genes,): mean log expression of untreated cells
    change: np.ndarray  # (genes,): change of mean log expression at equal sequencing depth
    variance: np.ndarray  # (genes,): sampling variance of the change if both arms have the pooled variance
    inflation: np.ndarray  # (genes,): factor, at least 1, if the variances of the arms differ
    log_ratio: float  # log ratio of library sizes, treated to untreated
    is_noise: bool  # whether no gene changes significantly
    treated: StateMoments
    untreated: StateMoments

    def shrunk(self, priors: Sequence[Prediction], *cautions: str, is_noise: bool) -> Prediction:
        """Shrink the measured change towards the mean of predictions, or 0."""
        shrunk = shrink_towards(self.change, self.variance, self.inflation, priors)
        return replace(shrunk, log_ratio=float(self.log_ratio), is_noise=is_noise, cautions=cautions)


class Untreated(NamedTuple):
    """Untreated cells of a context at a back-off level."""

    columns: np.ndarray  # columns of contexts that the level keeps
    codes: np.ndarray  # (columns,): their codes
    n_cells: np.ndarray  # (groups,)
    log_mean: np.ndarray  # (genes,): mean log expression
    state: np.ndarray  # (states,): mean cell state


class MeasuredContexts:
    """Contexts in which a treatment was measured."""

    def __init__(self, comparisons: Sequence[ContextComparison], names: Sequence[str], *, confounded: bool) -> None:
        self.comparisons = comparisons
        self.names = names  # of the conditions in the columns of contexts
        self.contexts = np.stack([x.codes for x in comparisons])
        self.before = np.stack([x.before for x in comparisons])
        self.change = np.stack([x.change for x in comparisons])
        self.variance = np.stack([x.variance for x in comparisons])
        self.log_ratio = np.array([x.log_ratio for x in comparisons])
        self.is_noise = all(x.is_noise for x in comparisons)
        self.confounded = confounded  # whether no batch has both treated and untreated cells
        self.cautions = [CONFOUNDED] if confounded else []

    def take(self, rows: np.ndarray) -> MeasuredContexts:
        """Select contexts by a mask ``(contexts,)``."""
        chosen = [self.comparisons[row] for row in np.flatnonzero(rows).tolist()]
        return MeasuredContexts(chosen, self.names, confounded=self.confounded)

    def without(self, row: int) -> MeasuredContexts:
        return self.take(np.arange(len(self.comparisons)) != row)

    def row(self, context: np.ndarray) -> int | None:
        return next(iter(np.flatnonzero((self.contexts == context).all(1)).tolist()), None)

    def estimate(self, target: Untreated) -> tuple[np.ndarray, np.ndarray]:
        """Return the change of a measured context and its variance, or a prediction with variance 0."""
        if (row := self.row(target.codes)) is not None:
            return self.change[row], self.variance[row]
        predicted = self.predict(target).change
        return predicted, np.zeros_like(predicted)

    def pooled(self) -> np.ndarray:
        """Average the changes of all contexts ``(genes,)``, weighted by inverse variance."""
        return np.average(self.change, axis=0, weights=1 / (self.variance.sum(1) + np.finfo(float).tiny))

    def predict(self, target: Untreated) -> Prediction:
        """Predict the change of a context, stacked by leaving contexts out; the plain mean of fewer than three."""
        # If no context has the cell type of the target, say, all contexts of a cell type are left out together.
        n_contexts, left_out = len(self.comparisons), []
        plain, shared = n_contexts < FEW, (self.contexts == target.codes).any(0)  # (columns,)
        for row in spread(n_contexts) if n_contexts > 1 else ():
            own = self.comparisons[row]
            alike = (self.contexts[:, ~shared] == own.codes[~shared]).all(1)
            rest = self.without(row) if alike.all() else self.take(~alike)
            predictions = rest._predictions(own.codes, own.before, own.untreated.state, shared, plain=plain)
            left_out.append((predictions, own.change))
        predictions = self._predictions(target.codes, target.log_mean, target.state, shared, plain=plain)
        stacked = stack(predictions, left_out, "transferred")
        highest = np.maximum(_levels(self.before), _levels((self.before + self.change).clip(min=0))).max(0)
        lacking = _levels(target.log_mean) - highest > np.log(10)  # ten times the highest level in any source
        few = f"measured in only {n_contexts} other context{'s' * (n_contexts > 1)}, whose plain mean is predicted"
        noise, size = self.log_ratio.var(ddof=1) / n_contexts if n_contexts > 1 else 0.0, self.log_ratio.mean()
        size, width = float(size * james_stein(noise, size**2)), np.where(lacking, np.nan, stacked.half_width)
        known = replace(stacked, half_width=width, log_ratio=size, is_noise=self.is_noise, no_source=lacking)
        return known.with_cautions(*self.cautions, *([few] if plain else []))

    def _predictions(
        self, codes: np.ndarray, before: np.ndarray, state: np.ndarray, shared: np.ndarray, *, plain: bool
    ) -> Predictions:
        """Predict by each predictor, with adaptive shrinkage by the sampling variance of the measured changes."""
        predictions = context_predictions(self.before, self.change, before)
        similar = similarity_weights(self.before, before) ** 2 @ self.variance
        noise = {"mean response": self.variance.sum(0) / len(self.variance) ** 2}
        if plain:
            predictions = {"mean response": predictions["mean response"]}
        elif state.size:
            treated = StateMoments.mean_of([x.treated for x in self.comparisons])
            untreated = StateMoments.mean_of([x.untreated for x in self.comparisons])
            predictions["latent arithmetic"] = state_prediction(treated, untreated, self.before, before, state)
        for column in np.flatnonzero(shared).tolist() if len(shared) > 1 and not plain else ():
            name, same = f"same {self.names[column]}", self.contexts[:, column] == codes[column]
            same = same if same.any() else ~same
            predictions[name] = context_predictions(self.before[same], self.change[same], before)["mean response"]
            noise[name] = self.variance[same].sum(0) / same.sum() ** 2
        return {name: adaptive_shrinkage(x, noise.get(name, similar))[0] for name, x in predictions.items()}


def between_doses(untreated: Untreated, dose: float, measured: dict[float, MeasuredContexts]) -> Prediction:
    """Predict the response to a dose from contexts with other doses, stacked by leaving each dose out."""
    own = {x: contexts.estimate(untreated) for x, contexts in measured.items()}
    pooled = {x: contexts.pooled() for x, contexts in measured.items()}
    left_out = []
    for held_out in [x for x in measured if x < max(measured)]:
        for codes, change in zip(measured[held_out].contexts, measured[held_out].change, strict=True):
            rest = [x for x, contexts in measured.items() if x != held_out and contexts.row(codes) is not None]
            if rest and (held_out < min(rest)) == (dose < min(measured)):  # as far from the others as the dose
                estimates = {x: measured[x].estimate(untreated._replace(codes=codes)) for x in rest}
                left_out.append((dose_predictions(held_out, estimates, pooled), change))
    log_ratios = np.array([contexts.log_ratio.mean() for contexts in measured.values()])
    log_ratio = float(dose_weights(dose, np.array(list(measured))) @ log_ratios)
    return replace(stack(dose_predictions(dose, own, pooled), left_out, "transferred"), log_ratio=log_ratio)
