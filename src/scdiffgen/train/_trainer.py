"""scvi-tools' trainer that returns from Control-C, and keeps a history beside other loggers."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.loggers import Logger
from scvi.train import Trainer
from scvi.train._logger import SimpleLogger

from scdiffgen._messages import warn_user

from ._plan import DiffusionTrainingPlan


class GracefulTrainer(Trainer):
    """Train until all epochs are done or Control-C is pressed; Lightning would end the whole script."""

    def fit(self, plan: DiffusionTrainingPlan, *args: Any, **kwargs: Any) -> None:
        """Fit the model; raise KeyboardInterrupt only if no weights can be used yet."""
        loggers: list[Logger] = self.loggers  # type: ignore[has-type]
        if loggers and not any(hasattr(logger, "history") for logger in loggers):
            self.loggers = [*loggers, SimpleLogger()]
        try:
            super().fit(plan, *args, **kwargs)
        except (KeyboardInterrupt, SystemExit) as error:  # Lightning exits where Control-C was pressed
            if KeyboardInterrupt not in (type(error), type(error.__context__)):
                raise
            if not plan.is_usable:
                raise KeyboardInterrupt("Training was interrupted before its first step.") from None
            plan.on_train_end()
            warn_user(
                f"Training was interrupted after {self.current_epoch} of {self.max_epochs} epochs. The model keeps the "
                "weights averaged so far: use or save it, or call `train` again to go on."
            )
