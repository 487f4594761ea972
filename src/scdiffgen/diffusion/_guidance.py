r"""Classifier-free guidance, :math:`\log \pi_w = \log \pi_0 + \sum_i w_i (\log \pi_i - \log \pi_0)`, renormalised.

:math:`\pi_0` is unconditional, :math:`\pi_i` given one condition, or given all with a single weight (1: no guidance).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ._draws import Rng
from ._ode_samplers import Denoise
from ._samplers import MoleculePrediction, MoleculePredictor
from ._thinning import log_of, within_range


class GuidedPrediction(NamedTuple):
    """Unconditional prediction, extrapolated towards conditional predictions."""

    unconditional: MoleculePrediction
    conditional: Sequence[MoleculePrediction]
    scales: Sequence[float]

    def log_prob(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(cells, genes)`` of the next molecule given a dense state ``(cells, genes)``."""
        return self._mixed([part.log_prob(state) for part in (self.unconditional, *self.conditional)]).log_softmax(1)

    def rates_at(self, state: Tensor) -> Tensor:
        """Combine the log-rates, and return rates ``(cells, genes)``."""
        logs = [log_of(part.rates_at(state)) for part in (self.unconditional, *self.conditional)]
        return within_range(self._mixed(logs)).exp()

    def draw(self, rates: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw ``n_molecules`` by given rates from the urn with the weights of the unconditional prediction."""
        return self.unconditional.draw(rates, n_molecules, generator)

    def _mixed(self, parts: Sequence[Tensor]) -> Tensor:
        base, *conditional = parts
        guided = base * (1 - sum(self.scales))
        for part, scale in zip(conditional, self.scales, strict=True):
            guided = guided + scale * part
        return guided


def guide(
    unconditional: MoleculePredictor, conditional: Sequence[MoleculePredictor], scales: Sequence[float]
) -> MoleculePredictor:
    """Combine predictors into a guided one; a single scale of 1 returns the conditional predictor itself."""
    if list(scales) == [1.0]:
        return conditional[0]

    def predictor(state: Tensor, library: Tensor) -> GuidedPrediction:
        predictions = [predict(state, library) for predict in conditional]
        return GuidedPrediction(unconditional(state, library), predictions, scales)

    return predictor


def guide_denoisers(unconditional: Denoise, conditional: Sequence[Denoise], scales: Sequence[float]) -> Denoise:
    """Guide denoisers of Gaussian diffusion by linear extrapolation of their predictions."""
    if list(scales) == [1.0]:
        return conditional[0]

    def denoise(noisy: Tensor, time: Tensor) -> Tensor:
        base = unconditional(noisy, time)
        moves = [scale * (model(noisy, time) - base) for model, scale in zip(conditional, scales, strict=True)]
        return base + torch.stack(moves).sum(0)

    return denoise
