import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from anndata import AnnData
from mudata import MuData
from scipy import stats
from scipy.optimize import linear_sum_assignment
from sklearn.feature_selection import f_classif
from sklearn.metrics import roc_auc_score

from scdiffgen import tl


def test_ranking_reads_as_scanpys_own(cells: AnnData) -> None:
    tl.rank_token_genes(cells)
    sc.tl.rank_genes_groups(cells, "cell_type", method="wilcoxon", layer=None, use_raw=False)
    ours, scanpys = cells.uns["rank_token_genes"], cells.uns["rank_genes_groups"]
    assert set(ours) == set(scanpys) and set(ours["params"]) - {"stability"} == set(scanpys["params"])
    for field in set(ours) - {"params"}:
        assert isinstance(ours[field], np.recarray) and ours[field].dtype.names[0] == "token_1"
        assert len(ours[field]) == len(scanpys[field])
        assert ours[field]["token_1"].dtype == scanpys[field]["Dendritic"].dtype


@pytest.mark.parametrize("stored", [False, True])
def test_ranking_holds_every_gene_with_its_own_loading_and_symbol(cells: AnnData, stored: bool) -> None:
    cells.var["symbol"] = [f"symbol of {name}" for name in cells.var_names]
    if stored:
        cells.varm["token_log_rates"] = cells.varm["token_loadings"][::-1]
    tl.rank_token_genes(cells, gene_symbols="symbol")
    table = sc.get.rank_genes_groups_df(cells, "token_3", key="rank_token_genes")
    assert table["scores"].is_monotonic_decreasing
    expected = pd.DataFrame(cells.varm["token_loadings"][:, [2]], index=cells.var["symbol"], columns=["loading"])
    expected["log_rate"] = cells.varm["token_log_rates"][:, 2] if stored else np.nan
    expected = expected.loc[table["names"]]
    np.testing.assert_allclose(table["scores"], expected["loading"])
    np.testing.assert_allclose(2.0 ** table["logfoldchanges"], np.exp(expected["log_rate"]), rtol=1e-5)


def test_ranking_survives_a_file_and_is_drawn_by_scanpy(cells: AnnData, tmp_path) -> None:
    tl.rank_token_genes(cells, n_genes=30)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    read = sc.read_h5ad(tmp_path / "cells.h5ad")
    axes = sc.pl.rank_genes_groups(read, key="rank_token_genes", n_genes=10, show=False)
    assert [axis.get_title().split(" ")[0] for axis in axes] == list(read.uns["scdiffgen"]["tokens"])
    shown = [text.get_text() for text in axes[0].texts]
    best = pd.Series(cells.varm["token_loadings"][:, 0], index=cells.var_names).nlargest(10)
    assert shown == best.index.tolist()


def test_auc_is_that_of_sklearn(cells: AnnData) -> None:
    table = tl.token_associations(cells, "cell_type").set_index(["token", "level", "statistic"])["value"]
    inside = cells.obs["cell_type"] == "CD19+ B"
    expected = roc_auc_score(inside, cells.obsm["X_token_activation"][:, 3])
    assert table["token_4", "CD19+ B", "auc"] == pytest.approx(expected)
    assert table["token_2", "Dendritic", "auc"] > 0.85


def test_eta_squared_follows_from_the_f_test_of_sklearn(cells: AnnData) -> None:
    cells.obsm["X_token_activation"][:, 5] = 1.0  # a token that is the same in all cells
    table = tl.token_associations(cells, ["cell_type", "n_counts"]).set_index("token")
    constant = table.loc["token_6"]
    assert set(constant["p_value"]) == {1} and (constant["value"] == (constant["statistic"] == "auc") / 2).all()
    table = table.query("statistic == 'eta_squared'")
    f_ratio, p_values = f_classif(cells.obsm["X_token_activation"][:, :5], cells.obs["cell_type"])
    between, within = cells.obs["cell_type"].nunique() - 1, cells.n_obs - cells.obs["cell_type"].nunique()
    shares = f_ratio * between / (f_ratio * between + within)
    np.testing.assert_allclose(table["value"], [*shares, 0], rtol=1e-4)
    np.testing.assert_allclose(table["p_value"], [*p_values, 1], rtol=1e-3)


def test_numbers_are_correlated_by_rank(cells: AnnData) -> None:
    table = tl.token_associations(cells, ["percent_mito"])
    expected = stats.spearmanr(cells.obsm["X_token_activation"][:, 0], cells.obs["percent_mito"])
    assert table.loc[0, ["statistic", "value", "p_value"]].tolist() == ["rho", expected.statistic, expected.pvalue]


def test_monotone_transforms_change_no_rank_statistic(cells: AnnData) -> None:
    before = tl.token_associations(cells, ["cell_type", "n_counts"]).query("statistic != 'eta_squared'")
    cells.obsm["X_token_activation"] = np.exp(cells.obsm["X_token_activation"].astype(float))
    after = tl.token_associations(cells, ["cell_type", "n_counts"]).query("statistic != 'eta_squared'")
    np.testing.assert_allclose(before["value"], after["value"])


def test_cells_without_an_annotation_are_left_out(cells: AnnData) -> None:
    cells.obs["part"] = cells.obs["cell_type"].astype(object)
    some = cells[100:].copy()
    cells.obs.iloc[:100, cells.obs.columns.get_loc("part")] = None
    pd.testing.assert_frame_equal(tl.token_associations(cells, "part"), tl.token_associations(some, "part"))


def test_false_discoveries_of_noise_are_few(cells: AnnData) -> None:
    cells.obs["coin"] = np.random.default_rng(1).integers(0, 2, cells.n_obs).astype(bool)
    table = tl.token_associations(cells, "coin")
    assert (table["fdr"] >= table["p_value"]).all() and (table["fdr"] > 0.05).all()


def test_matching_is_the_best_of_all_and_finds_a_permutation() -> None:
    rng = np.random.default_rng(0)
    genes = [f"gene_{i}" for i in range(200)]
    first = pd.DataFrame(rng.normal(size=(200, 5)), index=genes, columns=list("abcde"))
    second = (-3 * first[list("cabed")] + 1 + 0.3 * rng.normal(size=(200, 5))).set_axis(list("vwxyz"), axis=1)
    matched = tl.token_similarity(first, second.sample(frac=1, random_state=0))
    assert matched["match"].to_dict() == dict(zip("cabed", "vwxyz", strict=True))
    full = np.corrcoef(first.T, second.T)[:5, 5:]
    rows, columns = linear_sum_assignment(-np.abs(full))
    np.testing.assert_allclose(matched["correlation"], full[rows, columns])
    assert (matched["correlation"] < -0.9).all()


def test_a_model_matches_itself_and_the_smaller_model_sets_the_number_of_matches(cells: AnnData) -> None:
    matched = tl.token_similarity(cells, cells)
    assert (matched["match"] == matched.index).all()
    np.testing.assert_allclose(matched["correlation"], 1)
    few = pd.DataFrame(cells.varm["token_loadings"][:, :2], index=cells.var_names, columns=["token_1", "token_2"])
    few["token_2"] = 1.0  # constant: it correlates with nothing
    assert tl.token_similarity(few, cells)["correlation"].to_dict() == pytest.approx({"token_1": 1, "token_2": 0})
    assert len(tl.token_similarity(cells, few)) == 2


def test_annotations_add_up_and_survive_a_file(cells: AnnData, tmp_path) -> None:
    tl.annotate_tokens(cells, {"token_3": "interferon response"})
    tl.annotate_tokens(cells, {"token_1": "cytotoxicity/killing"})
    cells.write_h5ad(tmp_path / "cells.h5ad")
    stored = sc.read_h5ad(tmp_path / "cells.h5ad").uns["scdiffgen"]["annotation"]
    assert stored == {"token_3": "interferon response", "token_1": "cytotoxicity/killing"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda adata: tl.annotate_tokens(adata, {"token_9": "x"}), r"`names` names \['token_9'\]"),
        (lambda adata: tl.token_associations(adata, "donor"), "no column 'donor'"),
        (lambda adata: tl.token_associations(adata[adata.obs["phase"] == "G1"], "phase"), "same value in all cells"),
        (lambda adata: tl.rank_token_genes(adata.T.copy()), "call `model.write_back"),
        (lambda adata: tl.rank_token_genes(MuData({"rna": adata})), r"pass `adata\['rna'\]`"),
        (lambda adata: tl.token_similarity(adata, adata[:, :2].copy()), "2 genes in common"),
        (lambda adata: tl.rank_token_genes(adata, 0), "`n_genes` is 0"),
        (lambda adata: tl.rank_token_genes(adata, gene_symbols="names"), "`gene_symbols` is 'names', which is no col"),
    ],
)
def test_errors_say_what_to_do(cells: AnnData, call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(cells)
