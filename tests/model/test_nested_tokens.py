"""Nested tokens: the first ones of a trained model are a model."""

import numpy as np
import pytest
from anndata import AnnData
from small_cells import simulated_cells, trained_model

import scdiffgen
from scdiffgen.model import NetworkOptions, TokenDiffusion
from scdiffgen.model._training_summary import remember_training


@pytest.fixture(scope="module")
def nested() -> tuple[AnnData, TokenDiffusion]:
    adata = scdiffgen.datasets.pbmc68k()[::3].copy()
    adata.obs["treatment"] = np.where(np.arange(adata.n_obs) % 2, "IFNB", "control")
    scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type", perturbation_key="treatment")
    model = TokenDiffusion(
        adata, n_tokens=5, token_dim=16, n_layers=1, network=NetworkOptions(readout_dim=4, nested_tokens=True)
    )
    model.train(max_epochs=6, accelerator="cpu", enable_progress_bar=False)
    return adata, model


def test_a_truncated_model_is_the_model_with_its_first_tokens(nested: tuple, monkeypatch) -> None:
    _, model = nested
    cut = model.truncate_tokens(2)
    assert cut.get_latent_representation(indices=[0]).shape == (1, 2 * 16)
    small = cut.get_normalized_expression(return_numpy=True)
    full = model.get_normalized_expression(return_numpy=True)
    monkeypatch.setattr("scdiffgen.nn._network.number_of_tokens", lambda n_tokens: min(2, n_tokens))
    monkeypatch.setattr(model.module.ema_denoiser.network.trunk, "training", True)  # without dropout
    np.testing.assert_allclose(small, model.get_normalized_expression(return_numpy=True), rtol=1e-5)
    assert np.abs(small - full).max() > 1e-4


def test_a_truncated_model_generates_and_survives_a_file(nested: tuple, tmp_path) -> None:
    adata, model = nested
    cut = model.truncate_tokens(3)
    asked = {"cell_type": "Dendritic", "treatment": "IFNB"}
    cells = cut.generate(asked, n_cells=3, n_steps=4, seed=0)
    cut.save(tmp_path / "cut")
    loaded = TokenDiffusion.load(tmp_path / "cut", adata)
    np.testing.assert_array_equal(loaded.generate(asked, n_cells=3, n_steps=4, seed=0).X.toarray(), cells.X.toarray())
    np.testing.assert_array_equal(loaded.get_token_loadings(), cut.get_token_loadings())
    assert loaded.get_token_activation().std(ddof=0).to_numpy() == pytest.approx(1, rel=1e-3)


def test_nothing_is_lost_by_keeping_all_tokens(nested: tuple) -> None:
    _, model = nested
    same = model.truncate_tokens(5)
    np.testing.assert_array_equal(same.get_normalized_expression(), model.get_normalized_expression())
    np.testing.assert_allclose(same.get_token_loadings(), model.get_token_loadings(), atol=1e-6)
    new = [which.generate(n_cells=20, n_steps=4, seed=0).X.toarray() for which in (same, model)]
    np.testing.assert_array_equal(*new)
    assert len(model.truncate_tokens(2).module.code.match.groups)


def test_truncated_gaussian_models_keep_the_tables_of_their_groups() -> None:
    network = NetworkOptions(nested_tokens=True)
    model = trained_model(simulated_cells(120), process="gaussian", network=network, labels_key="cell_type")
    cut, tables = model.truncate_tokens(1).module.code.state_dict(), model.module.code.state_dict()
    assert len(tables["means"]) == 2
    for name, table in tables.items():
        np.testing.assert_array_equal(cut[name], table)


def test_nested_tokens_keep_the_order_of_the_network(nested: tuple) -> None:
    assert remember_training(nested[1]).tolist() == [0, 1, 2, 3, 4]


def test_what_cannot_be_cut_is_said(nested: tuple, example: tuple) -> None:
    for model, n_tokens, message in (
        (nested[1], 6, "`n_tokens` is 6, but the model has 5"),
        (example[1], 2, "nested_tokens=True"),
    ):
        with pytest.raises(ValueError, match=message):
            model.truncate_tokens(n_tokens)
