"""Trainings in a row: their history, how often they validate, and numbers of any kind as arguments."""

from pathlib import Path

import numpy as np
import pytest
import scvi
from fingerprint import weights_of
from lightning.pytorch.loggers import CSVLogger
from small_cells import QUIET, simulated_cells, small_model


def test_epochs_of_every_training_stand_in_a_row() -> None:
    model = small_model(simulated_cells(60))
    model.train(max_epochs=6, check_val_every_n_epoch=3, **QUIET)
    for _ in range(2):
        model.train(max_epochs=4, check_val_every_n_epoch=2, **QUIET)
    assert model.history["train_loss"].index.tolist() == list(range(14))
    assert model.history["validation_loss"].index.tolist() == [2, 5, 7, 9, 11, 13]
    assert model.history["validation_loss"].index.name == "epoch"
    assert model.history["validation_loss"].notna().all(axis=None)


def test_a_training_that_is_not_logged_leaves_the_history_alone() -> None:
    model = small_model(simulated_cells(60))
    model.train(max_epochs=2, check_val_every_n_epoch=1, **QUIET)
    model.train(max_epochs=2, check_val_every_n_epoch=1, logger=False, **QUIET)
    assert model.history["train_loss"].index.tolist() == model.history["validation_loss"].index.tolist() == [0, 1]


def test_losses_of_a_second_training_alone_are_numbered_on() -> None:
    model = small_model(simulated_cells(60))
    model.train(3, train_size=1.0, **QUIET)
    model.train(2, check_val_every_n_epoch=1, **QUIET)
    assert model.history["validation_loss"].index.tolist() == [3, 4]


def test_history_is_kept_beside_another_logger(tmp_path: Path) -> None:
    model, logger = small_model(simulated_cells(60)), CSVLogger(tmp_path)
    for _ in range(2):
        model.train(2, check_val_every_n_epoch=1, logger=logger, **QUIET)
    assert model.trainer.logger is logger and (Path(logger.log_dir) / "metrics.csv").exists()
    for name in ("train_loss", "validation_loss"):
        assert model.history[name].index.tolist() == [0, 1, 2, 3]
        assert np.isfinite(model.history[name].to_numpy(float)).all()


@pytest.mark.parametrize(
    ("n_epochs", "early_stopping", "expected"),
    [
        (10, None, [*range(10)]),
        (60, None, [*range(2, 60, 3)]),  # twenty times; by steps alone it would be once
        (50, True, [*range(50)]),
    ],
)
def test_short_epochs_are_validated_often(n_epochs: int, early_stopping: bool | None, expected: list[int]) -> None:
    model = small_model(simulated_cells(60))
    model.train(n_epochs, early_stopping=early_stopping, plan_kwargs={"max_validation_rise": 1e9}, **QUIET)
    assert model.history["validation_loss"].index.tolist()[: len(expected)] == expected


def test_validation_does_not_change_the_training() -> None:
    weights = []
    for every in (1, 2, 6):
        scvi.settings.seed = 0
        model = small_model(simulated_cells(60))
        model.train(6, check_val_every_n_epoch=every, early_stopping=False, **QUIET)
        weights.append(weights_of(model))
    assert weights[0] == weights[1] == weights[2]


def test_whole_numbers_of_numpy_are_as_those_of_python() -> None:
    found = []
    for kind in (int, np.int64, np.uint8):
        scvi.settings.seed = 0
        model = small_model(simulated_cells(60))
        model.train(kind(3), batch_size=kind(16), check_val_every_n_epoch=kind(1), max_steps=kind(4), **QUIET)
        read = model.get_latent_representation(batch_size=kind(7), silent=True)
        made = model.generate({"cell_type": "a"}, kind(5), n_steps=kind(2), batch_size=kind(3), seed=kind(1))
        found.append((weights_of(model), read.tobytes(), made.X.toarray().tobytes()))
    assert found[0] == found[1] == found[2]
