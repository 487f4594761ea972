r"""Data followed to their own noise under one denoiser, and back under another.

The probability flow leads every state to noise and back without loss. But its velocity divides by :math:`\sigma`: where
a denoiser leaves something out of the data (few tokens cannot hold a whole cell), no path ends at these data, and
following it from :math:`\sigma \approx 0` multiplies what is left out. To the denoiser it is noise. So the data
:math:`x` are taken for a state that is noisy already,

.. math:: x_t = \alpha_t x = \alpha_t \hat x + \sigma_t \epsilon, \qquad
    \frac{\sigma_t}{\alpha_t} = \text{root mean square of } x - \hat x,

the flow is entered there, and left there on the way back. A denoiser that holds the data leaves out nothing, and the
flow is entered at its end.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._ode_samplers import Denoise, Sampler
from ._schedules import TIME_MIN, Schedule, time_of_signal

LAST_ENTRY = 0.999
"""Latest entry, as a share of the time that is led to; a solver divides by the length of its steps."""


def entry_times(denoise: Denoise, data: Tensor, schedule: Schedule) -> Tensor:
    """Time ``(cells, 1)`` at which noise is as large as what the denoiser leaves out of each of ``data``.

    One evaluation, at the lowest level of noise.
    """
    time = torch.tensor(TIME_MIN, dtype=data.dtype, device=data.device)
    left_out = data - denoise(schedule(time).alpha * data, time)
    return time_of_signal(1 / (1 + left_out.square().mean(1, keepdim=True)), schedule)


def carry_over(
    solver: Sampler, source: Denoise, target: Denoise, data: Tensor, *, start: Tensor, n_steps: int, schedule: Schedule
) -> Tensor:
    """Follow ``data`` ``(cells, length)`` to the time ``start`` ``()`` under one denoiser, and back under another.

    ``n_steps`` steps of the solver each way. With the same denoiser the data come back, but for the errors of the
    steps; what the denoisers leave out of the data stays with them. Data of which more is left out than there is noise
    at ``start`` hardly move.
    """
    entry = entry_times(source, data, schedule).minimum(LAST_ENTRY * start)
    fractions = torch.linspace(0, 1, n_steps + 1, dtype=data.dtype, device=data.device)[:, None, None]
    times, level = torch.lerp(entry, start.expand_as(entry), fractions), schedule(entry)
    noisy = solver(source, level.alpha * data, times, schedule)
    return solver(target, noisy, times.flip(0), schedule) / level.alpha
