r"""The response to one perturbation from those to others, by their feature vectors.

Ridge regression of the changes on the features, with an intercept. Its penalty is the one with which the perturbations
that were measured predict each other best, each left out in turn; where it has no end, features say nothing, and the
response is the mean of the others. As the fit is linear in the responses, so is a left-out residual,
:math:`(y_i - \hat y_i) / (1 - H_{ii})` (Allen's PRESS; Hastie, Tibshirani & Friedman 2009, section 7.10).
"""

from __future__ import annotations

import numpy as np

PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, np.inf)
"""Relative to the mean squared length of the centred features."""

MIN_PERTURBATIONS = 3


def feature_weights(known: np.ndarray, asked: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """Weights of the responses to measured perturbations, whose sum is the response to another; they add up to 1.

    Features are ``known`` ``(perturbations, features)`` and ``asked`` ``(features,)``, responses to the measured ones
    ``changes`` ``(perturbations, genes)``.
    """
    centre = known.mean(0)
    features, response = known - centre, changes - changes.mean(0)
    gram = features @ features.T
    scale = max(np.trace(gram) / len(known), np.finfo(float).tiny)
    lengths, vectors = np.linalg.eigh(gram / scale)
    lengths = lengths.clip(min=0)
    turned = vectors.T @ response
    errors = []
    for penalty in PENALTIES:
        kept = lengths / (lengths + penalty)
        residual = response - (vectors * kept) @ turned
        leverage = 1 / len(known) + (vectors**2) @ kept
        errors.append(((residual / (1 - leverage).clip(min=1e-6)[:, None]) ** 2).sum())
    penalty = PENALTIES[int(np.argmin(errors))]
    likeness = features @ (asked - centre) / scale
    slopes = (vectors / (lengths + penalty)) @ (vectors.T @ likeness)
    return 1 / len(known) + slopes - slopes.mean()
