"""Training in stages: one after the other in one run, the second without the counts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scvi
import torch
from lightning.pytorch.callbacks import LambdaCallback
from small_cells import QUIET, SMALL, simulated_cells
from torch import Tensor

from scdiffgen.model import LatentOptions, TokenDiffusion
from scdiffgen.train import DiffusionTrainingPlan
from scdiffgen.train._block_loader import StagedLoader
from scdiffgen.train._plan import stage_ends


def latent_model() -> TokenDiffusion:
    adata = simulated_cells()
    TokenDiffusion.setup_anndata(adata, labels_key="cell_type")
    scvi.settings.seed = 0
    options = LatentOptions(latent_dim=2, autoencoder_share=0.5)
    return TokenDiffusion(adata, process=options, **SMALL)


def weights(model: TokenDiffusion, part: str) -> dict[str, Tensor]:
    return {name: w.detach().clone() for name, w in model.module.named_parameters() if part in name}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("shares", "n_epochs", "expected"),
    [
        ((1.0,), 7, [7]),
        ((0.4, 0.6), 10, [4, 10]),
        ((0.0, 1.0), 10, [0, 10]),
        ((0.1, 0.9), 2, [1, 2]),
        ((0.9, 0.1), 2, [1, 2]),
    ],
)
def test_stages_end_by_their_shares(shares: tuple[float, ...], n_epochs: int, expected: list[int]) -> None:
    assert stage_ends(shares, n_epochs) == expected


def test_what_is_cached_is_handed_out_whole_in_a_new_order() -> None:
    batches = [{"X": torch.arange(10.0)[rows, None]} for rows in torch.arange(10).split(4)]
    loader = StagedLoader(batches, shuffle=True)
    assert [len(batch["X"]) for batch in loader] == [4, 4, 2]
    loader.cache(lambda batch: {"half": batch["X"] / 2})
    orders = [torch.cat([batch["half"] for batch in loader]).flatten() for _ in range(2)]
    assert len(list(loader)) == 3 and not torch.equal(*orders)
    for order in orders:
        torch.testing.assert_close(order.sort().values, torch.arange(10) / 2)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, bool]]:
    """Learning rate of every step that is made, and whether it saw counts."""
    made: list[tuple[float, bool]] = []
    step = DiffusionTrainingPlan.training_step

    def training_step(plan: DiffusionTrainingPlan, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        made.append((plan.trainer.optimizers[0].param_groups[0]["lr"], "X" in batch))
        return step(plan, batch, batch_idx)

    monkeypatch.setattr(DiffusionTrainingPlan, "training_step", training_step)
    return made


def test_one_run_trains_both_stages_and_further_ones_the_second_alone(steps: list, tmp_path: Path) -> None:
    model = latent_model()
    model.train(max_epochs=6, batch_size=30, check_val_every_n_epoch=1, **QUIET)
    rates, saw_counts = zip(*steps, strict=True)
    assert saw_counts == (True,) * 9 + (False,) * 9
    np.testing.assert_allclose(rates[:9], rates[9:])  # each stage warms up and decays
    assert len(model.history["train_loss"]) == len(model.history["validation_loss"]) == 6
    model.save(tmp_path / "model")
    for again in (model, TokenDiffusion.load(tmp_path / "model", adata=model.adata, accelerator="cpu")):
        before = weights(again, "autoencoder"), weights(again, "denoiser.network")
        steps.clear()
        again.train(max_epochs=3, batch_size=30, check_val_every_n_epoch=1, **QUIET)
        assert not any(saw for _, saw in steps[3 if again is model else 0 :])
        assert len(again.history["train_loss"]) == len(again.history["validation_loss"]) == 9
        assert same(before[0], weights(again, "autoencoder"))
        assert not same(before[1], weights(again, "denoiser.network"))


def test_two_stages_need_two_epochs() -> None:
    with pytest.raises(ValueError, match="`max_epochs` is 1, but training has 2 stages"):
        latent_model().train(max_epochs=1, **QUIET)


def test_an_interruption_before_the_last_stage_leaves_no_trained_model() -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    model = latent_model()
    with pytest.raises(KeyboardInterrupt):
        model.train(max_epochs=4, callbacks=[LambdaCallback(on_train_epoch_end=interrupt)], **QUIET)
    assert not model.is_trained_
