r"""Noise schedules: levels of data and noise at each time from 0 (data) to 1 (noise), both ends excluded.

With :math:`\epsilon \sim \mathcal N(0, 1)`, :math:`x_t = \alpha_t x_0 + \sigma_t \epsilon` takes a circle
:math:`(\cos s, \sin s)` or a line :math:`(1 - s, s)`; the velocity is its derivative along this path, and
:math:`\alpha \sigma' - \sigma \alpha' = 1` on both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ._draws import Rng

TIME_MIN, TIME_MAX = 1e-3, 1 - 1e-3

ScheduleKind = Literal["linear", "cosine", "rectified"]


class Level(NamedTuple):
    """Levels of data and noise on the path of a schedule, of one shape."""

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


Schedule = Callable[[Tensor], Level]
"""``schedule(time)``: times of any shape, in [``TIME_MIN``, ``TIME_MAX``], to levels."""


def linear_schedule(time: Tensor) -> Level:
    """DDPM's :cite:p:`ho2020denoising` 1,000 levels, with variances from 1e-4 to 0.02; log alpha is interpolated."""
    n_levels = 1000
    beta = torch.linspace(1e-4, 0.02, n_levels, dtype=torch.float64, device=time.device)
    log_alpha = torch.cat([beta.new_zeros(1), 0.5 * torch.log1p(-beta).cumsum(0)])
    place = time.double() * n_levels
    below = place.floor().long().clamp(max=n_levels - 1)
    log_alpha = torch.lerp(log_alpha[below], log_alpha[below + 1], place - below)
    sigma = torch.expm1(2 * log_alpha).neg().sqrt()
    return _on_circle(torch.atan2(sigma, log_alpha.exp()).to(time.dtype))


def cosine_schedule(time: Tensor) -> Level:
    r"""A quarter of the circle at constant speed, :math:`\alpha_t = \cos(\pi t / 2)` :cite:p:`nichol2021improved`."""
    return _on_circle(time * (math.pi / 2))


def rectified_schedule(time: Tensor) -> Level:
    """The straight line from data to noise, as in flow matching :cite:p:`liu2023flow`."""
    one = torch.ones_like(time)
    return Level(1 - time, time, -one, one)


def _on_circle(angle: Tensor) -> Level:
    cosine, sine = angle.cos(), angle.sin()
    return Level(cosine, sine, -sine, cosine)


SCHEDULES: dict[str, Schedule] = {"linear": linear_schedule, "cosine": cosine_schedule, "rectified": rectified_schedule}


def noise_times(n_cells: int, generator: Rng = None, device: torch.device | None = None) -> Tensor:
    """Draw a time ``(cells,)`` for each training cell, uniform, stratified over the batch."""
    order = torch.randperm(n_cells, generator=generator, device=device)
    jitter = torch.rand(n_cells, generator=generator, device=device)
    return TIME_MIN + (TIME_MAX - TIME_MIN) * (order + jitter) / n_cells


def even_times(start: float, n_steps: int, schedule: Schedule) -> Tensor:
    """Evenly spaced times ``(n_steps,)`` down to ``TIME_MIN``, as those of DDPM."""
    return torch.linspace(start, TIME_MIN, n_steps)


def even_log_snr(start: float, n_steps: int, schedule: Schedule) -> Tensor:
    """Times ``(n_steps,)`` at which the log of the signal-to-noise ratio is evenly spaced :cite:p:`lu2025dpm`.

    So the error of a solver is the same for data of any variance.
    """
    first, last = schedule(torch.tensor([start, TIME_MIN], dtype=torch.float64)).log_snr.tolist()
    return time_of_signal(torch.linspace(first, last, n_steps, dtype=torch.float64).sigmoid(), schedule)


def time_of_signal(share: Tensor, schedule: Schedule) -> Tensor:
    r"""Times at which the data are a share :math:`\alpha^2 / (\alpha^2 + \sigma^2)` of the variance, by bisection."""
    target = share.double()
    low, high = torch.full_like(target, TIME_MIN), torch.full_like(target, TIME_MAX)
    for _ in range(50):
        middle = (low + high) / 2
        level = schedule(middle)
        noisier = level.alpha**2 / (level.alpha**2 + level.sigma**2) < target
        low, high = torch.where(noisier, low, middle), torch.where(noisier, middle, high)
    return ((low + high) / 2).to(share.dtype)
