"""Predictions and their errors: conversions undo each other, and each error is a weight times that of the data."""

import itertools

import pytest
import torch
from torch import Tensor

from scdiffgen.diffusion import gaussian
from scdiffgen.diffusion._gaussian import GaussianPrediction, Noised, Noisy, add_noise, precision_of, to_clean, to_noise

KINDS = ("x0", "eps", "v")


def cells(seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(9, 4, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype)


CLEAN, NOISE = cells(0), cells(1)
TIMES = torch.linspace(gaussian.TIME_MIN, gaussian.TIME_MAX, 9, dtype=torch.float64)


@pytest.mark.parametrize("name", list(gaussian.SCHEDULES))
def test_what_made_a_noisy_state_is_found_again(name: str) -> None:
    level = gaussian.SCHEDULES[name](TIMES)
    noisy, wide = add_noise(CLEAN, NOISE, level), level.expand_as(CLEAN)
    velocity = wide.alpha_rate * CLEAN + wide.sigma_rate * NOISE
    for kind, predicted in zip(KINDS, (CLEAN, NOISE, velocity), strict=True):
        torch.testing.assert_close(to_clean(predicted, kind, noisy, level), CLEAN, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(to_noise(CLEAN, noisy, level), NOISE, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "kind"), list(itertools.product(gaussian.SCHEDULES, KINDS)))
def test_an_error_in_any_space_is_a_weight_times_that_of_the_data(name: str, kind: str) -> None:
    level, guess = gaussian.SCHEDULES[name](TIMES), cells(2)
    noisy, wide = add_noise(CLEAN, NOISE, level), level.expand_as(CLEAN)
    truth = {"x0": CLEAN, "eps": NOISE, "v": wide.alpha_rate * CLEAN + wide.sigma_rate * NOISE}[kind]
    squared = (guess - truth).square().mean((1, 2))
    prediction = GaussianPrediction(to_clean(guess, kind, noisy, level), precision_of(kind, level))
    loss = prediction.loss(Noised(CLEAN, Noisy(noisy, TIMES)))
    torch.testing.assert_close(loss, squared, rtol=1e-8, atol=0)


@pytest.mark.parametrize("name", list(gaussian.SCHEDULES))
@pytest.mark.parametrize("time", [gaussian.TIME_MIN, gaussian.TIME_MAX])
def test_both_ends_are_finite_in_single_precision(name: str, time: float) -> None:
    level = gaussian.SCHEDULES[name](torch.full((9,), time))
    clean, guess = cells(0, torch.float32), cells(2, torch.float32).requires_grad_()
    noisy = add_noise(clean, cells(1, torch.float32), level)
    for kind in KINDS:
        predicted = to_clean(guess, kind, noisy, level)
        loss = GaussianPrediction(predicted, precision_of(kind, level)).loss(Noised(clean, Noisy(noisy, time))).sum()
        (gradient,) = torch.autograd.grad(loss, guess)
        assert torch.isfinite(loss) and torch.isfinite(gradient).all()
        assert torch.isfinite(to_noise(predicted, noisy, level)).all()
