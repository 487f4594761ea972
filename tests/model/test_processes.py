"""What users call is the same for every process, and a process of one's own takes a file and a line in the registry."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anndata import AnnData
from small_cells import simulated_cells, simulated_shares, trained_model
from toy_process import MultinomialModule

from scdiffgen.model import LatentOptions, NetworkOptions, TokenDiffusion
from scdiffgen.module import PROCESSES

PLAN = {"lr": 0.01, "ema_decay": 0.95}


@pytest.fixture(scope="module")
def adata() -> AnnData:
    return simulated_cells(120)


@pytest.fixture(scope="module")
def model(adata: AnnData) -> Iterator[TokenDiffusion]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROCESSES, MultinomialModule.process_name, MultinomialModule)
        plan = {"lr": 0.02, "ema_decay": 0.9}
        yield trained_model(adata, 60, process="multinomial", plan_kwargs=plan, labels_key="cell_type")


def shares(cells: AnnData) -> np.ndarray:
    return np.asarray(cells.X.sum(0)).ravel() / cells.X.sum()


def test_a_process_of_ones_own_does_all_that_users_call(model: TokenDiffusion, adata: AnnData) -> None:
    of_a, of_b = simulated_shares()
    assert len(model.history["train_loss"]) == 60
    generated = model.generate({"cell_type": "b"}, n_cells=200, library_size=500, seed=0)
    np.testing.assert_allclose(shares(generated), of_b, atol=0.02)
    apart = np.abs(of_b - of_a).sum()
    guided = model.generate({"cell_type": "b"}, n_cells=200, library_size=500, guidance_scale=2.0, seed=0)
    assert np.abs(shares(guided) - of_a).sum() > 1.2 * apart
    turned = model.predict_perturbation(adata, {"cell_type": "b"}, indices=adata.obs["cell_type"] == "a", seed=0)
    np.testing.assert_allclose(shares(turned), of_b, atol=0.02)
    np.testing.assert_array_equal(turned.X.sum(1).A1, adata[turned.obs_names].X.sum(1))
    loadings = model.get_token_loadings(method="readout")["token_1"]  # up and down from the one type to the other
    assert abs(np.corrcoef(loadings, np.log(of_b / of_a))[0, 1]) > 0.95
    model.write_back(adata, seed=0)
    assert adata.obsm["X_generated"].shape == adata.shape


@pytest.mark.parametrize("call", ["get_nll", "deepen"])
def test_what_a_process_cannot_do_is_said(model: TokenDiffusion, call: str) -> None:
    with pytest.raises(ValueError, match=f"`{call}` needs the thinning .* is 'multinomial': .* `process='thinning'`"):
        getattr(model, call)()


@pytest.fixture(scope="module")
def gaussian() -> TokenDiffusion:
    cells = simulated_cells(200)
    cells.obs["guide"] = np.where(np.arange(200) % 2, "ctrl", "A")
    cells.X[::2, 0] += 25  # what A does, to both types
    conditions = {"labels_key": "cell_type", "perturbation_key": "guide", "control": "ctrl"}
    return trained_model(cells, 80, 50, process="gaussian", plan_kwargs=PLAN, **conditions)


def test_gaussian_diffusion_learns_types_and_treatments(gaussian: TokenDiffusion) -> None:
    def log_shares(**conditions: str) -> np.ndarray:
        cells = gaussian.generate(conditions, n_cells=200, library_size=500, n_steps=12, seed=0)
        return np.log(shares(cells) + 1e-3)

    of_a, of_b = np.log(simulated_shares() + 1e-3)
    learned = log_shares(cell_type="b", guide="ctrl") - log_shares(cell_type="a", guide="ctrl")
    assert np.corrcoef(learned, of_b - of_a)[0, 1] > 0.9
    treated = gaussian.predict_perturbation(
        None, {"guide": "A"}, indices=gaussian.adata.obs["guide"] == "ctrl", keep=0.1, n_steps=12, seed=0
    )
    before = gaussian.adata[treated.obs_names].X[:, 0].mean()
    assert 12 < treated.X[:, 0].mean() - before < 40


def test_gaussian_diffusion_refuses_categories_without_a_group(gaussian: TokenDiffusion) -> None:
    cells = simulated_cells(20)
    cells.obs["cell_type"], cells.obs["guide"] = "new", "ctrl"
    with pytest.raises(ValueError, match="`load_query_data with new categories` needs the thinning process"):
        TokenDiffusion.load_query_data(cells, gaussian)


def test_gaussian_diffusion_has_tokens_and_expression(gaussian: TokenDiffusion) -> None:
    assert gaussian.get_token_loadings().shape == (20, 2)
    np.testing.assert_allclose(gaussian.get_token_activation().std(ddof=0), 1, atol=0.1)
    assert gaussian.get_latent_representation(indices=[0, 1]).shape == (2, 16)
    np.testing.assert_allclose(gaussian.get_normalized_expression(indices=[0]).sum(axis=1), 1, rtol=1e-5)


def test_settings_that_are_of_no_process_are_refused(adata: AnnData) -> None:
    TokenDiffusion.setup_anndata(adata, labels_key="cell_type")
    with pytest.raises(ValueError, match=r"choose one of .*, or pass `GaussianOptions\(...\)`"):
        TokenDiffusion(adata, process={"prediction": "x0"})


def test_latent_diffusion_learns_types_and_has_tokens() -> None:
    cells, options = simulated_cells(200), LatentOptions(latent_dim=2)
    model = trained_model(cells, 100, 50, process=options, plan_kwargs=PLAN, labels_key="cell_type")
    of_a, of_b = np.log(simulated_shares())
    drawn = [model.generate({"cell_type": name}, n_cells=200, library_size=500, n_steps=12, seed=0) for name in "ab"]
    learned = np.log(shares(drawn[1])) - np.log(shares(drawn[0]))
    assert np.corrcoef(learned, of_b - of_a)[0, 1] > 0.9
    turned = model.predict_perturbation(
        cells, {"cell_type": "b"}, indices=cells.obs["cell_type"] == "a", keep=0.05, n_steps=12, seed=0
    )
    assert np.corrcoef(np.log(shares(turned)) - of_a, of_b - of_a)[0, 1] > 0.9
    assert model.get_token_loadings().shape == (20, 2)
    assert model.get_latent_representation(indices=[0, 1]).shape == (2, 4)


@pytest.mark.parametrize(
    ("process", "options"),
    [
        ("gaussian", {"expression_embedding": "direct", "positions": "sinusoidal"}),
        ("thinning", {"expression_embedding": "rotary", "positions": "none"}),
        ("gaussian", {"conditioning": "cross_attention", "attention_numbers": "rotated"}),
    ],
    ids=str,
)
def test_every_form_of_the_network_trains_and_generates(process: str, options: dict[str, Any], tmp_path: Path) -> None:
    cells = simulated_cells(40)
    model = trained_model(cells, 1, 20, process=process, network=NetworkOptions(**options), labels_key="cell_type")
    drawn = model.generate({"cell_type": "a"}, n_cells=4, n_steps=3, seed=0).X.toarray()
    model.write_back(cells, n_steps=2)
    assert "token_loadings" in cells.varm
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", adata=False, accelerator="cpu")
    again = loaded.generate({"cell_type": "a"}, n_cells=4, n_steps=3, seed=0).X.toarray()
    np.testing.assert_array_equal(again, drawn)


def test_embedded_expression_has_no_weights_of_the_genes() -> None:
    network = NetworkOptions(expression_embedding="fourier")
    model = trained_model(simulated_cells(40), 1, 20, network=network, labels_key="cell_type")
    with pytest.raises(ValueError, match="embeds expression has no gene weights"):
        model.get_token_loadings(method="gradient")
