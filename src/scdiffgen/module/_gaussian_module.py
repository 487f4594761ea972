"""The classical path: Gaussian diffusion of a vector for each cell, which is its normalised expression by default."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from scvi.module.base import LossOutput
from torch import Tensor

from scdiffgen._log_normalise import TARGET_SUM
from scdiffgen.diffusion import TIME_MAX, TIME_MIN, Denoise, Rng, time_of_signal, to_clean
from scdiffgen.nn import NetworkSize, ScoreNetwork

from ._denoiser import ConditionedDenoiser
from ._diffusion_module import DiffusionModule, loss_output
from ._processes import GaussianDiffusion, GaussianOptions, Given, Predictor, VectorPredictor


class Encoded(NamedTuple):
    """TrainingCells of which the vectors are known."""

    vector: Tensor  # (cells, length)
    library: Tensor  # (cells,)


TrainingCells: TypeAlias = Tensor | Encoded
"""CSR counts ``(cells, genes)``, or what is known of them."""


class VectorDenoiser(ConditionedDenoiser):
    """Predict vectors without noise from noisy ones."""

    input_type = "values"
    network: ScoreNetwork
    process: GaussianDiffusion

    def make_network(self, n_vars: int, size: NetworkSize) -> ScoreNetwork:
        return ScoreNetwork(n_vars, size, self.input_type)

    def bind(
        self, conditions: Given, effect_scale: float = 1.0, trains_effects: Tensor | None = None
    ) -> VectorPredictor:
        """Fix the conditions: the predictor takes library sizes, and gives a function of noisy vectors and times."""
        embedded, treatments = self.embed_conditions(conditions, conditions.n_cells), self.treatments(conditions)

        def predictor(library: Tensor) -> Denoise:
            def denoise(noisy: Tensor, time: Tensor) -> Tensor:
                level = self.process.level(time)
                log_level = (level.log_snr / 2).flatten().expand(conditions.n_cells)  # of one time, or one a cell
                predicted, _ = self.network.read(noisy, log_level, library, *embedded)
                added = self.effect_scores(noisy, log_level, library, treatments, trains_effects)
                for score in added.values():
                    predicted = predicted + effect_scale * score
                return to_clean(predicted, self.process.options.prediction, noisy, level)

            return denoise

        return predictor


class GaussianModule(DiffusionModule):
    """Gaussian diffusion of standardised log expression; counts are shares of the library size, rounded."""

    process_name = "gaussian"
    options_cls = GaussianOptions
    process_options: GaussianOptions
    process: GaussianDiffusion
    denoiser: VectorDenoiser
    ema_denoiser: VectorDenoiser
    mean: Tensor
    scale: Tensor

    def make_process(self) -> GaussianDiffusion:
        return GaussianDiffusion(self.process_options)

    def loss(self, cells: TrainingCells, conditions: Given) -> LossOutput:
        """Squared error of the prediction; penalties on the read-out are added."""
        conditions, trains_effects = self.drop_conditions(conditions)
        predictor = self.denoiser.bind(conditions, trains_effects=trains_effects)
        return loss_output(self._errors(predictor, cells), self.denoiser.network.readout.penalty())

    @torch.no_grad()
    def validation_loss(self, cells: TrainingCells, conditions: Given, generator: torch.Generator) -> LossOutput:
        return loss_output(self._errors(self.ema_denoiser.bind(conditions), cells, generator))

    def _errors(self, predictor: VectorPredictor, cells: TrainingCells, generator: Rng = None) -> Tensor:
        """Corrupt vectors, predict them without noise, and score the prediction ``(cells,)``."""
        vector, library = (self.to_vector(cells), self.library(cells)) if isinstance(cells, Tensor) else cells
        noisy = self.process.corrupt(vector, generator)
        return self.process.score(predictor(library)(noisy.state, noisy.time), noisy)

    @torch.no_grad()
    def draw(self, predictor: VectorPredictor, library: Tensor, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Draw cells of about ``library`` ``(cells,)`` molecules from noise: dense ``(cells, genes)``."""
        noise = torch.randn(len(library), len(self.mean), generator=generator, device=library.device)
        vector = self.process.draw(predictor(library), noise, TIME_MAX, n_steps=n_steps, generator=generator)
        return self.to_counts(vector, library, generator)

    @torch.no_grad()
    def counterfactual(
        self, cells: Tensor, source: Given, after: Predictor, *, keep: float | None, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Add noise until a share ``keep`` (none) of the variance of the cells is left, and remove it by ``after``."""
        library, vector = self.library(cells), self.to_vector(cells)
        start = time_of_signal(vector.new_tensor(keep or 0.0), self.process.level)
        noisy = self.process.corrupt(vector, generator, start).state
        moved = self.process.draw(after(library), noisy, float(start), n_steps=n_steps, generator=generator)
        return self.to_counts(moved, library, generator)

    # Vectors are expression.

    def make_denoiser(self, features: Mapping[str, Tensor]) -> VectorDenoiser:
        self.register_buffer("mean", torch.zeros(self.n_vars))
        self.register_buffer("scale", torch.ones(self.n_vars))
        return VectorDenoiser(self.n_vars, self.specs, self.size, features, self.process)

    def initialise(self, batches: Iterable[tuple[Tensor, Given]]) -> None:
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
        """Vectors ``(cells, length)`` of order one, of CSR counts: standardised expression."""
        return (self._log_normalised(counts) - self.mean) / self.scale

    def to_counts(self, vector: Tensor, library: Tensor, generator: Rng = None) -> Tensor:
        """Whole counts ``(cells, genes)`` of vectors: shares of the library sizes, rounded."""
        return (self._shares(vector) * library[:, None]).round()

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Given) -> Tensor:
        """Shares of the genes ``(cells, genes)`` in cells that are taken for slightly noisy."""
        library = self.library(counts)
        denoise = self.ema_denoiser.bind(conditions)(library)
        return self._shares(denoise(self.to_vector(counts), torch.tensor(TIME_MIN, device=library.device)))

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Given) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` of cells at the lowest level of noise."""
        library = self.library(counts)
        level = self.process.level(torch.tensor(TIME_MIN, device=library.device)).log_snr / 2
        embedded = self.ema_denoiser.embed_conditions(conditions, len(library))
        return self.ema_denoiser.network.tokens(self.to_vector(counts), level.expand_as(library), library, *embedded)

    def gene_weights(self) -> Tensor | None:
        """Weights of the genes on :meth:`hidden`, in logs of counts per 10,000; negative for noise and velocity."""
        loadings = super().gene_weights()
        sign = 1 if self.process_options.prediction == "x0" else -1
        return None if loadings is None else sign * self.scale * loadings

    def _log_normalised(self, counts: Tensor) -> Tensor:
        return torch.log1p(counts.to_dense() * (TARGET_SUM / self.library(counts))[:, None])

    def _shares(self, vector: Tensor) -> Tensor:
        logs = (vector * self.scale + self.mean).clamp(0, math.log1p(TARGET_SUM))
        rates = torch.expm1(logs)
        return rates / rates.sum(1, keepdim=True).clamp(min=1e-8)
