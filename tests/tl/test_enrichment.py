import sys

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from anndata import AnnData
from scipy.stats import false_discovery_control

from scdiffgen import tl

pytest.importorskip("decoupler", reason="needs the extra `enrichment`")


@pytest.fixture
def gene_sets(cells: AnnData) -> dict[str, list[str]]:
    rng = np.random.default_rng(1)
    sets = {f"random {i}": rng.choice(cells.var_names, 20, replace=False).tolist() for i in range(8)}
    top = pd.Series(cells.varm["token_loadings"][:, 2], index=cells.var_names).nlargest(40).index
    return {**sets, "planted": top[::2].tolist(), "not here": ["ABSENT1", "ABSENT2", "ABSENT3"]}


def test_scores_are_the_t_statistics_of_a_linear_model(cells: AnnData, gene_sets: dict) -> None:
    table = tl.enrich_tokens(cells, gene_sets).query("token == 'token_5'").set_index("gene_set")
    loadings = cells.varm["token_loadings"][:, 4].astype(float)
    members = [cells.var_names.isin(gene_sets[name]).astype(float) for name in table.index]
    fits = [sm.OLS(loadings, sm.add_constant(member)).fit() for member in members]
    assert set(table.index) == set(gene_sets) - {"not here"}
    np.testing.assert_allclose(table["score"], [fit.tvalues[1] for fit in fits], rtol=1e-5)
    np.testing.assert_allclose(table["fdr"], false_discovery_control([fit.pvalues[1] for fit in fits]), rtol=1e-4)


def test_a_planted_set_comes_first_with_its_genes_on_either_side(cells: AnnData, gene_sets: dict) -> None:
    table = tl.enrich_tokens(cells, gene_sets, n_top_genes=3)
    first = table[table["token"] == "token_3"].iloc[0]
    assert (first["gene_set"], first["n_genes"]) == ("planted", 20)
    assert first["fdr"] < 1e-6 and first["top_genes"].split(", ") == gene_sets["planted"][:3]
    loadings = pd.DataFrame(-cells.varm["token_loadings"], cells.var_names, cells.uns["scdiffgen"]["tokens"])
    table = tl.enrich_tokens(loadings, gene_sets, n_top_genes=3).set_index(["token", "gene_set"])
    assert table.loc[("token_3", "planted"), "score"] < 0
    assert table.loc[("token_3", "planted"), "top_genes"].split(", ") == gene_sets["planted"][:3]


def test_dict_table_and_gmt_agree_in_any_case(cells: AnnData, gene_sets: dict, tmp_path) -> None:
    expected = tl.enrich_tokens(cells, gene_sets)
    table = pd.DataFrame([(name, gene.lower()) for name, genes in gene_sets.items() for gene in genes])
    path = tmp_path / "sets.gmt"
    path.write_text("\n".join("\t".join([name, "about", *genes]) for name, genes in gene_sets.items()) + "\n")
    table = table.set_axis(["source", "target"], axis=1)
    for other in (table, table.assign(weight=1), path, str(path)):
        pd.testing.assert_frame_equal(tl.enrich_tokens(cells, other), expected)


@pytest.mark.parametrize(("name", "known"), [("GO_BP", "Antigen Receptor"), ("KEGG", "T cell receptor")])
def test_shipped_sets_are_read_without_a_download(cells: AnnData, name: str, known: str) -> None:
    pytest.importorskip("blitzgsea", reason="needs the extra `enrichment`")
    table = tl.enrich_tokens(cells, name, min_genes=10)
    assert table["gene_set"].str.contains(known).any()
    assert table["n_genes"].between(10, 500).all()


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ({"too small": ["CD3E", "LYZ", "CD99999"]}, "no set with 3 to 500 genes.* 2 to 2 .*'too small', 2 of 3"),
        ({"mice": ["ENSG1", "ENSG2", "ENSG3"]}, "called 'ENSG1', .* the model's 'HES4', .* Pass `gene_symbols=`"),
        (pd.DataFrame({"set": ["a"], "gene": ["CD3E"]}), r"lacks the columns \['source', 'target'\]"),
        ("GO_CC", "neither a file nor one of"),
    ],
)
def test_unusable_sets_say_why(cells: AnnData, sets, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tl.enrich_tokens(cells, sets)


def test_symbols_stand_for_the_names_of_genes(cells: AnnData, gene_sets: dict) -> None:
    expected = tl.enrich_tokens(cells, gene_sets)
    cells.var["symbol"] = cells.var_names
    cells.var_names = [f"ENSG{i:05d}" for i in range(cells.n_vars)]
    with pytest.raises(ValueError, match="'ENSG00000', .* Pass `gene_symbols='symbol'`: .* has 9[0-9]%"):
        tl.enrich_tokens(cells, gene_sets)
    pd.testing.assert_frame_equal(tl.enrich_tokens(cells, gene_sets, gene_symbols="symbol"), expected)
    with pytest.raises(ValueError, match="no column of `tokens.var`"):
        tl.enrich_tokens(cells, gene_sets, gene_symbols="name")
    with pytest.raises(ValueError, match="`tokens` is a table"):
        tl.enrich_tokens(pd.DataFrame(cells.varm["token_loadings"]), gene_sets, gene_symbols="symbol")


def test_a_symbol_that_two_genes_share_is_the_first_of_them(cells: AnnData) -> None:
    cells.var["symbol"] = cells.var_names.astype(object)
    cells.var.iloc[5:10, -1], cells.var.iloc[10, -1] = cells.var_names[4], None
    sets = {"three": cells.var_names[[4, 10, 11]], "a gene by itself": "CD3D"}
    table = tl.enrich_tokens(cells, sets, min_genes=1, gene_symbols="symbol").groupby("gene_set")["n_genes"]
    assert table.unique().explode().to_dict() == {"three": 3, "a gene by itself": 1}


def test_without_the_extra_the_error_names_it(cells: AnnData, gene_sets: dict, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "decoupler", None)
    with pytest.raises(ImportError, match=r"scdiffgen\[enrichment\]"):
        tl.enrich_tokens(cells, gene_sets)
    monkeypatch.setattr("scdiffgen.tl._token_tables.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"scdiffgen\[enrichment\]"):
        tl.enrich_tokens(cells, "KEGG")


def test_a_token_that_contributes_nothing_is_enriched_in_nothing() -> None:
    genes = [f"G{i}" for i in range(30)]
    loadings = pd.DataFrame({"Token 1": np.r_[np.ones(10), np.zeros(20)], "Token 2": 0.0}, index=genes)
    found = tl.enrich_tokens(loadings, {"first": genes[:10], "last": genes[15:]}, min_genes=5)
    silent = found[found["token"] == "Token 2"]
    assert (silent["score"] == 0).all() and (silent["fdr"] == 1).all()
    assert found.iloc[0]["gene_set"] == "first" and found.iloc[0]["fdr"] < 1e-6
    with pytest.raises(ValueError, match="no token whose loadings differ"):
        tl.enrich_tokens(loadings[["Token 2"]], {"first": genes[:10]}, min_genes=5)
