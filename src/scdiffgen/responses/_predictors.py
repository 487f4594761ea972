"""Simple predictors of responses, i.e. of changes of mean log expression ``(genes,)``, as functions of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import RidgeCV

OFFSET = 0.1  # pseudocount of expression levels, in counts per 10,000
PENALTIES = np.array([0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 1e6])  # ridge penalties, relative to the features' mean square
TINY = np.finfo(np.float32).tiny

Predictions = Mapping[str, np.ndarray]
"""Changes of mean log expression ``(genes,)`` by the name of the predictor."""


class StateMoments(NamedTuple):
    """Moments of cell states and log expression over cells."""

    state: np.ndarray  # (states,): mean
    square: np.ndarray  # (states, states): mean outer product
    product: np.ndarray  # (states, genes): mean product with log expression
    expression: np.ndarray  # (genes,): mean

    @classmethod
    def mean_of(cls, contexts: list[StateMoments]) -> StateMoments:
        """Average moments over contexts."""
        return cls(*(np.mean(part, axis=0) for part in zip(*contexts, strict=True)))

    def regress(self, state: np.ndarray) -> np.ndarray:
        """Predict log expression ``(genes,)`` at a state by ridge regression."""
        return self.expression + (state - self.state) @ self.slopes

    @property
    def slopes(self) -> np.ndarray:
        """Slopes of the ridge regression ``(states, genes)``; the penalty is the mean variance of a state."""
        covariance = self.covariance
        penalty = max(np.trace(covariance) / len(covariance), np.finfo(float).tiny)
        shared = self.product - np.outer(self.state, self.expression)
        return np.linalg.solve(covariance + penalty * np.eye(len(covariance)), shared)

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the states ``(states, states)``."""
        return self.square - np.outer(self.state, self.state)


def context_predictions(before: np.ndarray, changes: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
    """Predict the response of a context with untreated means ``target`` from other contexts ``(contexts, genes)``."""
    # Nadaraya-Watson kernel regression, gene by gene: weights are higher for contexts with a similar level of the gene
    # and, except for the mean response, a correlated profile.
    levels, level = _levels(before), _levels(target)
    comparable = np.exp(-np.abs(levels - level))
    kernel = similarity_weights(before, target)[:, None] * comparable
    mean, similar = (weights / weights.sum(0) for weights in (comparable + 1e-12, kernel + 1e-12))
    names = {"mean response": mean, "similar contexts": similar}
    return {name: _transfer(before, changes, target, weights) for name, weights in names.items()}


def _transfer(before: np.ndarray, changes: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Transfer gains as differences of fourth roots of expression, and losses as ratios, by weights."""
    increase = (weights * (_roots(before + changes) - _roots(before))).sum(0)
    gains = np.log1p((_roots(target) + increase).clip(min=0) ** 4) - target
    level, change = (weights * before).sum(0), (weights * changes).sum(0)
    return np.where(change < 0, _losses(before, change, target, change / np.maximum(level, TINY)), gains)


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


def dose_predictions(dose: float, doses: np.ndarray, own: np.ndarray, pooled: np.ndarray) -> dict[str, np.ndarray]:
    """Average pooled responses ``(doses, genes)``, and interpolate own and pooled responses; a mean is no low dose."""
    weights = dose_weights(dose, doses)
    interpolated = {"between doses": weights @ own, "between doses, all contexts": weights @ pooled}
    return interpolated if dose < doses.min() else {"mean of doses": pooled.mean(0), **interpolated}


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


def no_source(before: np.ndarray, changes: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Mark genes ``(genes,)`` at more than ten times their highest level in any treated or untreated source."""
    return _levels(target) - np.maximum(_levels(before), _levels((before + changes).clip(min=0))).max(0) > np.log(10)


def _levels(log_mean: np.ndarray) -> np.ndarray:
    return np.log(np.expm1(log_mean) + OFFSET)


def _roots(log_mean: np.ndarray) -> np.ndarray:
    return np.expm1(log_mean.clip(min=0)) ** 0.25
