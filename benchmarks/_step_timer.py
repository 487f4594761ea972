"""Times of training steps."""

import time
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl

WARM_UP = 3  # steps


class StepTimer(pl.Callback):
    """When training starts, and each step ends."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.ends: list[float] = []

    def on_train_start(self, *arguments: Any) -> None:
        """Read the clock."""
        self.start = self.clock()

    def on_train_batch_end(self, *arguments: Any) -> None:
        """Read the clock."""
        self.ends.append(self.clock())
