"""Simple predictions of a response, changes of means ``(genes + 2,)`` by name, from responses that were measured.

They are of log expression, and behind it of the logarithm of library sizes, in the same way.
"""

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
    """Of a context with untreated means ``here``, from others' ``(contexts, genes + 2)``.

    Contexts count alike, or by an exponential kernel of how little their untreated cells correlate (Nadaraya and
    Watson's regression). What rises does so by the same change of mean logarithms, or of fourth roots of the counts
    that these stand for: between a logarithm (responses multiply) and none (responses add). What falls does so in the
    same ratio of mean log expression. Slopes within contexts tell what a state unlike that of similar contexts adds.
    """
    distances = uncorrelated(of_genes(before), of_genes(here))
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
    """Weights ``(contexts,)`` that fall with the distance, relative to that of the nearest."""
    nearest = max(distances.min(), np.finfo(float).tiny)
    weights = np.exp(-(distances / nearest - 1) / BANDWIDTH)
    return weights / weights.sum()


def from_doses(dose: float, doses: Sequence[float], own: np.ndarray, pooled: np.ndarray) -> Predictions:
    r"""At a dose, from changes at others ``(doses, genes + 2)`` in the context and in all contexts together.

    On the scale :math:`\log(1 + d / d_1)`, :math:`d_1` the smallest dose, on which dose 0, where nothing changes, has
    a place; beyond the largest dose nothing changes any more.
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
    """Of a perturbation with feature vector ``target``, if any, from those of others ``(perturbations, genes + 2)``."""
    found = {NO_CHANGE: np.zeros(changes.shape[1]), "mean of perturbations": changes.mean(0)}
    if features is not None and target is not None:
        found["ridge on features"] = feature_weights(features, target, changes) @ changes
    return found


def from_parts(parts: np.ndarray, measured: np.ndarray, mean: np.ndarray) -> Predictions:
    """Of a combination, from the changes by its parts ``(parts, genes + 2)``, and the ``mean`` of single perturbations.

    They are added as predicted, which shrinks what may be chance, and as ``measured``, which shrinks nothing. What the
    mean differs from none by may be chance of the untreated cells, which is not to be added repeatedly.
    """
    return {
        NO_CHANGE: np.zeros_like(mean),
        "sum of parts": parts.sum(0),
        "sum of parts as measured": measured.sum(0),
        "sum of parts around the mean": mean + (parts - mean).sum(0),
    }


def uncorrelated(before: np.ndarray, here: np.ndarray) -> np.ndarray:
    """One minus the correlation over genes ``(contexts,)``: half the squared distance of standardised expression."""
    centred, mine = before - before.mean(1, keepdims=True), here - here.mean()
    sizes = np.sqrt((centred**2).sum(1) * (mine**2).sum())
    return 1 - centred @ mine / np.maximum(sizes, np.finfo(float).tiny)


def _roots(log_mean: np.ndarray) -> np.ndarray:
    return np.expm1(log_mean.clip(min=0)) ** 0.25


def _covariance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of a Gaussian process that is 0 at 0."""
    apart = (one[:, None] - other[None]) ** 2
    return np.exp(-apart / (2 * SMOOTH**2)) - np.exp(-(one[:, None] ** 2 + other[None] ** 2) / (2 * SMOOTH**2))
