"""Likelihood against SciPy's multinomial, which the model is when tokens say nothing; expression against its sum."""

import numpy as np
import pandas as pd
import pytest
import scvi
from anndata import AnnData
from scipy import stats
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen.model import TokenDiffusion


def test_the_likelihood_is_the_multinomials(multinomial: TokenDiffusion) -> None:
    counts = multinomial.adata.X.astype(int)
    exact = -stats.multinomial.logpmf(counts, counts.sum(1), np.full(20, 1 / 20))
    nll = multinomial.get_nll_bound(n_draws=1, seed=0, silent=True)
    np.testing.assert_allclose(nll["nll"], exact, rtol=1e-5)
    np.testing.assert_allclose(nll["nll_per_molecule"], exact / counts.sum(1), rtol=1e-5)
    assert nll.index.equals(multinomial.adata.obs_names)


def test_more_draws_have_less_noise_around_the_same_mean(small: TokenDiffusion) -> None:
    same_cell = [0] * 300
    few, many = (small.get_nll_bound(indices=same_cell, n_draws=n, seed=n, silent=True)["nll"] for n in (1, 16))
    assert 0.2 < many.std() / few.std() < 0.3  # 1 / 4 is expected
    assert abs(many.mean() - few.mean()) < 4 * few.std() * np.sqrt((1 + 1 / 16) / 300)


def test_cells_are_more_likely_under_their_own_label(small: TokenDiffusion) -> None:
    swapped = simulated_cells(120)
    swapped.obs["cell_type"] = swapped.obs["cell_type"].map({"a": "b", "b": "a"})
    own, wrong = (small.get_nll_bound(cells, seed=0, silent=True)["nll"].mean() for cells in (None, swapped))
    assert own < wrong


@pytest.mark.parametrize("library_size", [1.0, 1e4])
def test_expression_sums_to_the_library_size(library_size: float, small: TokenDiffusion) -> None:
    expression = small.get_normalized_expression(library_size=library_size, silent=True)
    assert expression.shape == (120, 20) and expression.to_numpy().dtype == np.float32
    assert expression.index.equals(small.adata.obs_names) and expression.columns.equals(small.adata.var_names)
    np.testing.assert_allclose(expression.sum(axis=1), library_size, rtol=1e-5)
    assert (expression > 0).all(axis=None)


def test_expression_is_uniform_where_the_model_is(multinomial: TokenDiffusion) -> None:
    np.testing.assert_allclose(multinomial.get_normalized_expression(silent=True), 1 / 20, rtol=1e-5)


def test_chosen_genes_and_cells_are_those_of_the_whole(small: TokenDiffusion) -> None:
    whole = small.get_normalized_expression(silent=True)
    part = small.get_normalized_expression(indices=[4, 1], gene_list=["gene7", "gene2"], silent=True)
    pd.testing.assert_frame_equal(part, whole.loc[["cell4", "cell1"], ["gene7", "gene2"]], rtol=1e-5)
    array = small.get_normalized_expression(indices=[4, 1], gene_list=["gene7", "gene2"], return_numpy=True)
    np.testing.assert_array_equal(array, part)


def test_cells_can_be_seen_as_another_batch(small: TokenDiffusion) -> None:
    own, seen = (small.get_normalized_expression(transform_batch=batch, silent=True) for batch in (None, "x"))
    in_batch = (small.adata.obs["batch"] == "x").to_numpy()
    np.testing.assert_allclose(seen[in_batch], own[in_batch], rtol=1e-4)
    assert np.abs(seen[~in_batch] - own[~in_batch]).to_numpy().max() > 1e-5
    moved = simulated_cells(120)
    moved.obs["batch"] = "x"
    np.testing.assert_allclose(seen, small.get_normalized_expression(moved, silent=True), rtol=1e-4)


def test_expression_depends_less_on_depth_than_shares_do() -> None:
    """Ten genes have a threefold share in shallow cells, as if they were background."""
    random, n_cells = np.random.default_rng(0), 200
    is_shallow, of_type = np.arange(n_cells) % 2 == 0, random.dirichlet(np.ones(40), 2)
    shares = np.where(is_shallow[:, None] & (np.arange(40) < 10), 3.0, 1.0) * of_type[random.integers(2, size=n_cells)]
    rows = zip(np.where(is_shallow, 200, 2000), shares / shares.sum(1, keepdims=True), strict=True)
    adata = AnnData(np.array([random.multinomial(n, of) for n, of in rows], dtype=np.float32))
    TokenDiffusion.setup_anndata(adata)
    scvi.settings.seed = 0
    model = TokenDiffusion(adata, **SMALL)
    model.train(max_epochs=200, **QUIET)

    def log_ratio(expression: np.ndarray) -> float:
        return np.log(expression[is_shallow, :10].sum(1).mean() / expression[~is_shallow, :10].sum(1).mean())

    measured = log_ratio(adata.X / adata.X.sum(1, keepdims=True))
    assert log_ratio(model.get_normalized_expression(return_numpy=True)) < 0.75 * measured


def test_activations_are_standardised_over_the_training_cells(small: TokenDiffusion) -> None:
    known = np.concatenate([small.train_indices, small.validation_indices])
    activation = small.get_token_activation(indices=np.sort(known), silent=True).to_numpy()
    np.testing.assert_allclose(activation.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(activation.std(0), 1, atol=1e-4)
