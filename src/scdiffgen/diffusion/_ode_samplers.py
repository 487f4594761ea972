"""Samplers of Gaussian diffusion: functions of a denoiser with bound conditions, along given times.

All samplers but the stochastic :func:`ancestral` solve the probability-flow ODE, in either direction. They return the
noisy state at the last time; the denoiser takes the final step.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from ._draws import Rng
from ._gaussian import to_noise
from ._schedules import Schedule

Denoise = Callable[[Tensor, Tensor], Tensor]
"""``denoise(noisy, time)``: expected data given a noisy state ``(cells, ...)`` at one time ``()``."""

NoiseSampler = Callable[[Denoise, Tensor, Tensor, Schedule, Rng], Tensor]
"""``sampler(denoise, noisy, times, schedule, generator)``: state at the last time, given the state at the first."""

SamplerKind = Literal["ddim", "dpm_solver", "ancestral"]


def ddim(denoise: Denoise, noisy: Tensor, times: Tensor, schedule: Schedule, generator: Rng = None) -> Tensor:
    r"""Sample by DDIM, :math:`x_{t'} = \alpha_{t'} \hat x_0 + \sigma_{t'} \hat\epsilon` :cite:p:`song2021denoising`."""
    for time, next_time in pairwise(times):
        now, after = schedule(time), schedule(next_time)
        clean = denoise(noisy, time)
        noisy = after.alpha * clean + after.sigma * to_noise(clean, noisy, now)
    return noisy


def ancestral(denoise: Denoise, noisy: Tensor, times: Tensor, schedule: Schedule, generator: Rng = None) -> Tensor:
    """Sample by DDPM's ancestral sampling :cite:p:`ho2020denoising`, from noise to data only."""
    # Fresh noise has the posterior variance of the next state, sigma_t'^2 (1 - SNR_t / SNR_t').
    for time, next_time in pairwise(times):
        now, after = schedule(time), schedule(next_time)
        clean = denoise(noisy, time)
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
        clean = denoise(noisy, time)
        step = (after.log_snr - now.log_snr) / 2
        ahead = clean if previous is None else clean + step / last_step / 2 * (clean - previous)
        noisy = after.sigma / now.sigma * noisy - after.alpha * torch.expm1(-step) * ahead
        previous, last_step = clean, step
    return noisy


SAMPLERS: dict[SamplerKind, NoiseSampler] = {"ddim": ddim, "dpm_solver": dpm_solver, "ancestral": ancestral}
