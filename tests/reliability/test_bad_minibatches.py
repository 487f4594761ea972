"""Counts and codes of every minibatch are checked, in validation and in later passes as well."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from anndata import AnnData
from lightning.pytorch import Callback, LightningDataModule
from small_cells import QUIET, SMALL, small_model
from torch import Tensor
from torch.utils.data import DataLoader
from treated_cells import SETUP, treated_cells

from scdiffgen.model import TokenDiffusion

Change = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class Passes(LightningDataModule):
    """One minibatch in training and one in validation; that of a pass is changed."""

    def __init__(self, tensors: dict[str, Tensor], change: Change, changed: str) -> None:
        super().__init__()
        self.tensors, self.change, self.changed, self.n_passes = tensors, change, changed, 0

    def _minibatch(self, name: str) -> dict[str, Tensor]:
        tensors = {key: tensor.clone() for key, tensor in self.tensors.items()}
        return self.change(tensors) if name == self.changed else tensors

    def train_dataloader(self) -> DataLoader:
        self.n_passes += 1
        return DataLoader([self._minibatch("training" if self.n_passes > 1 else "first pass")], batch_size=None)

    def val_dataloader(self) -> DataLoader:
        return DataLoader([self._minibatch("validation")], batch_size=None)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return self.change(dict(batch)) if self.changed == "device" else batch


@pytest.fixture(scope="module")
def registered() -> tuple[TokenDiffusion, dict[str, Tensor]]:
    """A model, and the tensors of its cells."""
    cells = treated_cells()
    TokenDiffusion.setup_anndata(cells, **SETUP)
    model = TokenDiffusion(cells, **SMALL)
    return model, next(iter(model._make_data_loader(cells, batch_size=cells.n_obs)))


def put(key: str, value: float, column: int = 0) -> Change:
    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors[key] = tensors[key].double() if key != "X" else tensors[key].clone()
        tensors[key][3, column] = value
        return tensors

    return change


def counts(of: Callable[[Tensor], Tensor]) -> Change:
    return lambda tensors: {**tensors, "X": of(tensors["X"])}


NO_COUNTS: dict[str, Change] = {
    "NaN": put("X", np.nan),
    "infinite": put("X", np.inf),
    "negative": put("X", -1),
    "fractions": put("X", 0.5),
    "too large": put("X", 2.0**25),
    "log-normalised": counts(torch.log1p),
    "empty": counts(lambda x: x * (torch.arange(len(x)) != 3)[:, None]),
}
NO_CODES = {
    f"{value} in {key}": put(key, value)
    for key, values in {
        "labels": (-1, np.nan, 0.7, 2),
        "batch": (-5,),
        "perturbation": (-3, 0.5, np.nan),
        "extra_continuous_covs": (np.inf,),
    }.items()
    for value in values
}


@pytest.mark.parametrize("where", ["first pass", "training", "validation", "device"])
@pytest.mark.parametrize("what", [*NO_COUNTS, *NO_CODES])
def test_every_minibatch_of_a_data_module_is_checked(
    what: str, where: str, registered: tuple[TokenDiffusion, dict[str, Tensor]]
) -> None:
    model = TokenDiffusion(registry=registered[0].registry, **SMALL)
    cells = Passes(registered[1], {**NO_COUNTS, **NO_CODES}[what], where)
    expected = "(?i)minibatch.*(does not hold molecule counts|without a molecule|the code|infinite numbers)"
    with pytest.raises(ValueError, match=expected):
        model.train(2, datamodule=cells, check_val_every_n_epoch=1, **QUIET)
    assert not model.is_trained_


@pytest.mark.parametrize("process", ["gaussian", "latent"])
def test_cells_of_processes_that_cache_codes_are_checked(
    process: str, registered: tuple[TokenDiffusion, dict[str, Tensor]]
) -> None:
    model = TokenDiffusion(registry=registered[0].registry, process=process, **SMALL)
    with pytest.raises(ValueError, match="minibatch does not hold molecule counts"):
        model.train(4, datamodule=Passes(registered[1], put("X", np.nan), "validation"), **QUIET)


class Spoil(Callback):
    """Changes counts of the cells in training."""

    def __init__(self, cells: AnnData, value: float) -> None:
        self.cells, self.value = cells, value

    def on_train_epoch_end(self, *_: Any) -> None:
        self.cells.X[:, 5] = self.value


@pytest.mark.parametrize("value", [np.nan, -1, 0.5])
@pytest.mark.parametrize("train_size", [0.1, 1.0])
def test_counts_that_change_in_training_are_named(train_size: float, value: float, cells: AnnData) -> None:
    model = small_model(cells)
    with pytest.raises(ValueError, match=r"`adata.X` .*in cell 'cell0', gene 'gene5'"):
        model.train(
            3, train_size=train_size, callbacks=[Spoil(cells, value)], check_val_every_n_epoch=1, batch_size=8, **QUIET
        )
    assert not model.is_trained_
