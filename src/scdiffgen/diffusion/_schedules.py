r"""Noise schedules: levels of signal and noise at times between 0 (data) and 1 (noise), both excluded.

In :math:`x_t = \alpha_t x_0 + \sigma_t \epsilon`, :math:`\epsilon \sim \mathcal N(0, 1)`, the pair
:math:`(\alpha_t, \sigma_t)` follows a circle :math:`(\cos s, \sin s)` or a line :math:`(1 - s, s)`. The velocity is the
derivative of :math:`x_t` along this path, and :math:`\alpha \sigma' - \sigma \alpha' = 1` on both paths.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
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
