r"""Gaussian diffusion: conversions between predictions, and loss weights.

A network predicts the data :math:`x_0`, the noise :math:`\epsilon` or the velocity
:math:`v = \alpha' x_0 + \sigma' \epsilon`, each of which determines the others given :math:`x_t`:
:math:`x_0 = (x_t - \sigma \epsilon) / \alpha = \sigma' x_t - \sigma v` and
:math:`\epsilon = (x_t - \alpha x_0) / \sigma = \alpha v - \alpha' x_t`.
Their squared errors are 1, :math:`\alpha^2 / \sigma^2` and :math:`1 / \sigma^2` times that of :math:`x_0`.
"""

from typing import Literal

import torch
from torch import Tensor

from ._schedules import Level

PredictionKind = Literal["x0", "eps", "v"]


def add_noise(clean: Tensor, noise: Tensor, level: Level) -> Tensor:
    """Add noise to data ``(cells, ...)`` at levels ``(cells,)``."""
    level = level.expand_as(clean)
    return level.alpha * clean + level.sigma * noise


def to_clean(predicted: Tensor, kind: PredictionKind, noisy: Tensor, level: Level) -> Tensor:
    """Convert a prediction of data, noise or velocity to the data ``(cells, ...)``."""
    level = level.expand_as(noisy)
    if kind == "x0":
        return predicted
    if kind == "eps":
        return (noisy - level.sigma * predicted) / level.alpha
    return level.sigma_rate * noisy - level.sigma * predicted


def to_noise(clean: Tensor, noisy: Tensor, level: Level) -> Tensor:
    """Compute the noise ``(cells, ...)`` in ``noisy`` given the data ``clean``."""
    level = level.expand_as(noisy)
    return (noisy - level.alpha * clean) / level.sigma


def error_weight(kind: PredictionKind, level: Level) -> Tensor:
    """Compute the weight ``(cells,)`` that converts the squared error of the data to that of the prediction."""
    snr = level.log_snr.exp()
    return {"x0": torch.ones_like(snr), "eps": snr, "v": level.sigma**-2}[kind]


def gaussian_loss(predicted: Tensor, clean: Tensor, weight: Tensor) -> Tensor:
    """Compute the weighted mean squared error ``(cells,)`` of the data ``(cells, ...)``."""
    return weight * (predicted - clean).square().flatten(1).mean(1)
