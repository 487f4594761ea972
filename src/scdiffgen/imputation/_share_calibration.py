r"""Imputed shares that are right on average: in each label, and as far as they differ from its mean.

A network that knows nothing yet of what it imputes takes labels for more alike than they are, above all where a shallow
modality asks for strong priors; and what it reads from few molecules it follows too far. Over the training cells of a
label, the molecules :math:`x_g` of a column and what the network expects of them, :math:`e_g`, should be the same up to
chance. With :math:`x_g \sim \mathrm{Poisson}(r_g e_g)` and :math:`r_g \sim \mathrm{Gamma}(k, k)` the ratio is estimated
by :math:`(x_g + k) / (e_g + k)`, where :math:`k` is that of the label, by moments:
:math:`\mathbb E \sum_g ((x_g - e_g)^2 / e_g - 1) = \sum_g e_g / k`. What is left of the difference between a cell and
its label is multiplied by the slope of a weighted regression of left-out cells on it, 1 at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax, softmax

LEAST = 1e-9  # of what is divided by
PRIOR = 10.0  # weight of a slope of 1: of the information of left-out cells


class ShareCalibration(NamedTuple):
    """What shares are calibrated by: a row a label, and the last for cells without one."""

    log_ratios: np.ndarray  # (labels + 1, columns)
    log_means: np.ndarray  # (labels + 1, columns)
    slopes: np.ndarray  # (labels + 1,)

    def shares(self, log_shares: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Calibrated shares ``(cells, columns)`` of cells with labels ``(cells,)``."""
        slopes = self.slopes[labels, None]
        return softmax(slopes * (log_shares + self.log_ratios[labels]) + (1 - slopes) * self.log_means[labels], axis=1)

    def with_slope(self, counts: np.ndarray, log_shares: np.ndarray, labels: np.ndarray) -> ShareCalibration:
        """The same with the slope that left-out cells with labels tell; without a label it stays 1."""
        means, sizes = np.exp(self.log_means[labels]), counts.sum(1, keepdims=True)
        deviations = self.shares(log_shares, labels) / means - 1
        has_label = labels < len(self.slopes) - 1
        told = (deviations * (counts - sizes * means))[has_label].sum()
        information = (sizes * means * deviations**2)[has_label].sum()
        slope = np.clip((told + PRIOR) / (information + PRIOR), 0, 1)
        return self._replace(slopes=np.append(np.full(len(self.slopes) - 1, slope), 1.0).astype(np.float32))


def share_calibration(observed: np.ndarray, expected: np.ndarray) -> ShareCalibration:
    """From sums ``(labels + 1, columns)`` over training cells; a label that no cell has is as without one."""
    sums = np.stack([observed, expected])
    sums[:, :-1][:, sums[1, :-1].sum(1) == 0] = sums[:, -1:]
    observed, expected = sums[0], np.maximum(sums[1], LEAST)
    beyond_chance = ((observed - expected) ** 2 / expected - 1).sum(1, keepdims=True)
    precision = expected.sum(1, keepdims=True) / np.maximum(beyond_chance, LEAST)
    log_ratios = np.log((observed + precision) / (expected + precision))
    log_means = log_softmax(np.log(expected) + log_ratios, axis=1)
    return ShareCalibration(
        log_ratios.astype(np.float32), log_means.astype(np.float32), np.ones(len(sums[0]), np.float32)
    )
