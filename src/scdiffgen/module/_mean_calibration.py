"""Calibration of gene means by shrunken differences of mean log expression between training and drawn cells."""

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler


def mean_change(
    real: StandardScaler, drawn: StandardScaler, share: float = 1.0, n_together: int = 400
) -> NDArray[np.float64]:
    """Compute log ratios of real to drawn means ``(genes,)``, shrunk by empirical Bayes.

    Sampling noise includes the noise of drawn cells, and of real cells if they are only a ``share`` of all training
    cells. Groups of ``n_together`` genes with similar expression share one shrinkage factor.
    """
    least = 0.5 / real.n_samples_seen_
    change = np.log((real.mean_ + least) / (drawn.mean_ + least))
    errors = [moments.var_ / moments.n_samples_seen_ / (moments.mean_ + least) ** 2 for moments in (drawn, real)]
    noise = errors[0] + max(1 - share, 0) * errors[1]
    order = np.argsort(real.mean_, kind="stable")
    for genes in np.array_split(order, -(-len(order) // n_together)):
        change[genes] *= max(1 - noise[genes].mean() / max((change[genes] ** 2).mean(), 1e-12), 0.0)
    return change
