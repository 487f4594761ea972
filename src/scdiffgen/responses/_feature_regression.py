r"""The response to one perturbation from others by ridge regression on feature vectors, with an intercept.

The penalty minimises the leave-one-out error :math:`(y_i - \hat y_i) / (1 - H_{ii})` (Allen's PRESS; Hastie, Tibshirani
& Friedman 2009, section 7.10); with an infinite penalty the prediction is the mean of the others.
"""

from __future__ import annotations

import numpy as np

PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, np.inf)
"""Relative to the mean squared length of the centred features."""

MIN_PERTURBATIONS = 3


def feature_weights(known: np.ndarray, asked: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """Weights ``(perturbations,)``, of sum 1, of measured ``changes`` to predict the one with features ``asked``."""
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
