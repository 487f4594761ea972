"""The training plan, step by step: closed forms of schedule and average, and when training stops."""

import re
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import scvi
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from scvi.module.base import LossOutput
from small_cells import QUIET, SMALL, simulated_cells, small_model
from torch import Tensor
from treated_cells import treated_cells

from scdiffgen.diffusion import Blocks
from scdiffgen.model import TokenDiffusion
from scdiffgen.module import DiffusionModule
from scdiffgen.module._denoisers import UrnDenoiser
from scdiffgen.train import DiffusionTrainingPlan, TrainingPlanConfig
from scdiffgen.train._plan import update_ema

Weights = dict[str, Tensor]


def weights(network: torch.nn.Module) -> Weights:
    return {name: weight.detach().clone() for name, weight in network.named_parameters()}


class Recorder(Callback):
    """Notes what a plan does to the weights, step by step."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.gradient_norms: list[float] = []
        self.before: list[Weights] = []
        self.after: list[Weights] = []
        self.averages: list[Weights] = []
        self.dropped = True  # whether every step was made in training mode, with dropout

    def on_train_batch_start(self, trainer: Trainer, plan: LightningModule, batch: Any, batch_idx: int) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        self.dropped &= all(module.training for module in plan.module.denoiser.modules())
        self.before.append(weights(plan.module.denoiser))
        self.averages.append(weights(plan.module.ema_denoiser))

    def on_train_batch_end(self, trainer: Trainer, plan: LightningModule, *_: Any) -> None:
        gradients = [weight.grad for weight in plan.module.denoiser.parameters() if weight.grad is not None]
        self.gradient_norms.append(float(torch.cat([gradient.flatten() for gradient in gradients]).norm()))
        self.after.append(weights(plan.module.denoiser))

    def on_train_end(self, trainer: Trainer, plan: LightningModule) -> None:
        self.averages.append(weights(plan.module.ema_denoiser))


def fit(model: TokenDiffusion | None = None, max_epochs: int = 5, **arguments: Any) -> tuple[TokenDiffusion, Recorder]:
    """Three steps an epoch, all of them on measured cells."""
    model, recorder = model or small_model(), Recorder()
    plan = {"drawn_share": 0, **arguments.pop("plan_kwargs", {})}
    model.train(max_epochs=max_epochs, batch_size=32, callbacks=[recorder], plan_kwargs=plan, **QUIET, **arguments)
    return model, recorder


def assert_same(one: Weights, other: Weights) -> None:
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("n_warmup_steps", "n_used"), [(2, 2), (100, 3), (0, 1)])
def test_the_learning_rate_warms_up_and_falls_on_a_cosine(n_warmup_steps: int, n_used: int) -> None:
    _, recorder = fit(max_epochs=10, plan_kwargs={"lr": 0.01, "n_warmup_steps": n_warmup_steps})
    step = np.arange(30)
    expected = 0.01 * np.minimum((step + 1) / n_used, 1) * (1 + np.cos(np.pi * step / 30)) / 2
    np.testing.assert_allclose(recorder.rates, expected)


def test_the_average_follows_the_weights() -> None:
    _, recorder = fit(plan_kwargs={"ema_decay": 0.4})
    expected = recorder.averages[0]
    for step, after in enumerate(recorder.after, start=1):
        decay = min(0.4, (1 + step) / (10 + step))
        expected = {name: decay * slow + (1 - decay) * after[name] for name, slow in expected.items()}
        for name, slow in recorder.averages[step].items():
            torch.testing.assert_close(slow, expected[name])
    assert len(recorder.after) == 15


def test_buffers_of_the_average_are_copies() -> None:
    average, network = (torch.nn.BatchNorm1d(3) for _ in range(2))
    network(torch.randn(8, 3))  # moves the running statistics
    update_ema(average, network, decay=0.9)
    assert all(torch.equal(*pair) for pair in zip(average.buffers(), network.buffers(), strict=True))


def test_gradients_are_scaled_down_to_the_largest_norm() -> None:
    clipped, free = (fit(plan_kwargs={"max_grad_norm": norm})[1].gradient_norms for norm in (1e-3, 1e9))
    np.testing.assert_allclose(clipped, 1e-3, rtol=1e-3)
    assert min(free) > 1e-2


def groups_of(model: TokenDiffusion, n_cells: int = 100, **settings: Any) -> list[dict[str, Any]]:
    """Groups of weights that the optimiser gets for so many training cells."""
    plan = DiffusionTrainingPlan(model.module, **settings)
    plan.n_obs_training = n_cells
    plan.trainer = type("FakeTrainer", (), {"estimated_stepping_batches": 10, "num_training_batches": 10})()
    return plan.configure_optimizers()["optimizer"].param_groups


def test_weights_decay_where_they_are_matrices() -> None:
    model = small_model()
    groups = groups_of(model, weight_decay=0.3)
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0, 0.01, 0.3]
    assert all(weight.ndim > 1 for weight in groups[0]["params"]) and all(w.ndim <= 1 for w in groups[1]["params"])
    n_genes, linear = model.adata.n_vars, groups[3]
    assert linear["lr"] < groups[0]["lr"] and all(n_genes in weight.shape for weight in linear["params"])
    embedded = {id(weight) for weight in model.module.denoiser.embed.parameters() if weight.ndim > 1}
    assert embedded and {id(weight) for weight in groups[2]["params"]} == embedded
    assert groups_of(model, weight_decay=0.001)[2]["weight_decay"] == 0.001
    trained = {id(weight) for group in groups for weight in group["params"]}
    assert trained == {id(weight) for weight in model.module.denoiser.parameters()}


@pytest.mark.parametrize(
    ("n_cells", "decay", "share"), [(100, 5.0, 0.1), (1_000, 5.0, 0.1), (5_000, 1.0, 0.5), (100_000, 0.05, 1.0)]
)
def test_few_cells_are_regularised_more(n_cells: int, decay: float, share: float) -> None:
    model = small_model()
    model.module.denoiser.blocks = Blocks((2000,))
    matrices, others, embedded, linear = groups_of(model, n_cells)
    assert (matrices["weight_decay"], others["weight_decay"], linear["weight_decay"]) == (decay, 0.0, decay)
    assert embedded["weight_decay"] == 0.01
    assert others["initial_lr"] == matrices["initial_lr"] and linear["initial_lr"] == share * matrices["initial_lr"]
    matrices, _, _, linear = groups_of(small_model(), n_cells, weight_decay=0.2, linear_lr=0.7)
    assert matrices["weight_decay"] == linear["weight_decay"] == 0.2
    assert linear["initial_lr"] == 0.7 * matrices["initial_lr"]
    model.module.denoiser.blocks = Blocks((75,))
    assert groups_of(model, n_cells)[0]["weight_decay"] == pytest.approx(decay / 10)


@pytest.mark.parametrize("process", ["gaussian", "latent"])
@pytest.mark.parametrize("n_cells", [100, 100_000])
def test_other_processes_decay_alike_for_any_number_of_cells(process: str, n_cells: int) -> None:
    cells = treated_cells()
    TokenDiffusion.setup_anndata(cells, labels_key="cell_type")
    groups = groups_of(TokenDiffusion(cells, process=process, **SMALL), n_cells)
    assert {group["weight_decay"] for group in groups} == {0.01, 0.0}
    assert {group["initial_lr"] for group in groups} == {2e-3}


def test_a_rate_of_zero_changes_nothing_and_validation_repeats_itself() -> None:
    model, recorder = fit(plan_kwargs={"lr": 0.0}, check_val_every_n_epoch=1)
    assert_same(recorder.before[0], recorder.after[-1])
    validation, training = (model.history[name].to_numpy(float) for name in ("validation_loss", "train_loss"))
    assert len(np.unique(validation)) == 1 and len(np.unique(training)) == 5


def scripted(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Let validation give these losses, one an epoch."""
    remaining = iter(losses)

    def loss(self: DiffusionModule, *_: Any) -> LossOutput:
        return LossOutput(loss=torch.tensor(next(remaining)), n_obs_minibatch=10)

    monkeypatch.setattr(DiffusionModule, "validation_loss", loss)


LOSSES = [2.0, 1.0, 1.009, 0.9, 0.95, 0.1, 0.1]


@pytest.mark.parametrize(
    ("arguments", "n_epochs"),
    [
        ({}, 5),
        ({"plan_kwargs": {"max_validation_rise": 0.001}}, 3),
        ({"early_stopping": False}, 7),
        ({"early_stopping": True}, 7),
        ({"early_stopping": True, "early_stopping_patience": 1}, 3),
        ({"early_stopping": True, "early_stopping_patience": 2, "early_stopping_min_delta": 0.5}, 4),
        ({"early_stopping": True, "early_stopping_patience": 1, "early_stopping_warmup_epochs": 3}, 5),
    ],
)
def test_training_stops_when_the_validation_loss_has_risen_over_its_best(
    arguments: dict[str, Any], n_epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, LOSSES)
    model, _ = fit(max_epochs=7, check_val_every_n_epoch=1, **arguments)
    np.testing.assert_allclose(model.history["validation_loss"].to_numpy(float).ravel(), LOSSES[:n_epochs])
    assert model.is_trained_


@pytest.mark.parametrize(
    ("losses", "arguments", "best"),
    [
        ([2.0, 1.0, 1.005], {}, 1),  # worse by more than a quarter of a hundredth
        ([2.0, 1.0, 1.002], {}, 2),
        ([2.0, 1.0, 0.9], {}, 2),
        ([2.0, 1.0, 1.5, 0.1], {}, 1),  # stopped
        ([2.0, 1.0, np.nan], {}, 1),
        ([2.0, 1.0, 1.005], {"plan_kwargs": {"max_validation_rise": 0.04}}, 2),
        ([2.0, 1.0, 1.5], {"early_stopping": False}, 2),
        ([2.0, 1.0, 1.5, 1.5, 0.1], {"early_stopping": True, "early_stopping_patience": 2}, 1),
    ],
)
def test_the_best_weights_are_restored_where_the_last_are_clearly_worse(
    losses: list[float], arguments: dict[str, Any], best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, losses)
    model, recorder = fit(max_epochs=len(losses), check_val_every_n_epoch=1, **arguments)
    urn, step = "network.urn.weight_logits", 3 * best + 2  # neither tokens nor calibrated
    assert torch.equal(model.module.denoiser.network.urn.weight_logits, recorder.after[step][urn])
    assert torch.equal(model.module.ema_denoiser.network.urn.weight_logits, recorder.averages[step + 1][urn])


@pytest.mark.parametrize(("depth", "best"), [(100.0, 3), (500.0, 3), (5_000.0, 1)])
def test_deep_cells_stop_at_a_smaller_rise(depth: float, best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UrnDenoiser, "least_depth", depth)
    scripted(monkeypatch, [2.0, 1.0, 1.0005, 1.0015])  # at 5,000 molecules the last is .15 % x 10 above the best
    model, recorder = fit(max_epochs=4, check_val_every_n_epoch=1)
    weights = model.module.denoiser.network.urn.weight_logits
    assert torch.equal(weights, recorder.after[3 * best + 2]["network.urn.weight_logits"])


def test_an_interrupted_training_restores_the_best_weights_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Recorder, trainer: Trainer, *_: Any) -> None:
        if trainer.current_epoch == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "on_train_epoch_start", interrupt)
    scripted(monkeypatch, [2.0, 1.0, 1.005])  # worse by more than a quarter of a hundredth
    with pytest.warns(UserWarning, match="interrupted after 3 of 9 epochs"):
        model, recorder = fit(max_epochs=9, check_val_every_n_epoch=1)
    assert torch.equal(model.module.denoiser.network.urn.weight_logits, recorder.after[5]["network.urn.weight_logits"])


def broken(monkeypatch: pytest.MonkeyPatch, steps: range, factor: float = torch.nan) -> None:
    """Let the loss of some steps be NaN, or so many times what it is."""
    true_loss, seen = DiffusionModule.loss, []

    def loss(self: DiffusionModule, *arguments: Any) -> LossOutput:
        seen.append(None)
        output = true_loss(self, *arguments)
        times = factor if len(seen) - 1 in steps else 1.0
        return LossOutput(loss=output.loss * times, n_obs_minibatch=output.n_obs_minibatch)

    monkeypatch.setattr(DiffusionModule, "loss", loss)


def test_a_step_without_a_finite_gradient_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, range(4, 6))
    said: list[str] = []
    monkeypatch.setattr("scdiffgen.train._plan.logger.warning", lambda text, *values: said.append(text % values))
    model = small_model()
    recorder = Recorder()
    recorder.on_train_batch_end = lambda trainer, plan, *_: recorder.after.append(weights(plan.module.denoiser))
    model.train(max_epochs=4, batch_size=32, callbacks=[recorder], **QUIET)
    assert_same(recorder.before[4], recorder.after[5])
    assert not torch.equal(recorder.after[5]["network.readout.bias"], recorder.after[6]["network.readout.bias"])
    assert all(torch.isfinite(weight).all() for weight in recorder.after[-1].values())
    assert said == [f"Step {step} skipped: its gradient is not finite." for step in (4, 5)]


def test_a_step_whose_gradient_spikes_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a hundred steps have shown what is usual; before, a large gradient is scaled down as others are."""
    broken(monkeypatch, range(10, 200, 100), factor=1000)  # steps 10 and 110
    said: list[str] = []
    monkeypatch.setattr("scdiffgen.train._plan.logger.warning", lambda text, *values: said.append(text % values))
    model, recorder = small_model(), Recorder()
    recorder.on_train_batch_end = lambda *_: None  # a step that is skipped has no gradient to note
    model.train(max_epochs=40, batch_size=32, callbacks=[recorder], early_stopping=False, **QUIET)
    assert len(said) == 1 and re.match(r"Step 110 skipped: its gradient is \d{3,4} times the usual", said[0])
    assert_same(recorder.before[110], recorder.before[111])
    assert not torch.equal(recorder.before[10]["network.readout.bias"], recorder.before[11]["network.readout.bias"])
    assert model.is_trained_


@pytest.mark.parametrize(("first", "factor", "fault"), [(3, np.nan, "not finite"), (105, 1000, r"\d+ times the usual")])
def test_training_that_cannot_recover_says_what_to_do(
    first: int, factor: float, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, range(first, 1000), factor)
    model = small_model()
    with pytest.raises(RuntimeError, match=rf"10 steps in a row were {fault}. Train with a lower learning rate"):
        model.train(max_epochs=40, batch_size=32, **QUIET)
    assert not model.is_trained_
    assert all(torch.isfinite(weight).all() for weight in weights(model.module).values())


def test_training_goes_on_where_it_ended() -> None:
    model, first = fit(max_epochs=3)
    assert not model.module.training
    _, second = fit(model, max_epochs=2)
    assert second.dropped and not model.module.training
    assert_same(second.before[0], first.after[-1])
    assert_same(second.averages[0], first.averages[-1])
    assert len(model.history["train_loss"]) == 5


def test_training_starts_from_the_average_cell() -> None:
    adata = simulated_cells()
    model, recorder = fit(small_model(adata))
    total = adata.X[model.train_indices].sum(0) + 0.5
    frequencies = total / total.sum()
    np.testing.assert_allclose(recorder.before[0]["network.readout.bias"], np.log(frequencies), rtol=1e-4)


def test_the_loss_falls_and_what_is_logged_has_scvi_tools_names() -> None:
    scvi.settings.seed = 0
    model, _ = fit(max_epochs=12, check_val_every_n_epoch=3, plan_kwargs={"lr": 0.01})
    assert set(model.history) == {"train_loss", "validation_loss"}
    assert [len(model.history[name]) for name in ("train_loss", "validation_loss")] == [12, 4]
    assert model.history["train_loss"].iloc[-1].item() < model.history["train_loss"].iloc[0].item()


def test_all_cells_may_be_trained_on() -> None:
    model, _ = fit(train_size=1.0)
    assert set(model.history) == {"train_loss"}
    assert len(model.train_indices) == 100 and len(model.validation_indices) == 0


def test_held_out_cells_take_no_part() -> None:
    """Neither in the gradient nor in what the network starts from, nor in what is remembered."""
    split = [np.arange(0, 60), np.arange(60, 80), np.arange(80, 100)]
    results = []
    for changed in (False, True):
        adata = simulated_cells()
        if changed:
            adata.X[80:] = adata.X[80:][:, ::-1] * 3
        scvi.settings.seed = 0
        model = small_model(adata)
        fit(model, datasplitter_kwargs={"external_indexing": deepcopy(split)})
        results.append(weights(model.module))
        np.testing.assert_array_equal(np.sort(model.training_summary_["library"]), np.sort(adata.X[:80].sum(1)))
    assert_same(*results)


@pytest.mark.parametrize(
    ("arguments", "lr"),
    [({"plan_config": TrainingPlanConfig(lr=0.03)}, 0.03), ({"plan_kwargs": {"lr": 0.04}}, 0.04), ({}, 2e-3)],
)
def test_settings_reach_the_plan(arguments: dict[str, Any], lr: float) -> None:
    model, _ = fit(max_epochs=1, **arguments)
    plan = model.trainer.lightning_module
    assert plan.config == TrainingPlanConfig(lr=lr, drawn_share=0)
    assert plan.n_obs_training == 90 and plan.n_obs_validation == 10


def test_a_number_of_steps_ends_training() -> None:
    model, recorder = fit(max_epochs=100, max_steps=7)
    assert len(recorder.rates) == model.trainer.global_step == 7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": -0.1}, "`lr` is -0.1: pass a number of at least 0"),
        ({"lr": "high"}, "`lr` is 'high'"),
        ({"lr": np.inf}, "`lr` is inf: pass a finite number"),
        ({"max_grad_norm": np.nan}, "`max_grad_norm` is nan"),
        ({"ema_decay": 1.0}, r"`ema_decay` is 1.0: pass a number in \[0, 1\)"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingPlanConfig(**settings)
