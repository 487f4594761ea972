"""Posterior predictive samples, correlations and differential expression, against closed forms and simulated truth."""

import numpy as np
import pandas as pd
import pytest
import scvi
from anndata import AnnData
from scipy import stats
from small_cells import QUIET, simulated_cells, simulated_shares, trained_model

from scdiffgen.model import TokenDiffusion


def test_samples_of_a_multinomial_model_are_multinomial(multinomial: TokenDiffusion) -> None:
    samples = multinomial.posterior_predictive_sample(n_samples=50, n_steps=4).todense()
    library = multinomial.adata.X.sum(1)
    np.testing.assert_array_equal(samples.sum(1), np.repeat(library[:, None], 50, axis=1))
    of_gene = samples[0, :, :].ravel()  # 1,000 draws of Binomial(L, 1 / 20)
    expected = stats.binom(int(library[0]), 1 / 20)
    assert abs(of_gene.mean() - expected.mean()) < 4 * expected.std() / np.sqrt(1000)
    assert abs(of_gene.var() / expected.var() - 1) < 0.25


def test_samples_follow_the_expected_expression_and_not_their_seed(small: TokenDiffusion) -> None:
    first, again = (small.posterior_predictive_sample(n_samples=20, n_steps=8, seed=1).todense() for _ in range(2))
    np.testing.assert_array_equal(first, again)
    shares = first.mean(2) / small.adata.X.sum(1, keepdims=True)
    expected = small.get_normalized_expression(return_numpy=True, silent=True)
    assert stats.pearsonr(shares.ravel(), expected.ravel())[0] > 0.95


def test_samples_have_the_shapes_of_scvi_tools(small: TokenDiffusion) -> None:
    options = {"indices": [3, 1], "gene_list": ["gene5", "gene2"], "n_steps": 2}
    one = small.posterior_predictive_sample(**options)
    several = small.posterior_predictive_sample(**options, n_samples=3, transform_batch="y")
    assert type(one).__name__ == type(several).__name__ == "GCXS"
    assert (one.shape, several.shape) == ((2, 2), (2, 2, 3))
    whole = small.posterior_predictive_sample(indices=[3, 1], n_steps=2)
    np.testing.assert_array_equal(whole.todense()[:, [5, 2]], one.todense())
    with pytest.raises(ValueError, match="`gene_list` names"):
        small.posterior_predictive_sample(gene_list=["no gene"])


def test_scvi_tools_criticises_the_model_beside_its_own() -> None:
    pytest.importorskip("xarray")
    adata = simulated_cells(60)
    ours = trained_model(adata, 20, plan_kwargs={"lr": 1e-2}, labels_key="cell_type")
    scvi.model.SCVI.setup_anndata(adata)
    theirs = scvi.model.SCVI(adata, n_hidden=8, n_latent=2)
    theirs.train(max_epochs=2, **QUIET)
    check = scvi.criticism.PosteriorPredictiveCheck(adata, {"model1": ours, "scvi": theirs}, n_samples=3)
    check.coefficient_of_variation()
    check.zero_fraction()
    check.calibration_error()
    found = check.metrics["zero_fraction"]
    seen = np.asarray((adata.X > 0).mean(0)).ravel()
    np.testing.assert_allclose(found["Raw"], seen)
    assert stats.pearsonr(found["model1"], seen)[0] > 0.8


def truth() -> pd.Series:
    shares = simulated_shares()
    return pd.Series(np.log2(shares[0] / shares[1]), index=[f"gene{i}" for i in range(20)])


def of_generated(model: TokenDiffusion) -> AnnData:
    table = pd.DataFrame({"cell_type": ["a", "b"], "batch": "x", "age": 40.0, "n_cells": 60})
    return model.generate(table, n_steps=8, silent=True)


@pytest.mark.parametrize("source", ["measured", "generated"])
def test_differences_are_the_simulated_ones(small: TokenDiffusion, source: str) -> None:
    adata = small.adata[small.adata.obs["batch"] == "x"].copy() if source == "measured" else of_generated(small)
    before = list(small.adata.obs)
    found = small.differential_expression(
        adata, "cell_type", "a", "b", mode="change", n_samples_overall=300, silent=True
    )
    assert (found["comparison"] == "a vs b").all() and found["proba_de"].is_monotonic_decreasing
    assert stats.pearsonr(found["lfc_mean"], truth().loc[found.index])[0] > 0.95
    clear = truth().abs() > 1
    assert found["proba_de"].loc[clear.index[clear]].min() > 0.9
    assert list(small.adata.obs) == before


def test_cells_of_one_type_do_not_differ(small: TokenDiffusion) -> None:
    of_a = np.flatnonzero(small.adata.obs["cell_type"] == "a")
    options = {"mode": "change", "delta": 0.5, "n_samples_overall": 300, "silent": True}
    found = small.differential_expression(idx1=of_a[::2], idx2=of_a[1::2], **options)
    assert found["is_de_fdr_0.05"].sum() == 0 and found["lfc_mean"].abs().max() < 0.3


def test_draws_of_a_small_group_are_made_together(small: TokenDiffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    expression = small.module.expression
    monkeypatch.setattr(small.module, "expression", lambda x, *more: sizes.append(len(x)) or expression(x, *more))
    small.differential_expression(idx1=[0, 1, 2], idx2=[3, 4, 5, 6], n_samples_overall=50, batch_size=32, silent=True)
    assert sizes == [32, 18, 32, 18]


def test_means_and_shares_are_those_of_the_counts(small: TokenDiffusion) -> None:
    found = small.differential_expression(groupby="cell_type", n_samples_overall=50, silent=True)
    assert found.shape[0] == 40 and set(found["group2"]) == {"Rest"}
    found = found[found["group1"] == "b"].loc[small.adata.var_names]
    own = small.adata.X[(small.adata.obs["cell_type"] == "b").to_numpy()]
    np.testing.assert_allclose(found["raw_mean1"], own.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found["non_zeros_proportion1"], (own > 0).mean(0), rtol=1e-5)
    per_cell = own / own.sum(1, keepdims=True) * 1e4
    np.testing.assert_allclose(found["raw_normalized_mean1"], per_cell.mean(0), rtol=1e-5)


def test_cells_may_be_chosen_by_mask_position_or_query_and_seen_under_all_batches(small: TokenDiffusion) -> None:
    is_a = (small.adata.obs["cell_type"] == "a").to_numpy()
    options = {"n_samples_overall": 50, "silent": True, "batch_correction": True}
    chosen = [is_a, np.flatnonzero(is_a), "cell_type == 'a'"]
    tables = [small.differential_expression(idx1=cells, **options) for cells in chosen]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(tables[0], table)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Pass either `groupby`"),
        ({"groupby": "cell_type", "idx1": [0]}, "but not both"),
        ({"groupby": "celltype"}, "Did you mean 'cell_type'"),
        ({"groupby": "cell_type", "group1": "A"}, "Did you mean 'a'"),
        ({"idx1": "cell_type == 'z'"}, "`idx1` selects no cell"),
        ({"groupby": "cell_type", "mode": "changes"}, "`mode` is 'changes'"),
    ],
)
def test_what_cannot_be_compared_is_said(small: TokenDiffusion, arguments: dict, message: str) -> None:
    with pytest.raises((ValueError, KeyError), match=message):
        small.differential_expression(**arguments)
