"""Shares that a trained model imputes of a modality with many or shallow columns: RNA from protein."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scvi
from mudata_cells import mosaic, paired
from small_cells import QUIET, SMALL

from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_summary import training_summary

OPTIONS: dict[str, Any] = {"n_steps": 1, "expected": True, "silent": True}
LABEL = "sort_of_cell"


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    """Hardly trained, so that labels are shrunk; not to be changed."""
    mdata = mosaic(240)
    TokenDiffusion.setup_mudata(mdata, labels_key=LABEL)
    scvi.settings.seed = 0
    trained = TokenDiffusion(mdata, **SMALL)
    trained.train(max_epochs=2, batch_size=40, **QUIET)
    return trained


def without_calibration(model: TokenDiffusion, folder: Path) -> TokenDiffusion:
    """The model as files of earlier versions hold it."""
    model.save(folder)
    loaded = TokenDiffusion.load(folder, False, accelerator="cpu")
    loaded.training_summary_ = {name: part for name, part in loaded.training_summary_.items() if name != "shares"}
    return loaded


def error(model: TokenDiffusion) -> float:
    """Mean total variation, over labels, of imputed shares of new cells from those measured."""
    cells = paired(300, seed=7)
    expected = model.generate_modality(cells, "prot", "rna", **OPTIONS)["rna"].layers["expected"]
    measured, errors = cells["rna"].X.toarray(), []
    for kind in "ab":
        rows = (cells.obs[LABEL] == kind).to_numpy()
        sums = expected[rows].sum(0), measured[rows].sum(0)
        errors.append(np.abs(sums[0] / sums[0].sum() - sums[1] / sums[1].sum()).sum() / 2)
    return float(np.mean(errors))


def test_imputed_means_of_labels_are_those_of_cells(model: TokenDiffusion, tmp_path: Path) -> None:
    calibrated, network = error(model), error(without_calibration(model, tmp_path / "model"))
    assert calibrated < 0.5 * network


def test_saved_models_calibrate_alike(model: TokenDiffusion, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", False, accelerator="cpu")
    assert error(loaded) == error(model)


def test_without_labels_there_is_one_calibration() -> None:
    mdata = mosaic(120)
    TokenDiffusion.setup_mudata(mdata)
    trained = TokenDiffusion(mdata, **SMALL)
    trained.train(max_epochs=1, batch_size=40, **QUIET)
    calibration = training_summary(trained).shares["prot",]["rna"]
    assert calibration.log_ratios.shape == (1, mdata["rna"].n_vars) and calibration.slopes.tolist() == [1]
