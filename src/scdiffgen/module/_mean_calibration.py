"""Calibration of gene means by shrunken differences of mean log expression between training and drawn cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

if TYPE_CHECKING:
    from ._cell_codes import Batches
    from ._diffusion_module import DiffusionModule


def match_means(module: DiffusionModule, cells: Batches, n_training: int, n_rounds: int, n_drawn: int) -> None:
    """Shift gene biases until drawn cells match the mean log expression of the training cells.

    The number of sampling steps is large enough for converged means; four are too few (decision 34).
    """
    generator = torch.Generator(module.denoiser.network.readout.bias.device).manual_seed(0)
    for _ in range(n_rounds):
        real, drawn = (StandardScaler(with_mean=False) for _ in range(2))
        for counts, given in cells:
            real.partial_fit(module.log_expression(counts))
            for _ in range(min(max(n_drawn // n_training, 1), 8)):
                new = module.generate(given, module.library(counts), n_steps=16, generator=generator)
                drawn.partial_fit(module.log_expression(new.to_sparse_csr()))
        change = torch.from_numpy(mean_change(real, drawn, real.n_samples_seen_ / n_training))
        for denoiser in module.denoisers:
            denoiser.network.readout.bias.add_(change.to(denoiser.network.readout.bias))


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
