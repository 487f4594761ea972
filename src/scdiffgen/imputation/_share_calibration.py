r"""Calibration of imputed shares: the mean of each label, and the slope of deviations from the mean.

Over the training cells of a label, the ratio of observed molecules :math:`x_g` to expected molecules :math:`e_g` has
the gamma-Poisson posterior mean :math:`(x_g + k) / (e_g + k)`, with :math:`k` estimated for the label by moments:
:math:`\mathbb E \sum_g ((x_g - e_g)^2 / e_g - 1) = \sum_g e_g / k`. The deviation of a cell from its label mean is
multiplied by the slope of a weighted regression over left-out cells, between 0 and 1.
"""

from typing import NamedTuple, Self

import numpy as np
from scipy.special import log_softmax, softmax

LEAST = 1e-9  # lower bound of denominators
PRIOR = 10.0  # prior information of a slope of 1, added to that of left-out cells


class ShareCalibration(NamedTuple):
    """Calibration of shares by label; the last row is for cells without a label."""

    log_ratios: np.ndarray  # (labels + 1, columns)
    log_means: np.ndarray  # (labels + 1, columns)
    slopes: np.ndarray  # (labels + 1,)

    @classmethod
    def fit(cls, observed: np.ndarray, expected: np.ndarray) -> Self:
        """Fit label means by sums ``(labels + 1, columns)`` over training cells; empty labels use the last row."""
        sums = np.stack([observed, expected])
        sums[:, :-1][:, sums[1, :-1].sum(1) == 0] = sums[:, -1:]
        observed, expected = sums[0], np.maximum(sums[1], LEAST)
        overdispersion = ((observed - expected) ** 2 / expected - 1).sum(1, keepdims=True)
        precision = expected.sum(1, keepdims=True) / np.maximum(overdispersion, LEAST)
        log_ratios = np.log((observed + precision) / (expected + precision))
        log_means = log_softmax(np.log(expected) + log_ratios, axis=1)
        return cls(log_ratios.astype(np.float32), log_means.astype(np.float32), np.ones(len(observed), np.float32))

    def shares(self, log_shares: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Calibrate log shares ``(cells, columns)`` of cells with labels ``(cells,)``."""
        slopes = self.slopes[labels, None]
        return softmax(slopes * (log_shares + self.log_ratios[labels]) + (1 - slopes) * self.log_means[labels], axis=1)

    def with_slope(self, counts: np.ndarray, log_shares: np.ndarray, labels: np.ndarray) -> Self:
        """Fit the slope of labelled cells to left-out cells; for cells without a label it is 1."""
        means, sizes = np.exp(self.log_means[labels]), counts.sum(1, keepdims=True)
        deviations = self.shares(log_shares, labels) / means - 1
        has_label = labels < len(self.slopes) - 1
        covariance = (deviations * (counts - sizes * means))[has_label].sum()
        information = (sizes * means * deviations**2)[has_label].sum()
        slope = np.clip((covariance + PRIOR) / (information + PRIOR), 0, 1)
        return self._replace(slopes=np.append(np.full(len(self.slopes) - 1, slope), 1.0).astype(np.float32))
