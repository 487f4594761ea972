"""Noise schedules against DDPM's products, derivatives by autograd, and their inverse."""

import numpy as np
import pytest
import torch
from torch import Tensor

from scdiffgen.diffusion._gaussian import SCHEDULES, TIME_MAX, TIME_MIN, linear_schedule, noise_times

TIMES = torch.linspace(TIME_MIN, TIME_MAX, 41, dtype=torch.float64)
EVERY_SCHEDULE = pytest.mark.parametrize("name", list(SCHEDULES))


def test_the_linear_schedule_has_the_levels_of_ddpm() -> None:
    level = linear_schedule(torch.arange(1, 1000, dtype=torch.float64) / 1000)
    kept = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))[:-1]
    np.testing.assert_allclose(level.alpha**2, kept, rtol=1e-10)
    np.testing.assert_allclose(level.sigma**2, 1 - kept, rtol=1e-10)


@EVERY_SCHEDULE
def test_rates_are_derivatives_along_the_path_at_its_unit_of_speed(name: str) -> None:
    def by_time(index: int) -> Tensor:
        times = TIMES[1:-1].clone().requires_grad_()
        return torch.autograd.grad(SCHEDULES[name](times)[index].sum(), times)[0]

    level = SCHEDULES[name](TIMES[1:-1])
    torch.testing.assert_close(by_time(0) * level.sigma_rate, by_time(1) * level.alpha_rate)
    unit = level.alpha * level.sigma_rate - level.sigma * level.alpha_rate
    torch.testing.assert_close(unit, torch.ones_like(unit))


@EVERY_SCHEDULE
def test_noise_grows_from_almost_none_to_almost_all(name: str) -> None:
    level = SCHEDULES[name](TIMES)
    assert (level.log_snr.diff() < 0).all()
    assert (level.sigma[0] < 0.011) and (level.alpha[-1] < 0.011)


@EVERY_SCHEDULE
def test_the_time_of_a_share_of_signal_has_it(name: str) -> None:
    for share in (0.01, 0.3, 0.99):
        level = SCHEDULES[name](SCHEDULES[name].time_of_signal(torch.tensor(share, dtype=torch.float64)))
        assert float(level.log_snr) == pytest.approx(np.log(share / (1 - share)), abs=1e-6)


def test_training_times_are_spread_over_the_range() -> None:
    times = noise_times(500, torch.Generator().manual_seed(0)).sort().values
    assert TIME_MIN <= times[0] and times[-1] <= TIME_MAX
    assert (times - torch.linspace(TIME_MIN, TIME_MAX, 500)).abs().max() < 2 / 500
