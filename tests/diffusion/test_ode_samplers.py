"""Samplers against the exact denoiser of Gaussian data and the exact solution of its probability-flow equation."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scdiffgen.diffusion import gaussian
from scdiffgen.diffusion._gaussian import Denoise, GaussianPrediction, ancestral, ddim, dpm_solver
from scdiffgen.module import guide

SOLVERS = {"ddim": ddim, "dpm_solver": dpm_solver}  # of the probability-flow equation, in both directions
MEAN = torch.tensor([2.0, -1.0, 0.3], dtype=torch.float64)
SPREAD = torch.tensor([0.5, 1.3, 0.1], dtype=torch.float64)
ONE = torch.tensor(1.0)
START = torch.tensor([[0.3, -1.2, 0.8], [-2.0, 0.1, 1.0]], dtype=torch.float64)


def exact_denoiser(name: str, mean: Tensor = MEAN) -> Denoise:
    """The posterior mean of independent Gaussian data: linear regression of data on data plus noise."""

    def denoise(noisy: Tensor, time: Tensor) -> GaussianPrediction:
        level = gaussian.SCHEDULES[name](time)
        slope = level.alpha * SPREAD**2 / (level.alpha**2 * SPREAD**2 + level.sigma**2)
        return GaussianPrediction(mean + slope * (noisy - level.alpha * mean), ONE)

    return denoise


def flow(name: str, noisy: Tensor, start: float, end: float) -> Tensor:
    """Exact solution: the standardised state never changes."""
    there, here = (gaussian.SCHEDULES[name](torch.tensor(t, dtype=torch.float64)) for t in (end, start))
    scale = [(level.alpha**2 * SPREAD**2 + level.sigma**2).sqrt() for level in (there, here)]
    return there.alpha * MEAN + scale[0] / scale[1] * (noisy - here.alpha * MEAN)


def grid(n_steps: int, start: float, end: float) -> Tensor:
    return torch.linspace(start, end, n_steps + 1, dtype=torch.float64)


@pytest.mark.parametrize(("name", "kind"), list(itertools.product(gaussian.SCHEDULES, SOLVERS)))
@pytest.mark.parametrize("ends", [(0.9, 0.1), (0.1, 0.9)], ids=["to the data", "to the noise"])
def test_errors_fall_with_the_order_of_the_solver(name: str, kind: str, ends: tuple[float, float]) -> None:
    steps = np.array([32, 64, 128])
    exact = flow(name, START, *grid(1, *ends).tolist())
    errors = [
        float(
            (SOLVERS[kind](exact_denoiser(name), START, grid(n, *ends), gaussian.SCHEDULES[name]) - exact).abs().max()
        )
        for n in steps
    ]
    slope = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    order = {"ddim": 1, "dpm_solver": 2}[kind]
    assert slope == pytest.approx(-order, abs=0.2)


@pytest.mark.parametrize("solver", [ddim, dpm_solver])
def test_schedules_with_equal_signal_to_noise_end_at_the_same_data(solver: object) -> None:
    shares = torch.linspace(0.05, 0.95, 8, dtype=torch.float64)
    ends = {}
    for name, schedule in gaussian.SCHEDULES.items():
        times = schedule.time_of_signal(shares)
        first, last = schedule(times[0]), schedule(times[-1])
        start = START * first.alpha  # the same state in units of the data
        ends[name] = solver(exact_denoiser(name), start, times, schedule) / last.alpha
    for name in ("linear", "rectified"):
        torch.testing.assert_close(ends[name], ends["cosine"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", list(gaussian.SCHEDULES))
def test_an_ancestral_step_draws_from_the_posterior_of_the_next_state(name: str) -> None:
    """Bayes' rule: the next state given the data, updated by the present state given the next."""
    n, clean, present = 40_000, 1.5, -0.4
    now, after = (gaussian.SCHEDULES[name](torch.tensor(t, dtype=torch.float64)) for t in (0.7, 0.5))
    passed = now.alpha / after.alpha
    added = now.sigma**2 - passed**2 * after.sigma**2
    precision = 1 / after.sigma**2 + passed**2 / added
    mean = (after.alpha * clean / after.sigma**2 + passed * present / added) / precision
    drawn = ancestral(
        lambda noisy, time: GaussianPrediction(torch.full_like(noisy, clean), ONE),
        torch.full((n,), present, dtype=torch.float64),
        grid(1, 0.7, 0.5),
        gaussian.SCHEDULES[name],
        torch.Generator().manual_seed(0),
    )
    spread = float(precision**-0.5)
    assert float(drawn.mean()) == pytest.approx(float(mean), abs=4 * spread / n**0.5)
    assert float(drawn.std()) == pytest.approx(spread, rel=4 / (2 * n) ** 0.5)


def test_ancestral_sampling_draws_the_data() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    grid_of_all = grid(998, gaussian.TIME_MAX, gaussian.TIME_MIN)
    drawn = ancestral(exact_denoiser("linear"), noise, grid_of_all, gaussian.SCHEDULES["linear"], generator)
    np.testing.assert_allclose(drawn.mean(0), MEAN, atol=4 * float(SPREAD.max()) / 4000**0.5)
    np.testing.assert_allclose(drawn.std(0), SPREAD, rtol=0.05)


@pytest.mark.parametrize(("name", "kind"), list(itertools.product(gaussian.SCHEDULES, gaussian.SAMPLERS)))
def test_the_whole_range_is_finite_in_single_precision(name: str, kind: str) -> None:
    noise = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    times, generator = torch.linspace(gaussian.TIME_MAX, gaussian.TIME_MIN, 9), torch.Generator().manual_seed(1)
    ended = gaussian.SAMPLERS[kind](
        lambda noisy, time: GaussianPrediction(noisy.tanh(), ONE), noise, times, gaussian.SCHEDULES[name], generator
    )
    assert ended.dtype == torch.float32 and torch.isfinite(ended).all()


@pytest.mark.parametrize(("scale", "mean"), [(0.0, MEAN), (1.0, -MEAN), (2.5, -4 * MEAN)])
def test_guidance_moves_along_the_line_between_two_denoisers(scale: float, mean: Tensor) -> None:
    """Denoisers of equal spread differ by a multiple of their means, so the guided one is that of another mean."""
    guided = guide(exact_denoiser("cosine"), [exact_denoiser("cosine", -MEAN)], [scale])
    time = torch.tensor(0.4, dtype=torch.float64)
    torch.testing.assert_close(guided(START, time).mean, exact_denoiser("cosine", mean)(START, time).mean)


def test_steps_even_in_log_snr_are_as_good_for_data_of_any_variance() -> None:
    """The exact denoiser of normal data is linear, so what a solver makes of their variance is one number."""
    schedule = gaussian.SCHEDULES["cosine"]

    def share_of_variance(grid: Callable[..., Tensor], variance: float, solver: Any = dpm_solver) -> float:
        def denoise(noisy: Tensor, time: Tensor) -> GaussianPrediction:
            level = schedule(time)
            return GaussianPrediction(
                level.alpha * variance / (level.alpha**2 * variance + level.sigma**2) * noisy, ONE
            )

        times = grid(gaussian.TIME_MAX, 32, schedule).double()
        drawn = denoise(solver(denoise, torch.ones(1, dtype=torch.float64), times, schedule), times[-1]).mean
        return float(drawn**2 / variance)

    variances = (0.05, 0.3, 1.0, 10.0, 30.0)
    in_log_snr, in_time = (
        [share_of_variance(grid, v) for v in variances] for grid in (gaussian.even_log_snr, gaussian.even_times)
    )
    np.testing.assert_allclose(in_log_snr, 1.02, atol=0.005)
    assert in_time[0] > 1.4 and in_time[-1] < 0.9
    np.testing.assert_allclose([share_of_variance(gaussian.even_log_snr, v, ddim) for v in variances], 0.81, atol=0.005)
    assert float(gaussian.even_log_snr(0.7, 8, schedule)[0]) == pytest.approx(0.7)
