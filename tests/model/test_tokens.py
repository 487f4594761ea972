"""What is said of tokens holds: against principal components, finite differences and the network's forward pass."""

from copy import deepcopy
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
import scanpy as sc
import torch
from anndata import AnnData
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.preprocessing import scale

import scdiffgen
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_summary import genes_in_training, training_summary
from scdiffgen.module import TokenBasis

Example = tuple[AnnData, TokenDiffusion]


@pytest.fixture(scope="module")
def trained() -> Example:
    """Blood cells, half of them treated, and a model that has learned something."""
    adata = scdiffgen.datasets.pbmc68k()[::2].copy()
    adata.obs["treatment"] = np.where(np.arange(adata.n_obs) % 2, "IFNB", "control")
    scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type", perturbation_key="treatment")
    model = TokenDiffusion(adata, n_tokens=3, token_dim=16, n_layers=2)
    model.train(max_epochs=8, accelerator="cpu", enable_progress_bar=False)
    return adata, model


@pytest.fixture(scope="module")
def contributions(trained: Example) -> AnnData:
    return trained[1].get_token_contributions()


def log_rates(model: TokenDiffusion, adata: AnnData) -> np.ndarray:
    """Log-rates of whole cells by the network's forward pass, centred over the genes."""
    loader = model._make_data_loader(adata=adata, batch_size=adata.n_obs)
    counts, conditions = model.module.unpack(next(iter(loader)))
    library = model.module.library(counts)
    with torch.no_grad():
        rates = model.module.ema_denoiser.bind_scores(conditions)(counts, library).logits
    return (rates - rates.mean(1, keepdim=True)).numpy()


def test_contributions_add_up_to_what_the_network_predicts(trained: Example, contributions: AnnData) -> None:
    adata, model = trained
    terms = contributions.uns["terms"]
    assert terms == ["token_1", "token_2", "token_3", "cell_type", "conditions"]
    total = sum(contributions.layers[term] for term in terms) + contributions.var["baseline"].to_numpy()
    np.testing.assert_allclose(total, log_rates(model, adata), atol=2e-5)
    np.testing.assert_array_equal(contributions.X, log_rates(model, adata))


def test_chosen_genes_and_cells_are_those_of_the_whole(trained: Example, contributions: AnnData) -> None:
    genes, cells = ["LYZ", "CD3E"], [7, 2, 5]
    some = trained[1].get_token_contributions(gene_list=genes, indices=cells, batch_size=2)
    assert some.obs_names.equals(contributions.obs_names[cells])
    for layer in some.uns["terms"]:
        np.testing.assert_allclose(some.layers[layer], contributions[cells, genes].layers[layer], atol=1e-6)


def test_loadings_and_activations_are_principal_components_of_contributions(
    trained: Example, contributions: AnnData
) -> None:
    _, model = trained
    loadings, activation = model.get_token_loadings(method="readout"), model.get_token_activation()
    variances = [contributions.layers[token].var(0).sum() for token in loadings.columns]
    np.testing.assert_allclose(loadings.attrs["explained"], np.array(variances) / np.sum(variances), rtol=1e-4)
    assert variances == sorted(variances, reverse=True)
    for token, share in zip(loadings.columns, loadings.attrs["first_direction"], strict=True):
        pca = PCA(1, svd_solver="full").fit(contributions.layers[token].astype(float))
        component = pca.components_[0] * contributions.layers[token].astype(float).dot(pca.components_[0]).std()
        component *= np.sign(component @ loadings[token])
        np.testing.assert_allclose(loadings[token], component, atol=1e-3 * np.abs(component).max())
        assert pca.explained_variance_ratio_[0] == pytest.approx(share, rel=1e-3)
        scores = contributions.layers[token] @ loadings[token] / (loadings[token] @ loadings[token])
        np.testing.assert_allclose(activation[token], scores, atol=1e-3)
    assert ((model.get_token_loadings() ** 3).sum() > 0).all()


def test_loadings_of_one_group_of_all_cells_are_the_loadings(trained: Example) -> None:
    adata, model = trained
    adata.obs["everything"] = "all"
    for method in ("readout", "regression"):
        grouped = model.get_token_loadings(method=method, groupby="everything")
        np.testing.assert_allclose(grouped["all"], model.get_token_loadings(method=method), atol=1e-5)


def test_loadings_within_a_group_are_principal_components_there(trained: Example, contributions: AnnData) -> None:
    monocytes = contributions[contributions.obs["cell_type"] == "CD14+ Monocyte"].layers["token_2"].astype(float)
    ours = trained[1].get_token_loadings(method="readout", groupby="cell_type")["CD14+ Monocyte"]["token_2"]
    pca = PCA(1, svd_solver="full").fit(monocytes)
    component = pca.components_[0] * np.sqrt(pca.explained_variance_[0] * (1 - 1 / len(monocytes)))
    np.testing.assert_allclose(np.abs(ours), np.abs(component), atol=2e-3 * np.abs(component).max())


def test_the_loadings_are_a_ridge_regression_of_expression(trained: Example) -> None:
    """scikit-learn's, with its penalty of 0.3 for each cell, on what scanpy makes of the counts."""
    adata, model = trained
    expression = AnnData(adata.layers["counts"].copy())
    sc.pp.normalize_total(expression, target_sum=1e4)
    sc.pp.log1p(expression)
    features, targets = (scale(each) for each in (model.get_token_activation(), expression.X.toarray()))
    expected = Ridge(alpha=0.3 * adata.n_obs, fit_intercept=False).fit(features, targets).coef_
    np.testing.assert_allclose(model.get_token_loadings(), expected, atol=1e-5)


def test_gradients_are_differences_of_activations(trained: Example) -> None:
    adata, model = trained
    gradient = model.get_token_loadings(method="gradient")
    network, basis = deepcopy(model.module.ema_denoiser).double().network, training_summary(model).token_basis
    loader = model._make_data_loader(adata=adata, batch_size=adata.n_obs)
    counts, conditions = model.module.unpack(next(iter(loader)))
    library, logs = model.module.library(counts).double(), counts.to_dense().double().log1p()
    condition = model.module.ema_denoiser.embed_conditions(conditions).vectors.double()

    @torch.no_grad()
    def activation(logs: torch.Tensor) -> np.ndarray:
        hidden = network.readout.hidden(network.tokens(logs.expm1(), library, library, condition)[0]).numpy()
        return np.einsum("ctr,tr->t", hidden - basis.mean, basis.directions) / len(hidden)

    for gene in ["LYZ", "CD3E", "NKG7"]:
        step = torch.zeros(adata.n_vars, dtype=torch.float64)
        step[adata.var_names.get_loc(gene)] = 1e-3
        slope = (activation(logs + step) - activation(logs - step)) / 2e-3
        np.testing.assert_allclose(gradient.loc[gene], slope, rtol=1e-3, atol=1e-5)


def test_with_all_tokens_held_predictions_depend_on_conditions_only(trained: Example, contributions: AnnData) -> None:
    held = trained[1].hold_tokens(["token_1", "token_2", "token_3"]).get_token_contributions()
    expected = np.broadcast_to(contributions.var["baseline"], held.shape)
    np.testing.assert_allclose(held.X - held.layers["cell_type"] - held.layers["conditions"], expected, atol=2e-5)


def test_levels_move_the_genes_by_the_loadings(trained: Example) -> None:
    _, model = trained
    low, high = (model.hold_tokens({"token_2": level}).get_token_contributions(indices=[3]) for level in (-1, 1.5))
    np.testing.assert_allclose(
        (high.X - low.X)[0], 2.5 * model.get_token_loadings(method="readout")["token_2"], atol=2e-5
    )


def test_holding_leaves_the_model_as_it_was_and_is_saved(trained: Example, tmp_path) -> None:
    adata, model = trained
    before = model.get_normalized_expression(return_numpy=True)
    held = model.hold_tokens("token_1")
    np.testing.assert_array_equal(model.get_normalized_expression(return_numpy=True), before)
    after = held.get_normalized_expression(return_numpy=True)
    assert np.abs(after - before).max() > 1e-4
    held.save(tmp_path / "held")
    np.testing.assert_array_equal(
        TokenDiffusion.load(tmp_path / "held", adata).get_normalized_expression(return_numpy=True), after
    )


def test_tokens_are_variables_for_scanpy(trained: Example) -> None:
    adata, model = trained
    adata = adata.copy()
    model.write_back(adata, keys=["token_loadings", "X_token_activation"])
    scdiffgen.tl.annotate_tokens(adata, {"token_2": "interferon response"})
    tokens = model.get_token_adata(adata, n_neighbors=None)
    np.testing.assert_array_equal(tokens.X, adata.obsm["X_token_activation"])
    np.testing.assert_array_equal(tokens.varm["token_loadings"].T, adata.varm["token_loadings"])
    np.testing.assert_array_equal(tokens.obsm["X_umap"], adata.obsm["X_umap"])
    assert tokens.var["label"].tolist() == ["token_1", "interferon response", "token_3"]
    sc.tl.tsne(tokens[:60].copy(), perplexity=5)
    sc.pl.umap(tokens, color=["token_1", "cell_type"], show=False)
    sc.pl.matrixplot(tokens, tokens.var_names, "cell_type", show=False)
    sc.pl.heatmap(tokens, tokens.var_names, "cell_type", show=False)


def test_names_stay_with_the_model_that_they_were_given_for(trained: Example, tmp_path) -> None:
    adata, model = trained
    adata = adata.copy()
    model.write_back(adata, keys=["token_loadings"])
    scdiffgen.tl.annotate_tokens(adata, {"token_1": "cytotoxicity"})
    model.save(tmp_path / "model")
    TokenDiffusion.load(tmp_path / "model", trained[0]).write_back(adata, keys=["token_loadings"])
    assert adata.uns["scdiffgen"]["annotation"] == {"token_1": "cytotoxicity"}
    model.hold_tokens(["token_1"]).write_back(adata, keys=["token_loadings"])
    assert adata.uns["scdiffgen"]["annotation"] == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.get_token_loadings(groupby="donor"), "no column 'donor'"),
        (lambda model: model.hold_tokens({"token_1": float("nan")}), "`levels` holds nan"),
    ],
)
def test_errors_say_what_to_do(trained: Example, call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(trained[1])


def test_signs_are_those_of_the_loadings_that_figures_show() -> None:
    random = np.random.default_rng(0)
    activation = random.normal(size=(200, 2))
    expression = random.normal(size=(200, 8))
    expression[:, :2] -= 5 * activation[:, :1]  # genes fall with the first token and rise with the second
    expression[:, 2:4] += 5 * activation[:, 1:]
    basis = TokenBasis(np.zeros((2, 3)), np.ones((2, 3)), np.ones((8, 2)), np.full(2, 0.5), np.ones(2))
    cells = activation, sparse.csr_matrix(expression)
    with patch("scdiffgen.model._training_summary.activation_and_expression", return_value=cells):
        turned, genes = genes_in_training(MagicMock(), basis)
    assert (genes.loadings[:2, 0] > 0.3).all() and (genes.loadings[2:4, 1] > 0.3).all()
    assert turned.directions[:, 0].tolist() == turned.loadings[0].tolist() == [-1, 1]
