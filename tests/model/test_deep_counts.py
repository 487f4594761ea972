"""One high-count modality alone, such as protein tags in an AnnData: the strength of the prior is limited."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from small_cells import simulated_cells, trained_model

from scdiffgen.model import TokenDiffusion

SHARES = np.array([[0.5, 0.01, 0.4, 0.08, 0.01], [0.01, 0.5, 0.08, 0.4, 0.01]])


def tags(n_cells: int = 400) -> AnnData:
    """Cells of two types with 2,000 tags of five proteins, gamma-distributed round background or foreground."""
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, n_cells)
    counts = random.poisson(2_000 * SHARES[kind] * random.gamma(20, 1 / 20, (n_cells, 5)))
    obs = pd.DataFrame({"cell_type": np.array(["a", "b"])[kind]}, index=[f"cell{i}" for i in range(n_cells)])
    return AnnData(counts.astype(np.float32), obs=obs, var=pd.DataFrame(index=[f"tag{i}" for i in range(5)]))


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    """Not to be changed."""
    return trained_model(tags(), 20, 50, plan_kwargs={"lr": 5e-3}, labels_key="cell_type")


def test_spread_within_types_is_that_of_the_truth(model: TokenDiffusion) -> None:
    real = tags()
    cells = model.generate(real.obs[["cell_type"]].reset_index(drop=True), n_steps=16, seed=0, silent=True)
    for kind in "ab":
        found, truth = (np.log1p(each[each.obs["cell_type"] == kind].to_df().to_numpy()) for each in (cells, real))
        ratio = found.std(0) / truth.std(0)
        assert (ratio > 0.7).all() and (ratio < 2).all()  # background varied 2 to 4 times too much without the limit


def test_only_deep_counts_are_limited(model: TokenDiffusion) -> None:
    assert all(denoiser.limit.limited.all() for denoiser in model.module.denoisers)
    assert not trained_model(simulated_cells(60), labels_key="cell_type").module.denoiser.limit.limited.any()


def test_contributions_add_up(model: TokenDiffusion) -> None:
    """Tokens and the constant make the prior, which the limit only weighs."""
    found = model.get_token_contributions(indices=range(3), gene_list=["tag0", "tag3"], silent=True)
    terms = sum(found.layers[term] for term in found.uns["terms"])
    np.testing.assert_allclose(found.X, found.var["baseline"].to_numpy() + terms, atol=1e-4)


def test_a_loaded_model_is_limited_too(model: TokenDiffusion, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", False, accelerator="cpu")
    cells = [each.generate(n_cells=5, n_steps=4, seed=2, silent=True).X for each in (model, loaded)]
    assert (cells[0] != cells[1]).nnz == 0
