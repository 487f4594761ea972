"""Simple predictors of a response ``(genes + 2,)``: changes of mean log expression and of log library sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ._cell_states import StateSlopes
from ._feature_regression import feature_weights
from ._library_sizes import N_SIZES, of_genes
from ._stacking import NO_CHANGE, Predictions

BANDWIDTH = 1.0  # distance beyond the nearest context, relative to it, at which a weight has fallen by e
SMOOTH, NOISE = 1.5, 0.1  # of the Gaussian process over the logarithm of doses: length scale and variance of the noise


def from_contexts(before: np.ndarray, changes: np.ndarray, here: np.ndarray, by_state: StateSlopes) -> Predictions:
    """Predict the response of a context, untreated means ``here``, from other contexts ``(contexts, genes + 2)``."""
    distances = uncorrelated(of_genes(before), of_genes(here))
    # equal or Nadaraya-Watson weights; up-regulated genes move by differences, down-regulated genes by ratios
    alike, kernel = np.full(len(before), 1 / len(before)), kernel_weights(distances)
    nearest = np.eye(len(before))[np.argmin(distances)]
    risen = _roots(before + changes) - _roots(before)

    def of(weights: np.ndarray, *, roots: bool = False) -> np.ndarray:
        change, level = weights @ changes, weights @ before
        fallen = here * np.divide(change, level, out=np.zeros_like(change), where=level > 0).clip(min=-1)
        if not roots:
            return np.where(change < 0, fallen, change)
        moved = np.log1p(np.maximum(_roots(here) + weights @ risen, 0) ** 4) - here
        return np.where(change < 0, fallen, moved)

    found = {
        NO_CHANGE: np.zeros_like(here),
        "mean of contexts": of(alike),
        "mean of contexts, roots": of(alike, roots=True),
        "nearest context, roots": of(nearest, roots=True),
        "similar contexts": of(kernel),
        "similar contexts, roots": of(kernel, roots=True),
    }
    if len(by_state.slopes):
        apart = np.append(by_state.change(of_genes(here - kernel @ before)), np.zeros(N_SIZES))
        found["similar contexts, by state"] = np.maximum(found["similar contexts, roots"] + apart, -here)
    return found


def kernel_weights(distances: np.ndarray) -> np.ndarray:
    """Weights ``(contexts,)`` of an exponential kernel of the distance, relative to that of the nearest context."""
    nearest = max(distances.min(), np.finfo(float).tiny)
    weights = np.exp(-(distances / nearest - 1) / BANDWIDTH)
    return weights / weights.sum()


def from_doses(dose: float, doses: Sequence[float], own: np.ndarray, pooled: np.ndarray) -> Predictions:
    r"""Interpolate responses ``(doses, genes + 2)``, own and pooled, on the scale :math:`\log(1 + d / d_1)`.

    :math:`d_1` is the smallest dose; the response is zero at dose 0, and constant beyond the largest.
    """
    known = np.array(doses)
    at = np.log1p(known / known.min())
    where = min(np.log1p(dose / known.min()), at.max())
    order = np.argsort(at)
    between = np.zeros(len(at))
    scale = np.append(0.0, at[order])
    between[order] = [np.interp(where, scale, one) for one in np.eye(len(scale))[1:]]
    found = {
        NO_CHANGE: np.zeros(own.shape[1]),
        "between doses": between @ own,
        "between doses, all contexts": between @ pooled,
        "nearest dose": pooled[np.argmin(np.abs(at - where))],
    }
    if dose < known.max():  # beyond, nothing is smoothed
        smooth = np.linalg.solve(
            _covariance(at, at) + NOISE * np.eye(len(at)), _covariance(at, np.array([where]))[:, 0]
        )
        found |= {"smooth over doses": smooth @ own, "smooth over doses, all contexts": smooth @ pooled}
    return found


def from_others(changes: np.ndarray, features: np.ndarray | None, target: np.ndarray | None) -> Predictions:
    """Predict the response to a perturbation from others ``(perturbations, genes + 2)``, by any feature vectors."""
    found = {NO_CHANGE: np.zeros(changes.shape[1]), "mean of perturbations": changes.mean(0)}
    if features is not None and target is not None:
        found["ridge on features"] = feature_weights(features, target, changes) @ changes
    return found


def from_parts(parts: np.ndarray, measured: np.ndarray, mean: np.ndarray) -> Predictions:
    """Add responses to the parts ``(parts, genes + 2)``: shrunk, ``measured``, or as deviations from the ``mean``."""
    return {
        NO_CHANGE: np.zeros_like(mean),
        "sum of parts": parts.sum(0),
        "sum of parts as measured": measured.sum(0),
        "sum of parts around the mean": mean + (parts - mean).sum(0),
    }


def uncorrelated(before: np.ndarray, here: np.ndarray) -> np.ndarray:
    """One minus the correlation over genes ``(contexts,)``."""
    centred, mine = before - before.mean(1, keepdims=True), here - here.mean()
    sizes = np.sqrt((centred**2).sum(1) * (mine**2).sum())
    return 1 - centred @ mine / np.maximum(sizes, np.finfo(float).tiny)


def _roots(log_mean: np.ndarray) -> np.ndarray:
    return np.expm1(log_mean.clip(min=0)) ** 0.25


def _covariance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Covariance of a Gaussian process that is 0 at 0."""
    apart = (one[:, None] - other[None]) ** 2
    return np.exp(-apart / (2 * SMOOTH**2)) - np.exp(-(one[:, None] ** 2 + other[None] ** 2) / (2 * SMOOTH**2))
