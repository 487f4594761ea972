"""Gaussian diffusion of a vector for each cell: what processes share that differ in the vector alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.diffusion import (
    SCHEDULES,
    SOLVERS,
    TIME_MAX,
    TIME_MIN,
    Denoise,
    Sampler,
    Schedule,
    add_noise,
    carry_over,
    ddim,
    error_weight,
    gaussian_loss,
    guide_denoisers,
    noise_times,
    sampler,
    time_grid,
    time_of_signal,
    to_clean,
)

from ._denoiser import ConditionedDenoiser
from ._gaussian_options import GaussianOptions
from ._process import DiffusionModule

VectorPredictor = Callable[[Tensor], Denoise]
"""Library sizes ``(cells,)`` to a denoiser of their vectors; conditions are bound."""


class VectorDenoiser(ConditionedDenoiser):
    """A network that reads noisy vectors, and what interventions add to its prediction."""

    reads = "values"

    @abstractmethod
    def base(self, noisy: Tensor, level: Tensor, library: Tensor, condition: Tensor) -> Tensor:
        """What the network predicts without interventions ``(cells, length)``."""

    def predict(
        self,
        noisy: Tensor,
        level: Tensor,
        library: Tensor,
        condition: Tensor,
        conditions: Conditions[Tensor],
        effect_scale: float = 1.0,
        teaching: Tensor | None = None,
    ) -> Tensor:
        """Prediction ``(cells, length)``.

        Parameters
        ----------
        noisy
            Vectors with noise ``(cells, length)``.
        level
            Half the log of their signal-to-noise ratio ``(cells,)``.
        library
            Molecules in the finished cell ``(cells,)``.
        condition
            :meth:`embed_conditions` of the cells.
        conditions
            The same conditions, of which the effects read the interventions.
        effect_scale
            Factor of what interventions add.
        teaching
            Cells that effects learn from ``(cells,)``; by default all.
        """
        predicted = self.base(noisy, level, library, condition)
        for added in self.added_scores(noisy, level, library, conditions, teaching).values():
            predicted = predicted + effect_scale * added
        return predicted


class VectorDiffusion(DiffusionModule):
    """Gaussian diffusion of vectors; a subclass says what the vector of a cell is, and what cell a vector is."""

    process_options: GaussianOptions
    denoiser: VectorDenoiser
    ema_denoiser: VectorDenoiser

    @abstractmethod
    def length(self) -> int:
        """Length of a vector."""

    @abstractmethod
    def to_vector(self, counts: Tensor) -> Tensor:
        """Vectors ``(cells, length)`` of order one, of CSR counts."""

    @abstractmethod
    def to_counts(self, vector: Tensor, library: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Whole counts ``(cells, genes)`` of vectors, with about ``library`` ``(cells,)`` molecules."""

    @property
    def schedule(self) -> Schedule:
        """How the noise grows."""
        return SCHEDULES[self.process_options.schedule]

    def denoising_loss(
        self,
        denoiser: VectorDenoiser,
        vector: Tensor,
        library: Tensor,
        conditions: Conditions[Tensor],
        generator: torch.Generator | None = None,
        teaching: Tensor | None = None,
    ) -> Tensor:
        """Weighted squared error ``(cells,)`` at random levels; effects learn from the ``teaching`` cells, or all."""
        options = self.process_options
        level = self.schedule(noise_times(len(vector), generator, vector.device))
        noise = torch.randn(vector.shape, generator=generator, device=vector.device)
        noisy = add_noise(vector, noise, level)
        condition = denoiser.embed_conditions(conditions, len(vector))
        predicted = denoiser.predict(noisy, level.log_snr / 2, library, condition, conditions, teaching=teaching)
        clean = to_clean(predicted, options.prediction, noisy, level)
        return gaussian_loss(clean, vector, error_weight(options.loss_space, options.weighting, level))

    def bind(self, conditions: Conditions[Tensor], n_cells: int, effect_scale: float) -> VectorPredictor:
        """The averaged network under given conditions, effects of interventions multiplied."""
        denoiser, kind = self.ema_denoiser, self.process_options.prediction
        condition = denoiser.embed_conditions(conditions, n_cells)

        def predictor(library: Tensor) -> Denoise:
            def denoise(noisy: Tensor, time: Tensor) -> Tensor:
                level = self.schedule(time)
                log_level = (level.log_snr / 2).flatten().expand(n_cells)  # of one time, or one a cell
                predicted = denoiser.predict(noisy, log_level, library, condition, conditions, effect_scale)
                return to_clean(predicted, kind, noisy, level)

            return denoise

        return predictor

    def guide(
        self, unconditional: VectorPredictor, conditional: Sequence[VectorPredictor], scales: Sequence[float]
    ) -> VectorPredictor:
        """Guide the expected vector, along the line between two of them."""
        return lambda library: guide_denoisers(unconditional(library), [told(library) for told in conditional], scales)

    @torch.no_grad()
    def draw(
        self, predictor: VectorPredictor, library: Tensor, *, n_steps: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw cells of about ``library`` ``(cells,)`` molecules from noise: dense ``(cells, genes)``."""
        noise = torch.randn(len(library), self.length(), generator=generator, device=library.device)
        run = sampler(self.process_options.sampler, generator)
        vector = self._to_data(run, predictor(library), noise, TIME_MAX, n_steps)
        return self.to_counts(vector, library, generator)

    @torch.no_grad()
    def counterfactual(
        self,
        counts: Tensor,
        own: Conditions[Tensor],
        asked: Conditions[Tensor],
        *,
        keep: float | None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw cells under other conditions, starting where a share ``keep`` (none) of their variance is left.

        The cell is led there by random noise; or, with ``counterfactual="inversion"``, by its own, found by following
        the probability flow under its own conditions for ``n_steps``. What the network leaves out of it then stays.
        """
        library, vector = self.library(counts), self.to_vector(counts)
        start = time_of_signal(vector.new_tensor(keep or 0.0), self.schedule)
        denoise = self.predictor(asked, len(library), guidance_scale)(library)
        if self.process_options.counterfactual == "noise":
            noise = torch.randn(vector.shape, generator=generator, device=vector.device)
            noisy = add_noise(vector, noise, self.schedule(start))
            run = sampler(self.process_options.sampler, generator)
            moved = self._to_data(run, denoise, noisy, float(start), n_steps)
        else:
            run = SOLVERS.get(self.process_options.sampler, ddim)
            own_denoise = self.predictor(own, len(library))(library)
            moved = carry_over(run, own_denoise, denoise, vector, start=start, n_steps=n_steps, schedule=self.schedule)
        return self.to_counts(moved, library, generator)

    def _to_data(self, run: Sampler, denoise: Denoise, noisy: Tensor, start: float, n_steps: int) -> Tensor:
        """Free states of their noise, in ``n_steps`` of which the last takes away what is left."""
        times = time_grid(n_steps, start, TIME_MIN, noisy.device)
        return denoise(run(denoise, noisy, times, self.schedule), times[-1])
