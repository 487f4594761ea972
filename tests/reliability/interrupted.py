"""A script that trains, is stopped by a signal, saves, and is interrupted twice in its next training."""

import os
import signal
import sys
from typing import Any

from lightning.pytorch import Callback
from small_cells import QUIET, simulated_cells, small_model

from scdiffgen.model import _training_runs


def press_control_c(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Terminated(Callback):
    """Is stopped in the fourth epoch, as the jobs of a cluster are."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == 3:
            os.kill(os.getpid(), signal.SIGTERM)


class ControlC(Callback):
    """Presses Control-C in the fourth epoch."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == 3:
            press_control_c()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model = small_model(simulated_cells(60))
    how = {"ControlC": ControlC, "Terminated": Terminated}[sys.argv[2]]
    model.train(500, batch_size=16, callbacks=[how()], **QUIET)
    model.save(sys.argv[1])
    print(len(model.history["train_loss"]), model.get_nll_bound(silent=True, seed=0)["nll"].mean())
    _training_runs.remember_training = press_control_c  # what is done after a training, interrupted or not
    try:
        model.train(500, batch_size=16, callbacks=[ControlC()], **QUIET)
    except KeyboardInterrupt:
        print("the second one was raised")
