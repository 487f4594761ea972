"""Neither stream holds anything but progress bars, which tests disable, and our own warnings."""

import warnings
from pathlib import Path

import pytest
from mudata_cells import paired
from small_cells import simulated_cells

from scdiffgen.model import TokenDiffusion, _training_runs

SIZES = {"n_tokens": 2, "token_dim": 8, "n_layers": 1}


@pytest.mark.parametrize("several", [False, True], ids=["AnnData", "MuData"])
def test_a_usual_session_prints_nothing(several: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cells, other = (paired(120), paired(40, seed=2)) if several else (simulated_cells(120), simulated_cells(40, seed=2))
    register = TokenDiffusion.setup_mudata if several else TokenDiffusion.setup_anndata
    label = "sort_of_cell" if several else "cell_type"
    capfd.readouterr()
    with warnings.catch_warnings(record=True) as caught:
        for category in (UserWarning, FutureWarning):
            warnings.simplefilter("always", category)
        register(cells, labels_key=label)
        model = TokenDiffusion(cells, **SIZES)
        model.train(max_epochs=2, accelerator="cpu")
        generated = model.generate(n_cells=600, n_steps=2)
        model.get_token_activation(generated)
        model.get_token_activation(other)
        model.write_back(cells, n_steps=2)
        model.save(tmp_path / "model", save_anndata=True)
        loaded = TokenDiffusion.load(tmp_path / "model", accelerator="cpu")
        loaded.predict_perturbation(None, {label: "b"}, indices=range(20), n_steps=2)
    assert [str(warning.message) for warning in caught] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shown", [True, False])
def test_steps_before_and_after_the_epochs_have_bars(shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[tuple[str, bool]] = []
    monkeypatch.setattr(_training_runs, "track", lambda steps, name, disable: bars.append((name, disable)) or steps)
    cells = simulated_cells(60)
    TokenDiffusion.setup_anndata(cells)
    TokenDiffusion(cells, **SIZES).train(max_epochs=1, accelerator="cpu", enable_progress_bar=shown)
    assert bars == [("Initialising", not shown), ("Summarising", not shown)]
