"""Drawn conditions in ``.obs``: what the network was given, as it was registered, and marked by name."""

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from anndata import AnnData
from mudata_cells import paired
from small_cells import SMALL, simulated_cells, trained_model

from scdiffgen.data import decode_conditions, encode_conditions, registered_conditions
from scdiffgen.model import TokenDiffusion

FAST = {"n_steps": 2, "silent": True}
SETUPS: dict[str, dict] = {
    "one column": {"perturbation_key": "guide", "dose_key": "dose", "control": "ctrl"},
    "two columns": {"perturbation_key": ["guide", "drug"], "dose_key": ["dose", "drug_dose"], "control": "ctrl"},
    "two columns, no doses": {"perturbation_key": ["guide", "drug"], "control": "ctrl"},
    "a hierarchy": {"hierarchy_keys": ["organ", "tissue"], "labels_key": "cell_type"},
    "numbers": {"batch_key": "lane", "continuous_covariate_keys": ["age"], "categorical_covariate_keys": ["smoker"]},
}


def cells() -> AnnData:
    adata = simulated_cells(60, n_genes=12)
    adata.obs = adata.obs.assign(
        guide=np.resize(["ctrl", "B", "A"], 60),
        dose=np.resize([0.0, 0.1, 2.0], 60),
        drug=np.resize(["ctrl", "ctrl", "X"], 60),
        drug_dose=np.resize([0.0, 0.0, 0.3], 60),
        organ=np.resize(["blood", "lung"], 60),
        tissue=np.resize(["vein", "lobe", None, "lobe"], 60),
        lane=np.resize([0, 1], 60),
        smoker=np.resize([True, False, False], 60),
    )
    return adata


@pytest.mark.parametrize("setup", list(SETUPS))
def test_decoded_conditions_are_the_registered_columns(setup: str) -> None:
    """Coded again, they are what the cells have."""
    adata = cells()
    TokenDiffusion.setup_anndata(adata, **SETUPS[setup])
    manager = TokenDiffusion(adata, **SMALL).adata_manager
    known = registered_conditions(manager)
    decoded = decode_conditions(manager, known, pd.DataFrame()).set_axis(adata.obs_names)
    for name, values in decoded.items():
        expected = adata.obs[name]
        assert ((values == expected) | (values.isna() & expected.isna())).all(), name
    again = encode_conditions(manager, decoded)
    for name, condition in known.items():
        for before, after in zip(condition, again[name], strict=True):
            np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("setup", list(SETUPS))
def test_drawn_cells_can_be_requested_again_and_concatenated(setup: str) -> None:
    adata = cells()
    model = trained_model(adata, **SETUPS[setup])
    drawn = model.generate(n_cells=20, **FAST)
    again = model.generate(drawn.obs, **FAST)
    columns = [*drawn.obs.loc[:, :"unseen_in_training"]][:-1]
    for name in columns:  # a leaf that no cell had at its place is drawn again
        one, other = (made.obs[name][drawn.obs[name].notna()].tolist() for made in (drawn, again))
        assert one == other
    assert set(drawn.obs["drawn_conditions"].iloc[0].split(", ")) <= set(columns)
    assert set(again.obs["drawn_conditions"]) <= {"", "tissue"}
    both = sc.concat({"real": adata, "generated": drawn}, label="source", index_unique="-")
    assert set(columns) <= set(both.obs)


def test_numbers_that_stay_missing_are_nan_and_not_marked(small: TokenDiffusion) -> None:
    obs = small.generate({"cell_type": "a", "age": 40}, 5, **FAST).obs
    assert obs["batch"].isna().all() and (obs["drawn_conditions"] == "").all()


def test_of_modalities() -> None:
    mdata = paired(40)
    mdata.obs["batch"] = np.resize(["x", "y"], 40)
    model = trained_model(mdata, batch_key="batch")
    made = model.generate(n_cells=12, **FAST)
    assert set(made.obs["batch"]) == {"x", "y"} and (made.obs["drawn_conditions"] == "batch").all()
