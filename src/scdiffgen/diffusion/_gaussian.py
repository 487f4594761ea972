r"""Gaussian diffusion: noise schedules, predicted distributions of the data, conversions between predictions, samplers.

Times run from 0 (data) to 1 (noise), both excluded. In :math:`x_t = \alpha_t x_0 + \sigma_t \epsilon`, :math:`\epsilon
\sim \mathcal N(0, 1)`, the pair :math:`(\alpha_t, \sigma_t)` follows a circle :math:`(\cos s, \sin s)` or a line
:math:`(1 - s, s)`. The velocity is the derivative of :math:`x_t` along this path, and :math:`\alpha \sigma' - \sigma
\alpha' = 1` on both paths.

A network predicts the data :math:`x_0`, the noise :math:`\epsilon` or the velocity
:math:`v = \alpha' x_0 + \sigma' \epsilon`, each of which determines the others given :math:`x_t`:
:math:`x_0 = (x_t - \sigma \epsilon) / \alpha = \sigma' x_t - \sigma v` and
:math:`\epsilon = (x_t - \alpha x_0) / \sigma = \alpha v - \alpha' x_t`.
Their squared errors are 1, :math:`\alpha^2 / \sigma^2` and :math:`1 / \sigma^2` times that of :math:`x_0`.

All samplers but the stochastic :func:`ancestral` solve the probability-flow ODE, in either direction. They return the
noisy state at the last time; the denoiser takes the final step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ._draws import Rng

TIME_MIN, TIME_MAX = 1e-3, 1 - 1e-3

ScheduleKind = Literal["linear", "cosine", "rectified"]


class Level(NamedTuple):
    """Signal and noise levels of a schedule, and their derivatives along the path; all of one shape."""

    alpha: Tensor
    sigma: Tensor
    alpha_rate: Tensor  # derivative along the path
    sigma_rate: Tensor

    @property
    def log_snr(self) -> Tensor:
        r"""Log of the signal-to-noise ratio :math:`\alpha^2 / \sigma^2`."""
        return 2 * (self.alpha.log() - self.sigma.log())

    def expand_as(self, data: Tensor) -> Level:
        """Append axes of length 1 for multiplication with ``data`` ``(cells, ...)``."""
        return Level(*(part.reshape(part.shape + (1,) * (data.ndim - part.ndim)) for part in self))


@dataclass(frozen=True)
class Schedule:
    """Noise schedule and its inverse."""

    levels: Callable[[Tensor], Level]

    def __call__(self, time: Tensor) -> Level:
        """Return levels at times of any shape in [``TIME_MIN``, ``TIME_MAX``]."""
        return self.levels(time)

    def time_of_signal(self, share: Tensor) -> Tensor:
        r"""Find times with the signal fraction :math:`\alpha^2 / (\alpha^2 + \sigma^2)` by bisection."""
        target = share.double()
        low, high = torch.full_like(target, TIME_MIN), torch.full_like(target, TIME_MAX)
        for _ in range(50):
            middle = (low + high) / 2
            level = self(middle)
            noisier = level.alpha**2 / (level.alpha**2 + level.sigma**2) < target
            low, high = torch.where(noisier, low, middle), torch.where(noisier, middle, high)
        return ((low + high) / 2).to(share.dtype)


def linear_schedule(time: Tensor) -> Level:
    """Return levels of DDPM's linear schedule :cite:p:`ho2020denoising`: log alpha is interpolated between 1,000."""
    n_levels = 1000
    beta = torch.linspace(1e-4, 0.02, n_levels, dtype=torch.float64, device=time.device)
    log_alpha = torch.cat([beta.new_zeros(1), 0.5 * torch.log1p(-beta).cumsum(0)])
    place = time.double() * n_levels
    below = place.floor().long().clamp(max=n_levels - 1)
    log_alpha = torch.lerp(log_alpha[below], log_alpha[below + 1], place - below)
    sigma = torch.expm1(2 * log_alpha).neg().sqrt()
    return _on_circle(torch.atan2(sigma, log_alpha.exp()).to(time.dtype))


def cosine_schedule(time: Tensor) -> Level:
    r"""Return levels of the cosine schedule, :math:`\alpha_t = \cos(\pi t / 2)` :cite:p:`nichol2021improved`."""
    return _on_circle(time * (math.pi / 2))


def rectified_schedule(time: Tensor) -> Level:
    """Return levels of rectified flow, a straight line from data to noise :cite:p:`liu2023flow`."""
    one = torch.ones_like(time)
    return Level(1 - time, time, -one, one)


def _on_circle(angle: Tensor) -> Level:
    cosine, sine = angle.cos(), angle.sin()
    return Level(cosine, sine, -sine, cosine)


SCHEDULES: dict[ScheduleKind, Schedule] = {
    "linear": Schedule(linear_schedule),
    "cosine": Schedule(cosine_schedule),
    "rectified": Schedule(rectified_schedule),
}


def noise_times(n_cells: int, generator: Rng = None, device: torch.device | None = None) -> Tensor:
    """Draw a uniform time ``(cells,)`` for each training cell, stratified over the batch."""
    order = torch.randperm(n_cells, generator=generator, device=device)
    jitter = torch.rand(n_cells, generator=generator, device=device)
    return TIME_MIN + (TIME_MAX - TIME_MIN) * (order + jitter) / n_cells


def even_times(start: float, n_steps: int, schedule: Schedule) -> Tensor:
    """Return evenly spaced times ``(n_steps,)`` from ``start`` to ``TIME_MIN``, as in DDPM."""
    return torch.linspace(start, TIME_MIN, n_steps)


def even_log_snr(start: float, n_steps: int, schedule: Schedule) -> Tensor:
    """Return times ``(n_steps,)`` with evenly spaced log signal-to-noise ratios :cite:p:`lu2025dpm`.

    The error of a solver then does not depend on the variance of the data.
    """
    first, last = schedule(torch.tensor([start, TIME_MIN], dtype=torch.float64)).log_snr.tolist()
    return schedule.time_of_signal(torch.linspace(first, last, n_steps, dtype=torch.float64).sigmoid())


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

    def guided(self, conditional: Sequence[GaussianPrediction], scales: Sequence[float]) -> GaussianPrediction:
        """Extrapolate the unconditional mean linearly towards conditional means."""
        moves = [scale * (part.mean - self.mean) for part, scale in zip(conditional, scales, strict=True)]
        return self._replace(mean=self.mean + torch.stack(moves).sum(0))


def add_noise(clean: Tensor, noise: Tensor, level: Level) -> Tensor:
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
