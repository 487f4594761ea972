"""The classical path: Gaussian diffusion of normalised expression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.diffusion import TIME_MIN

from ._processes import Rng
from ._vector_module import VectorDenoiser, VectorModule

TARGET_SUM = 1e4


class GaussianModule(VectorModule):
    """Gaussian diffusion of expression: log of counts per 10,000 plus one, standardised gene by gene.

    Sampled expression becomes counts by its shares of the library size, rounded.
    """

    process_name = "gaussian"

    def make_denoiser(self, features: Mapping[str, Tensor]) -> VectorDenoiser:
        """Predict data, noise or velocity."""
        self.register_buffer("mean", torch.zeros(self.n_vars))
        self.register_buffer("scale", torch.ones(self.n_vars))
        return VectorDenoiser(self.n_vars, self.specs, self.size, features, self.process)

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

    def to_counts(self, vector: Tensor, library: Tensor, generator: Rng = None) -> Tensor:
        """Shares of the library sizes, rounded."""
        return (self._shares(vector) * library[:, None]).round()

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """Shares of the genes ``(cells, genes)`` in cells that are taken for slightly noisy."""
        library = self.library(counts)
        denoise = self.ema_denoiser.bind(conditions)(library)
        return self._shares(denoise(self.to_vector(counts), torch.tensor(TIME_MIN, device=library.device)))

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` of cells at the lowest level of noise."""
        library = self.library(counts)
        level = self.process.level(torch.tensor(TIME_MIN, device=library.device)).log_snr / 2
        embedded = self.ema_denoiser.embed_conditions(conditions, len(library))
        return self.ema_denoiser.network.tokens(self.to_vector(counts), level.expand_as(library), library, embedded)

    def gene_weights(self) -> Tensor | None:
        """Weights of the genes on :meth:`hidden`, in logs of counts per 10,000.

        Noise and velocity lead away from the data, so their weights are turned round.
        """
        loadings = super().gene_weights()
        sign = 1 if self.process_options.prediction == "x0" else -1
        return None if loadings is None else sign * self.scale * loadings

    def _log_normalised(self, counts: Tensor) -> Tensor:
        return torch.log1p(counts.to_dense() * (TARGET_SUM / self.library(counts))[:, None])

    def _shares(self, vector: Tensor) -> Tensor:
        logs = (vector * self.scale + self.mean).clamp(0, math.log1p(TARGET_SUM))
        rates = torch.expm1(logs)
        return rates / rates.sum(1, keepdim=True).clamp(min=1e-8)
