"""Slow copy of a network: the exponential moving average of its weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def update_ema(average: nn.Module, network: nn.Module, decay: float) -> None:
    """Move every weight of ``average`` to ``decay * average + (1 - decay) * network``."""
    slow: list[Tensor] = list(average.parameters())
    fast: list[Tensor] = list(network.parameters())
    torch._foreach_lerp_(slow, fast, 1 - decay)
    for mine, other in zip(average.buffers(), network.buffers(), strict=True):
        mine.copy_(other)
