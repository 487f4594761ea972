"""The averaged weights against a closed form and against torch's own averaging."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from scdiffgen.train._plan import update_ema


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_weights_decay_towards_a_network_that_stands_still() -> None:
    average, fast = network(0), network(1)
    start = [weight.clone() for weight in average.parameters()]
    for _ in range(7):
        update_ema(average, fast, decay=0.9)
    for slow, before, target in zip(average.parameters(), start, fast.parameters(), strict=True):
        torch.testing.assert_close(slow, 0.9**7 * before + (1 - 0.9**7) * target)


def test_averaging_a_moving_network_is_torchs() -> None:
    fast = network(0)
    average = deepcopy(fast)
    torchs = AveragedModel(fast, multi_avg_fn=get_ema_multi_avg_fn(0.7))
    torchs.update_parameters(fast)  # the first call copies
    for step in range(5):
        with torch.no_grad():
            for weight in fast.parameters():
                weight.add_(torch.full_like(weight, 0.1 * (step + 1)))
        torchs.update_parameters(fast)
        update_ema(average, fast, decay=0.7)
    for slow, other in zip(average.parameters(), torchs.module.parameters(), strict=True):
        torch.testing.assert_close(slow, other)


def test_buffers_are_copied() -> None:
    average, fast = network(0), network(1)
    fast(torch.randn(8, 3))  # moves the running statistics
    update_ema(average, fast, decay=0.9)
    for mine, other in zip(average.buffers(), fast.buffers(), strict=True):
        assert torch.equal(mine, other)


def test_the_average_takes_no_part_in_gradients() -> None:
    average, fast = network(0), network(1)
    update_ema(average, fast, decay=0.9)
    assert all(weight.grad_fn is None for weight in average.parameters())
