"""The classical path: Gaussian diffusion of normalised expression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from scvi.module.base import LossOutput
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import TIME_MIN
from scdiffgen.nn import AdditiveReadout, NetworkSize, ScoreNetwork

from ._gaussian_options import GaussianOptions
from ._vector_diffusion import VectorDenoiser, VectorDiffusion

TARGET_SUM = 1e4


class ExpressionDenoiser(VectorDenoiser):
    """Predict data, noise or velocity of noisy expression."""

    network: ScoreNetwork

    def make_network(self, n_vars: int, size: NetworkSize) -> ScoreNetwork:
        """The base of the prediction."""
        return ScoreNetwork(n_vars, size, self.reads)

    def base(self, noisy: Tensor, level: Tensor, library: Tensor, condition: Tensor) -> Tensor:
        """What the network predicts without interventions ``(cells, genes)``."""
        return self.network.read(noisy, level, library, condition).scores


class GaussianModule(VectorDiffusion):
    """Gaussian diffusion of expression: log of counts per 10,000 plus one, standardised gene by gene.

    Generated expression becomes counts by its shares of the library size, rounded.
    """

    process = "gaussian"
    options_cls = GaussianOptions
    denoiser: ExpressionDenoiser
    ema_denoiser: ExpressionDenoiser
    mean: Tensor
    scale: Tensor

    def make_denoiser(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
    ) -> ExpressionDenoiser:
        """Predict data, noise or velocity."""
        self.register_buffer("mean", torch.zeros(n_vars))
        self.register_buffer("scale", torch.ones(n_vars))
        return ExpressionDenoiser(n_vars, specs, size, features)

    def length(self) -> int:
        """Number of genes."""
        return self.n_vars

    def initialise(self, batches: Iterable[tuple[Tensor, Conditions[Tensor]]]) -> None:
        """Take mean and standard deviation of each gene; a gene without variance keeps its unit."""
        n_cells, total, squares = 0, np.zeros(self.n_vars), np.zeros(self.n_vars)
        for counts, _ in batches:
            expression = self._log_normalised(counts).double()
            n_cells += len(expression)
            total += expression.sum(0).cpu().numpy()
            squares += expression.square().sum(0).cpu().numpy()
        mean = total / n_cells
        variance = squares / n_cells - mean**2
        self.mean.copy_(torch.from_numpy(mean))
        self.scale.copy_(torch.from_numpy(np.sqrt(np.where(variance > 1e-8, variance, 1.0))))

    def to_vector(self, counts: Tensor) -> Tensor:
        """Standardised expression ``(cells, genes)``."""
        return (self._log_normalised(counts) - self.mean) / self.scale

    def to_counts(self, vector: Tensor, library: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Shares of the library sizes, rounded."""
        return (self._shares(vector) * library[:, None]).round()

    def loss(self, counts: Tensor, conditions: Conditions[Tensor]) -> LossOutput:
        """Training loss of CSR counts ``(cells, genes)``; penalties on the read-out, if there are any, are added."""
        told, teaching = self.withheld(conditions)
        vector, library = self.to_vector(counts), self.library(counts)
        errors = self.denoising_loss(self.denoiser, vector, library, told, teaching=teaching)
        penalty = self.denoiser.network.readout.penalty()
        return LossOutput(loss=errors.mean() + penalty, n_obs_minibatch=len(errors))

    @torch.no_grad()
    def validation_loss(self, counts: Tensor, conditions: Conditions[Tensor], generator: torch.Generator) -> LossOutput:
        """The same of the averaged network, nothing withheld, at the given randomness."""
        vector, library = self.to_vector(counts), self.library(counts)
        errors = self.denoising_loss(self.ema_denoiser, vector, library, conditions, generator)
        return LossOutput(loss=errors.mean(), n_obs_minibatch=len(errors))

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """Shares of the genes ``(cells, genes)`` in cells that are taken for slightly noisy."""
        library = self.library(counts)
        denoise = self.bind(conditions, len(library), 1.0)(library)
        return self._shares(denoise(self.to_vector(counts), torch.tensor(TIME_MIN, device=library.device)))

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` of cells at the lowest level of noise."""
        library = self.library(counts)
        level = self.schedule(torch.tensor(TIME_MIN, device=library.device)).log_snr / 2
        condition = self.ema_denoiser.embed_conditions(conditions, len(library))
        return self.ema_denoiser.network.tokens(self.to_vector(counts), level.expand_as(library), library, condition)

    @torch.no_grad()
    def hidden(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """What each token of whole cells says to the genes: ``(cells, tokens, readout_dim)``."""
        return self.ema_denoiser.network.additive_readout.hidden(self.tokens(counts, conditions))

    def gene_weights(self) -> Tensor | None:
        """Weights of the genes on :meth:`hidden` ``(tokens, readout_dim, genes)``, in logs of counts per 10,000.

        Noise and velocity lead away from the data, so their weights are turned round. ``None`` if tokens do not add up.
        """
        readout = self.ema_denoiser.network.readout
        if not isinstance(readout, AdditiveReadout):
            return None
        sign = 1 if self.process_options.prediction == "x0" else -1
        return sign * self.scale * readout.loadings()

    def _log_normalised(self, counts: Tensor) -> Tensor:
        return torch.log1p(counts.to_dense() * (TARGET_SUM / self.library(counts))[:, None])

    def _shares(self, vector: Tensor) -> Tensor:
        logs = (vector * self.scale + self.mean).clamp(0, math.log1p(TARGET_SUM))
        rates = torch.expm1(logs)
        return rates / rates.sum(1, keepdim=True).clamp(min=1e-8)
