"""The first epochs of few cells: drawn from a Gaussian copula, until measured cells take over."""

from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from mudata_cells import paired
from small_cells import QUIET, SMALL, simulated_cells, simulated_shares, small_model, trained_model

from scdiffgen.model import TokenDiffusion
from scdiffgen.model._cells import Cells
from scdiffgen.model._training_runs import may_draw
from scdiffgen.train import TrainingPlanConfig
from scdiffgen.train._block_loader import DrawnFirstLoader


class Batches(Callback):
    """Notes the counts of every epoch, in the order of their sums."""

    def __init__(self) -> None:
        self.epochs: list[list[np.ndarray]] = []

    def on_train_epoch_start(self, trainer: Trainer, plan: LightningModule) -> None:
        self.epochs.append([])

    def on_train_batch_start(self, trainer: Trainer, plan: LightningModule, batch: Any, batch_idx: int) -> None:
        self.epochs[-1].append(batch["X"].to_dense().numpy())

    def rows(self, epoch: int) -> set[tuple[float, ...]]:
        return {tuple(row) for row in np.concatenate(self.epochs[epoch])}


def test_the_first_half_of_the_epochs_trains_on_drawn_cells() -> None:
    model, seen = small_model(simulated_cells(600)), Batches()
    model.train(max_epochs=6, batch_size=64, callbacks=[seen], **QUIET)
    measured = {tuple(row) for row in model.adata.X}
    known = [len(seen.rows(epoch) & measured) / len(seen.rows(epoch)) for epoch in range(6)]
    assert max(known[:3]) < 0.05
    assert known[3:] == [1.0] * 3
    assert sum(map(len, seen.epochs[0])) == 540


def test_cells_of_few_molecules_are_never_drawn_empty() -> None:
    adata = simulated_cells(600)
    rng = np.random.default_rng(0)
    adata.X = rng.multivariate_hypergeometric(np.ones(adata.n_vars, dtype=int), 1, size=adata.n_obs).astype(np.float32)
    model, seen = small_model(adata), Batches()
    model.train(max_epochs=2, callbacks=[seen], **QUIET)
    library = np.concatenate(seen.epochs[0]).sum(1)
    assert library.min() == 1 and (library > 1).any()  # some measured, some drawn with more molecules
    assert model.generate(n_cells=20, silent=True).X.sum(1).min() >= 1


@pytest.mark.parametrize(("share", "n_drawn"), [(0, 0), (0.25, 1), (0.75, 3)])
def test_the_share_of_drawn_epochs_is_a_setting_of_the_plan(share: float, n_drawn: int) -> None:
    model, seen = small_model(simulated_cells(600)), Batches()
    model.train(max_epochs=4, callbacks=[seen], plan_kwargs={"drawn_share": share}, **QUIET)
    measured = {tuple(row) for row in model.adata.X}
    assert [seen.rows(epoch) <= measured for epoch in range(4)] == [False] * n_drawn + [True] * (4 - n_drawn)


def test_drawn_cells_have_the_means_and_library_sizes_of_their_label() -> None:
    adata = simulated_cells(600)
    model = small_model(adata)
    model.train(max_epochs=1, plan_kwargs={"drawn_share": 0}, **QUIET)
    copula = model.module.fit_copula(Cells(model))
    torch.manual_seed(0)
    drawn = np.concatenate(
        [model.module.draw_anew(batch, copula)["X"].to_dense().numpy() for batch in Cells(model).loader]
    )
    library = adata.X.sum(1)
    np.testing.assert_allclose(drawn.sum(1).mean(), library.mean(), rtol=0.03)
    assert np.corrcoef(drawn.sum(1), library)[0, 1] > 0.8
    for label, shares in zip("ab", simulated_shares(), strict=True):
        own = drawn[(adata.obs["cell_type"] == label).to_numpy()].sum(0)
        np.testing.assert_allclose(own / own.sum(), shares, atol=0.01)
    assert not (drawn == adata.X).all(1).any()


def test_a_default_training_of_few_cells_has_as_many_drawn_epochs_as_measured_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    epochs = []
    for share in (0.0, 0.5):
        model = small_model(simulated_cells(600))
        stop = _StopAtOnce()
        model.train(callbacks=[stop], plan_kwargs={"drawn_share": share}, **QUIET)
        epochs.append(stop.max_epochs)
    assert epochs[1] == 2 * epochs[0]


class _StopAtOnce(Callback):
    max_epochs = 0

    def on_train_start(self, trainer: Trainer, plan: LightningModule) -> None:
        self.max_epochs = int(trainer.max_epochs or 0)

    def on_train_epoch_end(self, trainer: Trainer, plan: LightningModule) -> None:
        trainer.should_stop = True


def test_other_numbers_of_cells_trained_models_and_other_processes_learn_measured_cells_only() -> None:
    model = small_model()
    assert [may_draw(model, n_train, None) for n_train in (499, 500, 2_500, 2_501)] == [False, True, True, False]
    gaussian = TokenDiffusion(model.adata, **SMALL, process="gaussian")
    assert not may_draw(gaussian, 1_000, None)
    model.train(max_epochs=1, **QUIET)
    assert not may_draw(model, 1_000, None)


def test_several_modalities_learn_measured_cells_only() -> None:
    assert not may_draw(trained_model(paired()), 1_000, None)


def test_draws_take_turns_and_are_made_once() -> None:
    made: list[int] = []

    def draw(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        made.append(len(made))
        return {"X": batch["X"] + 100 * len(made)}

    is_drawing = [True]
    loader = DrawnFirstLoader(
        [{"X": torch.tensor([0])}, {"X": torch.tensor([1])}], draw, lambda: is_drawing[0], n_draws=2
    )
    assert len(loader) == 2
    epochs = [sorted(int(batch["X"]) for batch in loader) for _ in range(4)]
    assert epochs[0] == [100, 201]
    assert epochs[1] == [300, 401]
    assert sorted(epochs[2:]) == sorted(epochs[:2])
    assert len(made) == 4
    is_drawing[0] = False
    assert [int(batch["X"]) for batch in loader] == [0, 1]


@pytest.mark.parametrize("share", [1, 1.5, -0.1, "half"])
def test_a_share_that_leaves_no_measured_epoch_is_an_error(share: Any) -> None:
    with pytest.raises(ValueError, match="`drawn_share` is"):
        TrainingPlanConfig(drawn_share=share)
