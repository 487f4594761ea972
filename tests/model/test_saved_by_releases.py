"""Models that earlier releases saved load, and give the results that they gave there."""

import json
from pathlib import Path

import numpy as np
import pytest
from saved_model import FOLDERS, RESULTS, results_of

from scdiffgen.model import TokenDiffusion

SAVED = sorted(FOLDERS.glob("saved_by_*"))


def test_there_is_a_small_model_of_the_first_release() -> None:
    assert FOLDERS / "saved_by_0.1.0" in SAVED
    assert all(sum(file.stat().st_size for file in folder.iterdir()) < 200_000 for folder in SAVED)


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: folder.name)
def test_a_saved_model_gives_the_results_of_its_release(folder: Path) -> None:
    model = TokenDiffusion.load(folder, adata=False, accelerator="cpu")
    assert f"saved_by_{model.saved_with_}" == folder.name
    found, expected = results_of(model), json.loads((folder / RESULTS).read_text())
    assert found.keys() == expected.keys()
    for name, values in found.items():
        np.testing.assert_allclose(values, np.array(expected[name]), rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: folder.name)
def test_a_saved_model_generates_its_types_and_responses(folder: Path) -> None:
    model = TokenDiffusion.load(folder, adata=False, accelerator="cpu")
    asked = {"guide": "A", "dose": 2.0}
    for label, source in {"a": "own", "b": "transferred"}.items():
        made = model.generate({"cell_type": label, **asked}, n_cells=200, n_steps=8, silent=True)
        control = model.generate({"cell_type": label, "guide": "ctrl"}, n_cells=200, n_steps=8, silent=True)
        assert set(made.obs["response_source"]) == {source}
        assert np.corrcoef(made.X.mean(0).A1, control.X.mean(0).A1)[0, 1] > 0.9
