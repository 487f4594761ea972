"""scvi-tools' trainer with a graceful stop at Control-C, a history besides other loggers, and bfloat16 warnings."""

import timeit
from typing import Any

import torch
from lightning.pytorch.loggers import Logger
from scvi.train import Trainer
from scvi.train._logger import SimpleLogger

from scdiffgen._messages import warn_user

from ._plan import DiffusionTrainingPlan


class GracefulTrainer(Trainer):
    """Trainer that ends training at Control-C, while Lightning would exit the whole script."""

    def fit(self, plan: DiffusionTrainingPlan, *args: Any, **kwargs: Any) -> None:
        """Fit the model; raise KeyboardInterrupt only if no weights can be used yet."""
        loggers: list[Logger] = self.loggers  # type: ignore[has-type]
        if loggers and not any(hasattr(logger, "history") for logger in loggers):
            self.loggers = [*loggers, SimpleLogger()]
        if self.precision == "bf16-mixed" and self.strategy.root_device.type == "cpu":
            warn_of_slow_bfloat16(*(matrix_product_rate(dtype) for dtype in (torch.float32, torch.bfloat16)))
        try:
            super().fit(plan, *args, **kwargs)
        except (KeyboardInterrupt, SystemExit) as error:  # Lightning raises SystemExit at Control-C
            if KeyboardInterrupt not in (type(error), type(error.__context__)):
                raise
            if not plan.is_usable:
                raise KeyboardInterrupt("Training was interrupted before its first step.") from None
            plan.on_train_end()
            warn_user(
                f"Training was interrupted after {self.current_epoch} of {self.max_epochs} epochs. The model keeps the "
                "weights averaged so far: use or save it, or call `train` again to go on."
            )


def matrix_product_rate(dtype: torch.dtype, size: int = 256, n_repeats: int = 5) -> float:
    """Measure the rate of matrix products on the CPU in operations per second; takes milliseconds."""
    matrix = torch.ones(size, size, dtype=dtype)
    return 2 * size**3 / min(timeit.repeat(lambda: matrix @ matrix, number=1, repeat=n_repeats))


def warn_of_slow_bfloat16(float32_rate: float, bfloat16_rate: float) -> None:
    """Warn if matrix products on the CPU are faster in float32 than in bfloat16, by operations per second."""
    if bfloat16_rate < float32_rate:
        warn_user(
            f"`precision` is 'bf16-mixed', but this CPU multiplies matrices faster in float32 ({float32_rate:.2g} "
            f"operations per second) than in bfloat16 ({bfloat16_rate:.2g}), so training would be slower: leave "
            "`precision` out to train in float32."
        )
