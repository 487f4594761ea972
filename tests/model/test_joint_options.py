"""Every form of the network on cells of several modalities, end to end: train, generate, save, load, the same cells."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scvi
from mudata import MuData
from mudata_cells import paired
from small_cells import QUIET, SMALL

from scdiffgen.model import NetworkOptions, TokenDiffusion

ASKED = {"sort_of_cell": "b", "guide": "A+B", "dose": "1.0+2.0", "age": 40.0}

# arguments of NetworkOptions, each form once; what is left out is the default, which is a case of its own
FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "expression, embedded": {"expression_embedding": "hybrid"},
    "conditioning, cross_attention": {"conditioning": "cross_attention"},
    "conditioning, concat": {"conditioning": "concat"},
    "positions, sinusoidal": {"positions": "sinusoidal"},
    "positions, none": {"positions": "none"},
    **{
        f"numbers, {kind}": {"number_embedding": kind, "level_embedding": kind}
        for kind in ("fourier", "direct", "learned", "rotary", "hybrid", "wavelet")
    },
    "attention, across": {"attention": "across"},
    "categories, hashed": {"vocabulary": "hashed"},
    "categories, coded": {"vocabulary": "coded"},
    "nested tokens": {"nested_tokens": True},
    "readout, penalised": {"orthogonality": 0.01},
    "sizes": {"dropout": 0.2, "readout_dim": 3, "n_heads": 2},
}


def cells() -> MuData:
    """48 cells with a label, a set of perturbations with doses, and a number."""
    mdata, row = paired(48), np.arange(48)
    mdata.obs["guide"] = np.resize(["ctrl", "A", "B", "A+B"], 48)
    mdata.obs["dose"] = np.resize(["0", "1.0", "2.0", "1.0+2.0"], 48)
    mdata.obs["age"] = 30.0 + row
    return mdata


ARGUMENTS: dict[str, dict[str, Any]] = {
    **{name: {"network": NetworkOptions(**form)} for name, form in FORMS.items()},
    **{
        f"rotated, {kind}": {
            "network": NetworkOptions(**form, attention_numbers="rotated"),
            "token_dim": 24,
        }
        for kind, form in {
            "cross_attention": {"conditioning": "cross_attention"},
            "concat": {"conditioning": "concat"},
        }.items()
    },
    "preset and dropout of conditions": {"preset": "small", "condition_dropout": 0.3},
}


@pytest.mark.parametrize("form", ARGUMENTS)
def test_it_trains_generates_and_is_the_same_after_loading(form: str, tmp_path: Path) -> None:
    mdata = cells()
    TokenDiffusion.setup_mudata(
        mdata,
        labels_key="sort_of_cell",
        perturbation_key="guide",
        dose_key="dose",
        control="ctrl",
        continuous_covariate_keys=["age"],
    )
    scvi.settings.seed = 0
    model = TokenDiffusion(mdata, **{**SMALL, **ARGUMENTS[form]})
    model.train(max_epochs=1, batch_size=16, **QUIET)
    assert np.isfinite(model.history["validation_loss"].to_numpy(float)).all()
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", cells(), accelerator="cpu")
    made, again = (each.generate(ASKED, n_cells=5, n_steps=3, seed=1, silent=True) for each in (model, loaded))
    for name, n_columns in (("rna", 12), ("prot", 5)):
        assert made[name].shape == (5, n_columns) and (made[name].X.sum(1) > 0).all()
        assert (made[name].X != again[name].X).nnz == 0
