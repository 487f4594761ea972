r"""Gaussian diffusion: noise, the predicted distribution of the data, conversions between predictions, and samplers.

A network predicts the data :math:`x_0`, the noise :math:`\epsilon` or the velocity
:math:`v = \alpha' x_0 + \sigma' \epsilon`, each of which determines the others given :math:`x_t`:
:math:`x_0 = (x_t - \sigma \epsilon) / \alpha = \sigma' x_t - \sigma v` and
:math:`\epsilon = (x_t - \alpha x_0) / \sigma = \alpha v - \alpha' x_t`.
Their squared errors are 1, :math:`\alpha^2 / \sigma^2` and :math:`1 / \sigma^2` times that of :math:`x_0`.

All samplers but the stochastic :func:`ancestral` solve the probability-flow ODE, in either direction. They return the
noisy state at the last time; the denoiser takes the final step.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ._draws import Rng
from ._schedules import Level, Schedule

PredictionKind = Literal["x0", "eps", "v"]


class Noisy(NamedTuple):
    """Noisy data, the state of the process."""

    values: Tensor  # (cells, ...)
    time: Tensor | float  # (cells,), or one for all cells


class Noised(NamedTuple):
    """Data before and after noise is added."""

    clean: Tensor  # (cells, ...)
    state: Noisy


class GaussianPrediction(NamedTuple):
    """Gaussian distribution of the data, given a noisy state."""

    mean: Tensor  # (cells, ...)
    precision: Tensor  # (cells,), or () if equal in all cells

    def loss(self, noised: Noised) -> Tensor:
        """Compute the squared error ``(cells,)``, -2 times the mean log-density of a dimension up to a constant."""
        return self.precision * (self.mean - noised.clean).square().flatten(1).mean(1)

    def guided(self, conditional: Sequence["GaussianPrediction"], scales: Sequence[float]) -> "GaussianPrediction":
        """Extrapolate the unconditional mean linearly towards conditional means."""
        moves = [scale * (part.mean - self.mean) for part, scale in zip(conditional, scales, strict=True)]
        return self._replace(mean=self.mean + torch.stack(moves).sum(0))


def add_noise(clean: Tensor, noise: Tensor, level: Level) -> Tensor:
    """Add noise to data ``(cells, ...)`` at levels ``(cells,)``."""
    level = level.expand_as(clean)
    return level.alpha * clean + level.sigma * noise


def to_clean(predicted: Tensor, kind: PredictionKind, noisy: Tensor, level: Level) -> Tensor:
    """Convert a prediction of data, noise or velocity to the data ``(cells, ...)``."""
    level = level.expand_as(noisy)
    if kind == "x0":
        return predicted
    if kind == "eps":
        return (noisy - level.sigma * predicted) / level.alpha
    return level.sigma_rate * noisy - level.sigma * predicted


def to_noise(clean: Tensor, noisy: Tensor, level: Level) -> Tensor:
    """Compute the noise ``(cells, ...)`` in ``noisy`` given the data ``clean``."""
    level = level.expand_as(noisy)
    return (noisy - level.alpha * clean) / level.sigma


def precision_of(kind: PredictionKind, level: Level) -> Tensor:
    """Compute the precision ``(cells,)`` for which the loss is the squared error of the predicted quantity."""
    snr = level.log_snr.exp()
    return {"x0": torch.ones_like(snr), "eps": snr, "v": level.sigma**-2}[kind]


Denoise = Callable[[Tensor, Tensor], GaussianPrediction]
"""``denoise(noisy, time)``: distribution of the data given a noisy state ``(cells, ...)`` at one time ``()``."""

NoiseSampler = Callable[[Denoise, Tensor, Tensor, Schedule, Rng], Tensor]
"""``sampler(denoise, noisy, times, schedule, generator)``: state at the last time, given the state at the first."""

SamplerKind = Literal["ddim", "dpm_solver", "ancestral"]


def ddim(denoise: Denoise, noisy: Tensor, times: Tensor, schedule: Schedule, generator: Rng = None) -> Tensor:
    r"""Sample by DDIM, :math:`x_{t'} = \alpha_{t'} \hat x_0 + \sigma_{t'} \hat\epsilon` :cite:p:`song2021denoising`."""
    for time, next_time in pairwise(times):
        now, after = schedule(time), schedule(next_time)
        clean = denoise(noisy, time).mean
        noisy = after.alpha * clean + after.sigma * to_noise(clean, noisy, now)
    return noisy


def ancestral(denoise: Denoise, noisy: Tensor, times: Tensor, schedule: Schedule, generator: Rng = None) -> Tensor:
    """Sample by DDPM's ancestral sampling :cite:p:`ho2020denoising`, from noise to data only."""
    # Fresh noise has the posterior variance of the next state, sigma_t'^2 (1 - SNR_t / SNR_t').
    for time, next_time in pairwise(times):
        now, after = schedule(time), schedule(next_time)
        clean = denoise(noisy, time).mean
        new = -torch.expm1(now.log_snr - after.log_snr)  # fraction of the noise variance that is drawn anew
        fresh = torch.randn(noisy.shape, generator=generator, dtype=noisy.dtype, device=noisy.device)
        noise = (1 - new).sqrt() * to_noise(clean, noisy, now) + new.sqrt() * fresh
        noisy = after.alpha * clean + after.sigma * noise
    return noisy


def dpm_solver(denoise: Denoise, noisy: Tensor, times: Tensor, schedule: Schedule, generator: Rng = None) -> Tensor:
    """Sample by DPM-Solver++(2M) :cite:p:`lu2025dpm`, a second-order multistep solver of one evaluation per step."""
    previous: Tensor | None = None
    last_step = torch.ones_like(times[0])
    for time, next_time in pairwise(times):
        now, after = schedule(time), schedule(next_time)
        clean = denoise(noisy, time).mean
        step = (after.log_snr - now.log_snr) / 2
        ahead = clean if previous is None else clean + step / last_step / 2 * (clean - previous)
        noisy = after.sigma / now.sigma * noisy - after.alpha * torch.expm1(-step) * ahead
        previous, last_step = clean, step
    return noisy


SAMPLERS: dict[SamplerKind, NoiseSampler] = {"ddim": ddim, "dpm_solver": dpm_solver, "ancestral": ancestral}
