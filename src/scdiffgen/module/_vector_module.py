"""Gaussian diffusion of a vector for each cell: what processes share that differ in the vector alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import torch
from scvi.module.base import LossOutput
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import TIME_MAX, Denoise
from scdiffgen.nn import NetworkSize, ScoreNetwork

from ._denoiser import ConditionedDenoiser
from ._diffusion_module import DiffusionModule, loss_output
from ._process_options import GaussianOptions
from ._processes import GaussianDiffusion, GuidanceScale, Rng, VectorPredictor


class Encoded(NamedTuple):
    """Cells of which the vectors are known."""

    vector: Tensor  # (cells, length)
    library: Tensor  # (cells,)


Cells: TypeAlias = Tensor | Encoded
"""CSR counts ``(cells, genes)``, or what is known of them."""


class VectorDenoiser(ConditionedDenoiser):
    """Predict vectors without noise from noisy ones."""

    input_type = "values"
    network: ScoreNetwork

    def __init__(
        self,
        length: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
        process: GaussianDiffusion,
    ) -> None:
        super().__init__(length, specs, size, features)
        self.process = process

    def make_network(self, n_vars: int, size: NetworkSize) -> ScoreNetwork:
        """The base of the prediction."""
        return ScoreNetwork(n_vars, size, self.input_type)

    def bind(
        self, conditions: Conditions[Tensor], effect_scale: float = 1.0, trains_effects: Tensor | None = None
    ) -> VectorPredictor:
        """Fix the conditions: the predictor takes library sizes, and gives a function of noisy vectors and times."""
        embedded = self.embed_conditions(conditions, conditions.n_cells)

        def predictor(library: Tensor) -> Denoise:
            def denoise(noisy: Tensor, time: Tensor) -> Tensor:
                level = self.process.level(time)
                log_level = (level.log_snr / 2).flatten().expand(conditions.n_cells)  # of one time, or one a cell
                predicted = self.network.read(noisy, log_level, library, embedded).scores
                added = self.effect_scores(noisy, log_level, library, conditions, trains_effects)
                for score in added.values():
                    predicted = predicted + effect_scale * score
                return self.process.clean(predicted, noisy, level)

            return denoise

        return predictor


class VectorModule(DiffusionModule):
    """Gaussian diffusion of vectors; a subclass turns cells into vectors, and vectors into cells."""

    options_cls = GaussianOptions
    process_options: GaussianOptions
    process: GaussianDiffusion
    denoiser: VectorDenoiser
    ema_denoiser: VectorDenoiser
    mean: Tensor
    scale: Tensor

    def make_process(self) -> GaussianDiffusion:
        """Noise on vectors."""
        return GaussianDiffusion(self.process_options)

    @abstractmethod
    def to_vector(self, counts: Tensor) -> Tensor:
        """Vectors ``(cells, length)`` of order one, of CSR counts."""

    @abstractmethod
    def to_counts(self, vector: Tensor, library: Tensor, generator: Rng = None) -> Tensor:
        """Whole counts ``(cells, genes)`` of vectors, with about ``library`` ``(cells,)`` molecules."""

    def loss(self, cells: Cells, conditions: Conditions[Tensor]) -> LossOutput:
        """Weighted squared error of the vectors that are predicted; penalties on the read-out are added."""
        conditions, trains_effects = self.drop_conditions(conditions)
        errors = self._errors(self.denoiser, cells, conditions, trains_effects=trains_effects)
        return loss_output(errors, self.denoiser.network.readout.penalty())

    @torch.no_grad()
    def validation_loss(self, cells: Cells, conditions: Conditions[Tensor], generator: torch.Generator) -> LossOutput:
        """The same of the averaged network, no condition dropped, at the given randomness."""
        return loss_output(self._errors(self.ema_denoiser, cells, conditions, generator))

    def _errors(
        self,
        denoiser: VectorDenoiser,
        cells: Cells,
        conditions: Conditions[Tensor],
        generator: Rng = None,
        trains_effects: Tensor | None = None,
    ) -> Tensor:
        """Corrupt vectors, predict them without noise, and score the prediction ``(cells,)``."""
        vector, library = (self.to_vector(cells), self.library(cells)) if isinstance(cells, Tensor) else cells
        noisy = self.process.corrupt(vector, generator)
        denoise = denoiser.bind(conditions, trains_effects=trains_effects)(library)
        return self.process.score(denoise(noisy.state, noisy.time), noisy)

    @torch.no_grad()
    def draw(self, predictor: VectorPredictor, library: Tensor, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Draw cells of about ``library`` ``(cells,)`` molecules from noise: dense ``(cells, genes)``."""
        noise = torch.randn(len(library), len(self.mean), generator=generator, device=library.device)
        vector = self.process.draw(predictor(library), noise, TIME_MAX, n_steps=n_steps, generator=generator)
        return self.to_counts(vector, library, generator)

    @torch.no_grad()
    def counterfactual(
        self,
        counts: Tensor,
        source: Conditions[Tensor],
        target: Conditions[Tensor],
        *,
        keep: float | None,
        guidance_scale: GuidanceScale = 1.0,
        n_steps: int,
        generator: Rng = None,
    ) -> Tensor:
        """Draw cells under other conditions, starting where a share ``keep`` (none) of their variance is left.

        The cell is led there by random noise; or, with ``counterfactual="inversion"``, by its own, found by following
        the probability flow under its own conditions for ``n_steps``. What the network leaves out of it then stays.
        """
        library, vector, share = self.library(counts), self.to_vector(counts), keep or 0.0
        denoise = self.predictor(target, len(library), guidance_scale)(library)
        if self.process_options.counterfactual == "noise":
            moved = self.process.redraw(vector, share, denoise, n_steps=n_steps, generator=generator)
        else:
            before = self.predictor(source, len(library))(library)
            moved = self.process.invert(vector, share, before, denoise, n_steps=n_steps)
        return self.to_counts(moved, library, generator)
