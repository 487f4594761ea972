"""A model that is trained again goes on: its history has the epochs of both trainings in a row."""

from __future__ import annotations

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
