"""A column of gene symbols that is registered once, and shown by default in figures and tables."""

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData, concat, read_h5ad
from mudata import read_h5mu
from mudata_cells import paired
from small_cells import QUIET, simulated_cells, trained_model

from scdiffgen import metrics, pl, tl
from scdiffgen.model import TokenDiffusion


@pytest.fixture(scope="module")
def named() -> tuple[AnnData, TokenDiffusion]:
    adata = simulated_cells(60)
    adata.var["symbol"] = adata.var_names.str.upper()
    model = trained_model(adata, labels_key="cell_type", gene_symbols="symbol")
    model.write_back(adata, keys=["token_loadings", "X_token_activation"], silent=True)
    return adata, model


def test_figures_and_tables_show_the_registered_symbols(named: tuple[AnnData, TokenDiffusion]) -> None:
    adata, model = named
    tl.rank_token_genes(adata, n_genes=3)
    assert all(name.isupper() for name in adata.uns["rank_token_genes"]["names"]["token_1"])
    axes = pl.token_loadings(adata, n_genes=3)
    assert all("GENE" in label.get_text() for label in axes[0].get_yticklabels())
    changed = tl.ablate_token(model, "token_1", adata, max_cells=5, n_steps=2)
    assert changed["gene"].str.isupper().all()
    parts = model.get_token_contributions(adata, indices=[0], silent=True)
    pl.token_contributions(parts, "cell0", "GENE3")
    real, generated = simulated_cells(120, seed=2), simulated_cells(120, seed=3)
    real.var, real.uns["scdiffgen_gene_symbols"] = adata.var.copy(), "symbol"
    scores = metrics.evaluate(real, generated, n_trees=5, n_bootstrap=5, silent=True)
    assert scores.dispersion["genes"].str.isupper().all()


def test_cells_without_the_column_keep_their_names(named: tuple[AnnData, TokenDiffusion]) -> None:
    _, model = named
    new = simulated_cells(20, seed=2)
    model.get_token_activation(new, silent=True)  # registers the cells like those of the model
    model.write_back(new, keys=["token_loadings"], silent=True)
    tl.rank_token_genes(new, n_genes=1)
    assert new.uns["rank_token_genes"]["names"]["token_1"][0].startswith("gene")


def test_an_unknown_column_is_an_error_and_another_registration_forgets_the_symbols() -> None:
    adata = simulated_cells(30)
    adata.var["symbol"] = adata.var_names.str.upper()
    with pytest.raises(ValueError, match="`gene_symbols` is 'symbols', which is no column of `adata.var`: choose from"):
        TokenDiffusion.setup_anndata(adata, gene_symbols="symbols")
    with pytest.raises(TypeError, match="`gene_symbols` is 3: pass one name as text"):
        TokenDiffusion.setup_anndata(adata, gene_symbols=3)
    TokenDiffusion.setup_anndata(adata, gene_symbols="symbol")
    assert adata.uns["scdiffgen_gene_symbols"] == "symbol"
    TokenDiffusion.setup_anndata(adata)
    assert "scdiffgen_gene_symbols" not in adata.uns


def test_symbols_of_a_mudata_are_those_of_its_modalities() -> None:
    mdata = paired(40)
    mdata["rna"].var["symbol"] = mdata["rna"].var_names.str.upper()
    model = trained_model(mdata, labels_key="sort_of_cell", gene_symbols="symbol")
    model.write_back(mdata, keys=["token_loadings"], silent=True)
    for name, is_upper in (("rna", True), ("prot", False)):
        tl.rank_token_genes(mdata[name], n_genes=2)
        assert np.char.isupper(mdata[name].uns["rank_token_genes"]["names"]["token_1"].astype(str)).all() == is_upper
    with pytest.raises(ValueError, match="`gene_symbols` is 'name', which is no column"):
        TokenDiffusion.setup_mudata(paired(40), gene_symbols="name")


def test_saved_cells_keep_the_symbols(named: tuple[AnnData, TokenDiffusion], tmp_path) -> None:
    _, model = named
    model.save(tmp_path / "model", save_anndata=True)
    loaded = TokenDiffusion.load(tmp_path / "model", accelerator="cpu")
    assert isinstance(loaded.adata.var, pd.DataFrame) and loaded.adata.uns["scdiffgen_gene_symbols"] == "symbol"
    held_out = loaded.evaluate_held_out(simulated_cells(40, seed=5), n_steps=2, silent=True)
    assert held_out.dispersion["genes"].str.isupper().all()


def test_new_cells_have_the_registered_symbols(named: tuple[AnnData, TokenDiffusion], tmp_path) -> None:
    adata, model = named
    model.save(tmp_path / "model")
    alone = TokenDiffusion.load(tmp_path / "model", adata=False, accelerator="cpu")
    bare = simulated_cells(60, seed=3)
    made = [
        model.generate(n_cells=2, n_steps=2, silent=True),
        alone.generate(n_cells=2, n_steps=2, silent=True),
        alone.deepen(bare, indices=[0], n_steps=2, silent=True),
        model.predict_perturbation(bare, {"cell_type": "b"}, indices=[0], n_steps=2, silent=True),
        model.interpolate({"cell_type": "a"}, {"cell_type": "b"}, n_cells=1, n_steps=2, silent=True),
        read_h5ad(model.generate_to(tmp_path / "new.h5ad", n_cells=3, n_steps=2, chunk_size=2, silent=True)),
    ]
    for cells in made:
        pd.testing.assert_series_equal(cells.var["symbol"], adata.var["symbol"], check_dtype=False)
        assert cells.uns["scdiffgen_gene_symbols"] == "symbol"
    assert "symbol" not in trained_model(simulated_cells(60)).generate(n_cells=2, n_steps=2, silent=True).var


def test_new_cells_of_a_query_have_the_symbols_of_its_new_genes(named: tuple[AnnData, TokenDiffusion]) -> None:
    adata, model = named
    for has_symbols in (True, False):
        query = concat([simulated_cells(60, seed=2), simulated_cells(60, n_genes=2, seed=4)], axis=1, merge="first")
        query.var_names = [*adata.var_names, "new0", "new1"]
        if has_symbols:
            query.var["symbol"] = query.var_names.str.upper()
        extended = TokenDiffusion.load_query_data(query, model)
        extended.train(max_epochs=1, **QUIET)
        symbols = extended.generate(n_cells=2, n_steps=2, silent=True).var["symbol"].tolist()
        assert symbols == [*adata.var["symbol"], *(["NEW0", "NEW1"] if has_symbols else ["new0", "new1"])]


def test_new_cells_of_a_mudata_have_the_symbols_of_their_modalities(tmp_path) -> None:
    mdata = paired(40)
    mdata["rna"].var["symbol"] = mdata["rna"].var_names.str.upper()
    model = trained_model(mdata, labels_key="sort_of_cell", gene_symbols="symbol")
    made = [
        model.generate(n_cells=2, n_steps=2, silent=True),
        model.generate_modality(None, "rna", n_steps=2, silent=True),
        read_h5mu(model.generate_to(tmp_path / "new.h5mu", n_cells=3, n_steps=2, silent=True)),
    ]
    for cells in made:
        assert cells["rna"].var["symbol"].tolist() == mdata["rna"].var["symbol"].tolist()
        assert "symbol" not in cells["prot"].var and "scdiffgen_gene_symbols" not in cells["prot"].uns
