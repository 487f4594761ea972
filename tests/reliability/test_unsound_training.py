"""A model counts as trained after a finite step only; what was learned before stays."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from anndata import AnnData
from fingerprint import weights_of
from lightning.pytorch import Callback
from own_process import run_script
from small_cells import QUIET, SMALL, simulated_cells, small_model

from scdiffgen.model import TokenDiffusion

pytestmark = pytest.mark.filterwarnings("ignore")

NO_STEP = {
    "fewer cells than a minibatch": {"batch_size": 512, "datasplitter_kwargs": {"drop_last": True}},
    "max_steps": {"max_steps": 0},
    "limit_train_batches": {"limit_train_batches": 0},
}


@pytest.mark.parametrize("why", NO_STEP)
def test_no_step_is_no_training(why: str, cells: AnnData) -> None:
    model = small_model(cells)
    with pytest.raises(ValueError, match="no step.*drop_last.*max_steps"):
        model.train(1, **QUIET, **NO_STEP[why])
    assert not model.is_trained_
    with pytest.raises(RuntimeError, match="not trained"):
        model.generate()
    model.train(1, **QUIET)
    before = weights_of(model)
    with pytest.raises(ValueError, match="no step"):
        model.train(1, **QUIET, **NO_STEP[why])
    assert model.is_trained_ and weights_of(model) == before
    assert model.generate(n_cells=2, n_steps=2).n_obs == 2


class Spoil(Callback):
    """Makes a weight NaN after the last step, which no gradient shows."""

    def on_train_batch_end(self, trainer: Any, plan: Any, *_: Any) -> None:
        with torch.no_grad():
            plan.module.ema_denoiser.network.readout.bias[0] = torch.nan


def test_too_little_memory_is_not_said_to_be_bad_weights(cells: AnnData) -> None:
    model = small_model(cells)
    model.module.match_genes = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(torch.OutOfMemoryError, match="^CUDA out of memory$"):
        model.train(1, **QUIET)


@pytest.mark.parametrize("again", [False, True])
def test_weights_that_are_not_finite_are_no_training(again: bool, cells: AnnData, tmp_path: Path) -> None:
    model = small_model(cells)
    if again:
        model.train(1, **QUIET)
    with pytest.raises(RuntimeError, match=r"not finite.*untrained.*lower learning rate"):
        model.train(1, callbacks=[Spoil()], **QUIET)
    assert not model.is_trained_
    with pytest.raises(RuntimeError, match="not trained"):
        model.get_latent_representation()


@pytest.mark.parametrize("lr", [10.0, 1e3, 1e10])
def test_a_learning_rate_far_too_high_ends_in_words(lr: float, cells: AnnData) -> None:
    """Either the weights stay finite, or the model counts as untrained."""
    model = small_model(cells)
    try:
        model.train(30, batch_size=16, plan_kwargs={"lr": lr}, **QUIET)
    except RuntimeError as error:
        assert "learning rate" in str(error) and not model.is_trained_
    else:
        assert np.isfinite(model.get_latent_representation()).all()


@pytest.mark.parametrize("process", ["thinning", "gaussian", "latent"])
@pytest.mark.parametrize("lr", [1e3, 1e30])
def test_a_few_steps_at_an_absurd_learning_rate_end_in_words_or_in_cells(process: str, lr: float) -> None:
    TokenDiffusion.setup_anndata(cells := simulated_cells(60), labels_key="cell_type")
    model = TokenDiffusion(cells, **SMALL, process=process)
    try:
        model.train(2, batch_size=30, plan_kwargs={"lr": lr}, **QUIET)
    except RuntimeError as error:
        assert "lower learning rate" in str(error) and not model.is_trained_
    else:
        assert model.generate({"cell_type": "a"}, 3, n_steps=4).X.sum() > 0


class NoGradients(Callback):
    def on_after_backward(self, trainer: Any, plan: Any) -> None:
        for weight in plan.module.denoiser.parameters():
            if weight.grad is not None:
                weight.grad.fill_(torch.nan)


def test_steps_that_were_all_skipped_are_told_as_such(cells: AnnData) -> None:
    model = small_model(cells)
    with pytest.raises(RuntimeError, match="gradients of 4 steps in a row were not finite.*lower learning rate"):
        model.train(1, batch_size=16, callbacks=[NoGradients()], **QUIET)
    assert not model.is_trained_


class Stop(Callback):
    """Raises an error, such as that of Control-C, before so many minibatches are over, and remembers the average."""

    def __init__(self, n_batches: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.left, self.error = n_batches, error

    def on_train_batch_start(self, trainer: Any, plan: Any, *_: Any) -> None:
        if not self.left:
            self.averaged = plan.module.ema_denoiser.network.urn.weight_logits.detach().clone()
            raise self.error
        self.left -= 1


@pytest.mark.parametrize("again", [False, True])
def test_an_interrupted_training_returns_with_the_weights_averaged_so_far(again: bool, cells: AnnData) -> None:
    model, stop = small_model(cells), Stop(6)  # 4 minibatches an epoch
    if again:
        model.train(1, **QUIET)
    before = list(model.history["train_loss"].index) if again else []
    with pytest.warns(UserWarning, match="interrupted after 1 of 20 epochs"):
        model.train(20, batch_size=16, callbacks=[stop], check_val_every_n_epoch=1, **QUIET)
    assert model.is_trained_ and not model.module.training
    assert torch.equal(model.module.ema_denoiser.network.urn.weight_logits, stop.averaged)
    assert model.history["train_loss"].index.tolist() == [*before, len(before)]
    assert len(model.train_indices) + len(model.validation_indices) == cells.n_obs
    assert (
        np.isfinite(model.get_nll_bound(silent=True)).all(axis=None) and model.generate(n_cells=2, n_steps=2).n_obs == 2
    )
    model.train(1, batch_size=16, **QUIET)
    assert model.history["train_loss"].index.tolist() == [*range(len(before) + 2)]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(("n_batches", "error"), [(0, KeyboardInterrupt), (2, SystemExit), (2, ZeroDivisionError)])
def test_other_ends_of_a_training_are_raised(
    n_batches: int, error: type[BaseException], again: bool, cells: AnnData
) -> None:
    model = small_model(cells)
    if again:
        model.train(1, **QUIET)
    with pytest.raises(error):
        model.train(2, batch_size=16, callbacks=[Stop(n_batches, error)], **QUIET)
    assert model.is_trained_ == again


@pytest.mark.parametrize("how", ["ControlC", "Terminated"])
def test_a_script_goes_on_after_a_signal_and_control_c_then_ends_it(how: str, tmp_path: Path) -> None:
    printed = run_script(Path(__file__).with_name("interrupted.py"), tmp_path / "model", how, folder=tmp_path)
    epochs, loss = printed.splitlines()[-2].split()
    assert int(epochs) == 3 and printed.splitlines()[-1] == "the second one was raised"
    loaded = TokenDiffusion.load(tmp_path / "model", adata=simulated_cells(60), accelerator="cpu")
    assert loaded.is_trained_ and loaded.history["train_loss"].index.tolist() == [0, 1, 2]
    assert loaded.get_nll_bound(silent=True, seed=0)["nll"].mean() == pytest.approx(float(loss), rel=1e-6)


READ: dict[str, Callable[[TokenDiffusion], Any]] = {
    "latent": lambda m: m.get_latent_representation(),
    "activation": lambda m: m.get_token_activation().to_numpy(),
    "nll": lambda m: m.get_nll_bound(silent=True).to_numpy(),
    "cells": lambda m: m.generate({"cell_type": "a"}, 5, n_steps=3).X.toarray(),
}


@pytest.mark.parametrize("name", READ)
def test_results_do_not_depend_on_the_mode_that_the_module_was_put_in(name: str, tiny: TokenDiffusion) -> None:
    expected = READ[name](tiny)
    tiny.module.train()
    np.testing.assert_array_equal(READ[name](tiny), expected)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_of_a_model_that_was_just_trained_give_the_same(how: str, cells: AnnData) -> None:
    model = small_model(cells)
    model.train(1, **QUIET)
    copied = COPIES[how](model)
    for read in READ.values():
        np.testing.assert_array_equal(read(copied), read(model))


def test_models_are_made_and_trained_in_single_precision_with_gradients(cells: AnnData) -> None:
    with torch.inference_mode(), pytest.raises(RuntimeError, match="inference_mode"):
        small_model(cells.copy()).train(1, **QUIET)
    model = small_model(cells)
    model.train(1, **QUIET)
    torch.set_default_dtype(torch.float64)
    try:
        for act in (
            lambda: TokenDiffusion(cells),
            lambda: model.train(1, **QUIET),
            model.generate,
            model.get_nll_bound,
        ):
            with pytest.raises(RuntimeError, match=r"torch.set_default_dtype\(torch.float32\)"):
                act()
    finally:
        torch.set_default_dtype(torch.float32)


def test_cells_in_no_part_of_a_split_are_a_test_set(cells: AnnData) -> None:
    model, parts = small_model(cells), [np.arange(30), np.arange(30, 40)]
    model.train(1, datasplitter_kwargs={"external_indexing": parts}, **QUIET)
    assert len(parts) == 2  # the list of the user, to which scvi-tools would append
    np.testing.assert_array_equal(np.sort(model.test_indices), np.arange(40, 60))
