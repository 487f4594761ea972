"""Numbers far out of the usual: drawn from soundly, or refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import read_h5ad
from mudata_cells import paired
from small_cells import QUIET, SMALL, simulated_cells, small_model, trained_model

from scdiffgen.diffusion import UrnPrediction
from scdiffgen.model import TokenDiffusion

pytestmark = pytest.mark.filterwarnings("ignore")

FAR = [0.0, 1e2, 1e3, 1e6]


@pytest.fixture(scope="module")
def joint() -> TokenDiffusion:
    mdata = paired()
    model = trained_model(mdata, labels_key="sort_of_cell")
    return model


@pytest.fixture(scope="module", params=["thinning", "gaussian", "latent"])
def processed(request: pytest.FixtureRequest) -> TokenDiffusion:
    plain = small_model()
    model = TokenDiffusion(plain.adata, process=request.param, **SMALL)
    model.train(3, **QUIET)
    return model


@pytest.mark.parametrize("scale", FAR)
def test_any_guidance_draws_whole_cells(scale: float, processed: TokenDiffusion, tmp_path: Any) -> None:
    made = processed.generate({"cell_type": "a"}, 3, library_size=50, guidance_scale=scale, n_steps=3).X
    assert (made.data >= 0).all() and made.shape == (3, 20)
    if processed.module.process_name == "thinning":
        np.testing.assert_array_equal(made.toarray().sum(1), 50)


@pytest.mark.parametrize("scale", FAR)
def test_any_factor_of_an_effect_draws_whole_cells(scale: float, tiny: TokenDiffusion) -> None:
    asked = {"cell_type": "a", "guide": "A", "dose": 0.5}
    for guidance in (scale, {"guide": scale}):
        made = tiny.generate(asked, 3, library_size=50, guidance_scale=guidance, n_steps=3).X
        np.testing.assert_array_equal(made.toarray().sum(1), 50)


@pytest.mark.parametrize("scale", FAR)
def test_any_guidance_draws_all_modalities(scale: float, joint: TokenDiffusion) -> None:
    sizes = dict.fromkeys(joint.adata.mod, 50)
    made = joint.generate({"sort_of_cell": "a"}, 3, library_size=sizes, guidance_scale=scale, n_steps=3)
    for part in made.mod.values():
        np.testing.assert_array_equal(part.X.toarray().sum(1), 50)


@pytest.mark.parametrize(
    ("each", "shift"), [(False, -1e4), (False, -200.0), (False, 200.0), (False, 1e4), (True, 200.0), (True, 1e4)]
)
def test_shares_do_not_depend_on_the_size_of_the_rates(each: bool, shift: float) -> None:
    """Against the softmax: where rates are far beyond the weights of the urn, or there are none."""
    logs = torch.tensor([[0.0, 1.0, 2.0]])
    weights = torch.zeros(1, 3) if each else torch.zeros(3)
    urn = UrnPrediction(logs + shift, weights)
    state, generator = torch.zeros(1, 3), torch.Generator().manual_seed(0)
    torch.testing.assert_close(urn.log_prob(state), logs.log_softmax(1), atol=1e-3, rtol=0)
    drawn = urn.draw(urn.rates_at(state), torch.tensor([100_000]), generator)
    shares = torch.bincount(drawn, minlength=3) / 100_000
    torch.testing.assert_close(shares[None], logs.softmax(1), atol=0.02, rtol=0)


@pytest.mark.parametrize("factor", [4e4, 1e9, 1e300])
def test_no_cell_is_deepened_beyond_what_is_counted_exactly(factor: float, tiny: TokenDiffusion) -> None:
    factor = max(factor, 1.01 * 2**24 / tiny.adata.X.sum(1).max())
    with pytest.raises(ValueError, match=r"`factor` is .*at most 16,777,216"):
        tiny.deepen(factor=factor, silent=True)


SPELLINGS = [
    ({"guide": " A ", "dose": 0.5}, "guide", "A"),
    ({"age": "40"}, "age", 40.0),
    ({"age": "-0"}, "age", 0.0),
    ({"guide": "A", "dose": "2"}, "dose", 2.0),
    ({"guide": "A", "dose": "1e0"}, "dose", 1.0),
    ({"guide": "A", "dose": "２"}, "dose", 2.0),
    ({"guide": "A", "dose": {"A": "2"}}, "dose", 2.0),
    ({"guide": "ctrl", "dose": "-0"}, "dose", 0.0),
    (pd.DataFrame({"age": ["40", None]}), "age", 40.0),
]


@pytest.mark.parametrize(("asked", "name", "written"), SPELLINGS)
def test_conditions_of_generated_cells_are_written_as_those_of_real_ones(
    asked: Any, name: str, written: Any, tiny: TokenDiffusion
) -> None:
    made = tiny.generate(asked, None if isinstance(asked, pd.DataFrame) else 1, n_steps=2).obs
    assert made[name].iloc[0] == written and str(made[name].iloc[0]) != "-0.0"
    assert pd.api.types.is_numeric_dtype(made[name]) == pd.api.types.is_numeric_dtype(tiny.adata.obs[name])


@pytest.mark.parametrize("through_file", [False, True])
def test_categories_of_generated_cells_are_those_of_real_ones(through_file: bool, tmp_path: Path) -> None:
    adata = simulated_cells(40)
    stages = pd.CategoricalDtype(["late", "early"], ordered=True)
    adata.obs["stage"] = adata.obs["cell_type"].map({"a": "early", "b": "late"}).astype(stages)
    adata.obs["site"] = pd.Categorical(np.resize(["z", "a", "m"], 40), categories=["z", "a", "m"])
    model = small_model(adata, labels_key="stage", categorical_covariate_keys=["site"])
    model.train(1, **QUIET)
    if through_file:
        model.save(tmp_path / "model")
        model = TokenDiffusion.load(tmp_path / "model", adata, accelerator="cpu")
    made = model.generate(pd.DataFrame({"stage": ["early", "late"], "site": ["m", "z"]}), 2, n_steps=2)
    for name in ("stage", "site"):
        assert made.obs[name].dtype == adata.obs[name].dtype
    assert made.obs["stage"].max() == "early" and made.obs["stage"].tolist() == ["early"] * 2 + ["late"] * 2
    made.write_h5ad(tmp_path / "made.h5ad")
    assert read_h5ad(tmp_path / "made.h5ad").obs["stage"].dtype == stages
