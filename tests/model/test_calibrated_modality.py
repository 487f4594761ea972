"""Shares that a trained model imputes of a modality with many or shallow columns: RNA from protein."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mudata_cells import mosaic, paired
from small_cells import trained_model

from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_summary import training_summary

OPTIONS: dict[str, Any] = {"n_steps": 1, "expected": True, "silent": True}
LABEL = "sort_of_cell"


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    """Hardly trained, so that labels are shrunk; not to be changed."""
    return trained_model(mosaic(240), 2, 40, labels_key=LABEL)


def saved_and_loaded(model: TokenDiffusion, folder: Path) -> TokenDiffusion:
    model.save(folder, overwrite=True)
    return TokenDiffusion.load(folder, False, accelerator="cpu")


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
    loaded, network = saved_and_loaded(model, tmp_path / "model"), saved_and_loaded(model, tmp_path / "model")
    network.training_summary_ = network.training_summary_ | {"shares": {}}  # without calibration
    assert error(loaded) == error(model) < 0.5 * error(network)


def test_without_labels_there_is_one_calibration() -> None:
    model = trained_model(mosaic(120), 1, 40)
    calibration = training_summary(model).shares["prot",]["rna"]
    assert calibration.log_ratios.shape == (1, model.adata["rna"].n_vars) and calibration.slopes.tolist() == [1]
