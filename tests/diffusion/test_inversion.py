"""Inversion against the exact denoiser of data near a plane: two such distributions differ by a translation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from scdiffgen.diffusion import (
    SCHEDULES,
    SOLVERS,
    TIME_MAX,
    TIME_MIN,
    Denoise,
    carry_over,
    to_clean,
)
from scdiffgen.diffusion._gaussian import to_noise, to_velocity
from scdiffgen.diffusion._inversion import entry_times

PLANE = torch.linalg.qr(torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
SPREAD = torch.tensor([1.5, 0.6], dtype=torch.float64)
MEANS = [PLANE @ torch.tensor(place, dtype=torch.float64) for place in ([1.0, -0.5], [-0.4, 0.9])]
CELLS = torch.randn(5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def on_the_plane(mean: Tensor, schedule: str, kind: str = "x0") -> Denoise:
    """Posterior mean of Gaussian data on a plane, which holds nothing of a cell that lies beside the plane.

    By way of the prediction of noise or velocity, if it is one.
    """

    def denoise(noisy: Tensor, time: Tensor) -> Tensor:
        level = SCHEDULES[schedule](time)
        slope = level.alpha * SPREAD**2 / (level.alpha**2 * SPREAD**2 + level.sigma**2)
        clean = mean + (slope * ((noisy - level.alpha * mean) @ PLANE)) @ PLANE.T
        predicted = {"x0": clean, "eps": to_noise(clean, noisy, level), "v": to_velocity(clean, noisy, level)}[kind]
        return to_clean(predicted, kind, noisy, level)

    return denoise


def carried(solver: str, schedule: str, n_steps: int, means: list[Tensor], kind: str = "x0") -> Tensor:
    own, asked = (on_the_plane(mean, schedule, kind) for mean in means)
    return carry_over(
        SOLVERS[solver],
        own,
        asked,
        CELLS,
        start=torch.tensor(0.97, dtype=torch.float64),
        n_steps=n_steps,
        schedule=SCHEDULES[schedule],
    )


@pytest.mark.parametrize("kind", ["x0", "eps", "v"])
@pytest.mark.parametrize(("schedule", "solver"), list(itertools.product(SCHEDULES, SOLVERS)))
def test_a_cell_comes_back_whatever_the_network_predicts(schedule: str, solver: str, kind: str) -> None:
    errors = [
        float((carried(solver, schedule, n_steps, [MEANS[0]] * 2, kind) - CELLS).abs().max()) for n_steps in (20, 80)
    ]
    order = {"ddim": 1, "euler": 1, "heun": 2, "dpm_solver": 2}[solver]
    assert errors[1] < 1.5 * errors[0] / 4**order
    assert errors[1] < {1: 0.1, 2: 0.02}[order]


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_a_cell_is_moved_by_the_difference_of_the_means_and_keeps_what_lies_beside_the_plane(schedule: str) -> None:
    """The flow keeps standardised places on the plane; at its end, where little signal is left, so do both means."""
    moved = carried("heun", schedule, 300, MEANS)
    end = SCHEDULES[schedule](torch.tensor(0.97, dtype=torch.float64))
    shift = MEANS[1] - MEANS[0]
    # Standardised at the end, a cell lies by alpha * shift off where it must be in the other distribution.
    entry = SCHEDULES[schedule](entry_times(on_the_plane(MEANS[0], schedule), CELLS, SCHEDULES[schedule]))
    spread = [(level.alpha**2 * SPREAD**2 + level.sigma**2).sqrt() for level in (entry, end)]
    lag = end.alpha * spread[0] / spread[1] / entry.alpha * (shift @ PLANE)
    torch.testing.assert_close(moved, CELLS + shift - lag @ PLANE.T, rtol=0, atol=1e-3)


def test_the_flow_is_entered_where_noise_is_as_large_as_what_is_left_out() -> None:
    for name, schedule in SCHEDULES.items():
        level = schedule(entry_times(on_the_plane(MEANS[0], name), CELLS, schedule))
        beside = CELLS - CELLS @ PLANE @ PLANE.T
        np.testing.assert_allclose((level.sigma / level.alpha)[:, 0], beside.square().mean(1).sqrt(), rtol=1e-3)


def test_a_denoiser_that_holds_the_data_is_entered_at_the_end_of_the_flow() -> None:
    schedule = SCHEDULES["cosine"]
    times = entry_times(lambda noisy, time: noisy / schedule(time).alpha, CELLS, schedule)
    torch.testing.assert_close(times, torch.full((5, 1), TIME_MIN, dtype=torch.float64))


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_a_cell_that_is_noisier_than_where_it_is_led_stays(solver: str) -> None:
    schedule = SCHEDULES["cosine"]
    times = entry_times(lambda noisy, time: torch.zeros_like(noisy), 1e4 * CELLS, schedule)
    assert float(times.max()) == pytest.approx(TIME_MAX)
    own, asked = (on_the_plane(mean, "cosine") for mean in MEANS)
    start = torch.tensor(0.02, dtype=torch.float64)
    stayed = carry_over(SOLVERS[solver], own, asked, CELLS, start=start, n_steps=9, schedule=schedule)
    torch.testing.assert_close(stayed, CELLS, rtol=0, atol=5e-3)
