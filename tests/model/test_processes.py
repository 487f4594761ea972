"""What users call is the same for every process, and a process of one's own takes a file and a row of the table."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from anndata import AnnData
from masked_genes import MASKING
from small_cells import simulated_cells, simulated_shares, trained_model

from scdiffgen import tl
from scdiffgen.model import LatentOptions, NetworkOptions, TokenDiffusion
from scdiffgen.model._cells import Cells
from scdiffgen.model._token_mixin import TokenReader
from scdiffgen.module import PROCESSES

PLAN = {"lr": 0.01, "ema_decay": 0.95}


@pytest.fixture(scope="module")
def adata() -> AnnData:
    return simulated_cells(120)


@pytest.fixture(scope="module")
def model(adata: AnnData) -> Iterator[TokenDiffusion]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROCESSES, "masking", MASKING)
        plan = {"lr": 0.02, "ema_decay": 0.9}
        yield trained_model(adata, 60, process="masking", plan_kwargs=plan, labels_key="cell_type")


def shares(cells: AnnData) -> np.ndarray:
    return np.asarray(cells.X.sum(0)).ravel() / cells.X.sum()


def test_a_process_of_ones_own_does_all_that_users_call(model: TokenDiffusion, adata: AnnData) -> None:
    of_a, of_b = simulated_shares()
    assert len(model.history["train_loss"]) == 60
    asked = {"n_cells": 200, "library_size": 500, "n_steps": 8, "seed": 0}
    generated = model.generate({"cell_type": "b"}, **asked)
    np.testing.assert_array_equal(generated.X.sum(1).A1, 500)
    assert np.abs(shares(generated) - of_b).sum() < 0.25 * np.abs(of_a - of_b).sum()
    plain, guided = (model.generate({"cell_type": "b"}, guidance_scale=scale, **asked) for scale in (1.0, 2.0))
    towards = np.log((of_b + 0.01) / (of_a + 0.01))
    assert (np.log(shares(guided) + 0.01) - np.log(shares(plain) + 0.01)) @ towards > 0
    turned = model.predict_perturbation(adata, {"cell_type": "b"}, indices=adata.obs["cell_type"] == "a", seed=0)
    assert np.abs(shares(turned) - of_b).sum() < np.abs(shares(turned) - of_a).sum()
    np.testing.assert_array_equal(turned.X.sum(1).A1, adata[turned.obs_names].X.sum(1))
    assert model.get_token_loadings(method="readout").shape == (20, 2)
    np.testing.assert_allclose(model.get_normalized_expression(indices=[0]).sum(axis=1), 1, rtol=1e-5)
    model.write_back(adata, seed=0)
    assert adata.obsm["X_generated"].shape == adata.shape


@pytest.mark.parametrize(("call", "ability"), [("get_nll_bound", "likelihoods"), ("deepen", "adding molecules")])
def test_what_a_process_cannot_do_is_said(model: TokenDiffusion, call: str, ability: str) -> None:
    with pytest.raises(
        ValueError, match=f"`{call}` needs a process that supports {ability}, .* 'masking'.* `process='thinning'`"
    ):
        getattr(model, call)()


@pytest.mark.parametrize("process", ["thinning", "gaussian", "latent"])
@pytest.mark.parametrize("key", ["labels_key", "batch_key"])
def test_every_process_draws_the_group_that_was_asked_for(process: Any, key: str) -> None:
    cells = simulated_cells(160)
    of_a, of_b = (shares(cells[cells.obs["cell_type"] == name]) for name in "ab")
    model = trained_model(cells, 60, 40, process=process, plan_kwargs=PLAN, **{key: "cell_type"})
    for name, own, other in (("a", of_a, of_b), ("b", of_b, of_a)):
        drawn = shares(model.generate({"cell_type": name}, n_cells=200, library_size=500, n_steps=12, seed=0))
        assert np.abs(drawn - own).sum() < 0.5 * np.abs(drawn - other).sum()


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
        None, {"guide": "A"}, indices=gaussian.adata.obs["guide"] == "ctrl", keep_fraction=0.1, n_steps=12, seed=0
    )
    before = gaussian.adata[treated.obs_names].X[:, 0].mean()
    assert 12 < treated.X[:, 0].mean() - before < 40


@pytest.mark.parametrize("process", ["thinning", "gaussian"])
def test_one_gene_is_enough(process: str) -> None:
    cells = simulated_cells(60, n_genes=1)
    model = trained_model(cells, labels_key="cell_type", process=process)
    drawn = model.generate({"cell_type": "a"}, 40, n_steps=2, seed=0, silent=True)
    assert drawn.X.mean() == pytest.approx(cells.X.mean(), rel=0.2)


def test_gaussian_query_models_have_groups_of_new_types(gaussian: TokenDiffusion) -> None:
    cells = simulated_cells(120)
    cells.obs["guide"] = "ctrl"
    is_new = cells.obs["cell_type"].to_numpy() == "b"
    cells.obs["cell_type"] = np.where(is_new, "new", "a")
    cells.X[is_new] = cells.X[is_new][:, ::-1]
    query = TokenDiffusion.load_query_data(cells, gaussian)
    known, new = {"cell_type": "a", "guide": "ctrl"}, {"cell_type": "new", "guide": "ctrl"}
    asked = {"n_cells": 200, "library_size": 500, "n_steps": 8, "seed": 0}
    drawn = [np.log(shares(query.generate(conditions, **asked))) for conditions in (known, new)]
    truth = [np.log(cells.X[rows].sum(0)) for rows in (~is_new, is_new)]
    assert np.corrcoef(drawn[1] - drawn[0], truth[1] - truth[0])[0, 1] > 0.9
    np.testing.assert_array_equal(drawn[0], np.log(shares(gaussian.generate(known, **asked))))


@pytest.mark.parametrize("name", ["gaussian", "latent"])
def test_held_out_cells_and_contributions_need_no_likelihood(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.evaluate_held_out(n_steps=4, silent=True)
    assert found.likelihood is None and len(found.scores.frame) and found.remarks
    parts = model.get_token_contributions(indices=[0, 1, 2])
    total = sum(parts.layers[term] for term in parts.uns["terms"]) + parts.var["baseline"].to_numpy()
    np.testing.assert_allclose(parts.X, total, rtol=1e-3, atol=1e-4)


def test_gaussian_diffusion_has_tokens_and_expression(gaussian: TokenDiffusion) -> None:
    assert gaussian.get_token_loadings().shape == (20, 2)
    np.testing.assert_allclose(gaussian.get_token_activation().std(ddof=0), 1, atol=0.1)
    assert gaussian.get_latent_representation(indices=[0, 1]).shape == (2, 16)
    np.testing.assert_allclose(gaussian.get_normalized_expression(indices=[0]).sum(axis=1), 1, rtol=1e-5)


def test_settings_that_are_of_no_process_are_refused(adata: AnnData) -> None:
    TokenDiffusion.setup_anndata(adata, labels_key="cell_type")
    with pytest.raises(ValueError, match=r"choose one of .*, or pass `GaussianOptions\(...\)`"):
        TokenDiffusion(adata, process={"prediction": "x0"})


@pytest.fixture(scope="module")
def latent() -> TokenDiffusion:
    options = LatentOptions(latent_dim=2)
    return trained_model(simulated_cells(200), 100, 50, process=options, plan_kwargs=PLAN, labels_key="cell_type")


def test_latent_diffusion_learns_types_and_has_tokens(latent: TokenDiffusion) -> None:
    of_a, of_b = np.log(simulated_shares())
    drawn = [latent.generate({"cell_type": name}, n_cells=200, library_size=500, n_steps=12, seed=0) for name in "ab"]
    learned = np.log(shares(drawn[1])) - np.log(shares(drawn[0]))
    assert np.corrcoef(learned, of_b - of_a)[0, 1] > 0.9
    turned = latent.predict_perturbation(
        None, {"cell_type": "b"}, indices=latent.adata.obs["cell_type"] == "a", keep_fraction=0.05, n_steps=12, seed=0
    )
    assert np.corrcoef(np.log(shares(turned)) - of_a, of_b - of_a)[0, 1] > 0.9
    assert latent.get_token_loadings().shape == (20, 2)
    assert latent.get_latent_representation(indices=[0, 1]).shape == (2, 4)


def test_gradients_of_latent_tokens_are_differences_of_activations(latent: TokenDiffusion) -> None:
    """At a tenth more of log1p(count) of the gene with the largest gradient, and the same library sizes."""
    gradient = latent.get_token_loadings(method="gradient")["token_1"].to_numpy()
    gene, reader, (counts, conditions) = int(np.abs(gradient).argmax()), TokenReader(latent), next(iter(Cells(latent)))
    encoder, hidden_of = latent.module.code.encoder(latent.module.ema_denoiser, counts, conditions)
    moved = counts.to_dense()
    moved[:, gene] = torch.expm1(torch.log1p(moved[:, gene]) + 0.1)
    before, after = (
        reader.basis.activation(hidden_of(encoder.read(cells)).detach().numpy())[:, 0]
        for cells in (counts, moved.to_sparse_csr())
    )
    assert (after - before).mean() / 0.1 == pytest.approx(gradient[gene], rel=0.1)


def test_tokens_of_latent_diffusion_can_be_fixed(latent: TokenDiffusion) -> None:
    """With all tokens fixed both types are the average cell; the model itself is not changed."""
    both = latent.hold_tokens(["token_1", "token_2"]).get_normalized_expression(indices=[0, 1, 2, 3])
    np.testing.assert_allclose(both, np.tile(both.iloc[0], (4, 1)), rtol=1e-4)
    assert not np.allclose(latent.get_normalized_expression(indices=[0]), both.iloc[:1], rtol=0.1)
    table = tl.ablate_token(latent, "token_1", latent.adata, "cell_type", n_steps=4)
    assert set(table["group"]) == {"a", "b"} and table["score"].abs().max() > 0


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
