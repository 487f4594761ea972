"""Models of several modalities, and of one in a MuData, which is that of its AnnData."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from mudata import MuData, read_h5mu
from mudata_cells import join, mosaic, paired, shares
from scipy import sparse, stats
from small_cells import simulated_cells, trained_model

import scdiffgen
from scdiffgen.model import TokenDiffusion

OPTIONS: dict[str, Any] = {"n_steps": 4, "seed": 3, "silent": True}


@pytest.fixture(scope="module")
def joint() -> TokenDiffusion:
    """A model of paired cells; not to be changed, nor its cells."""
    return trained_model(paired(), 12, 20, labels_key="sort_of_cell")


@pytest.fixture(scope="module")
def of_mosaic() -> TokenDiffusion:
    """A model of cells of which some lack a modality; not to be changed, nor its cells."""
    return trained_model(mosaic(), 12, 20, labels_key="sort_of_cell")


def counts(cells: MuData, name: str) -> np.ndarray:
    matrix = cells[name].X
    return matrix.toarray() if sparse.issparse(matrix) else matrix


# One modality.


def test_one_modality_gives_the_very_model_of_its_anndata() -> None:
    adata = simulated_cells(60)
    adata.X = sparse.csr_matrix(adata.X)
    mdata = join({"rna": adata.copy()})
    mdata.obs["cell_type"] = adata.obs["cell_type"]
    plain, joined = (trained_model(cells, 2, 16, labels_key="cell_type") for cells in (adata, mdata))
    assert type(plain.module) is type(joined.module)
    for weight, other in zip(*(model.module.state_dict().values() for model in (plain, joined)), strict=True):
        assert torch.equal(weight, other)
    cells, same = (model.generate({"cell_type": "a"}, n_cells=5, **OPTIONS) for model in (plain, joined))
    np.testing.assert_array_equal(cells.X.toarray(), same["rna"].X.toarray())
    np.testing.assert_array_equal(plain.get_token_loadings(), joined.get_token_loadings().loc["rna"])


# Generation.


def test_generated_cells_have_all_modalities(joint: TokenDiffusion) -> None:
    table = pd.DataFrame({"sort_of_cell": ["a", "b"], "n_cells": [7, 4]})
    cells = joint.generate(table, **OPTIONS)
    assert isinstance(cells, MuData) and cells.obs["sort_of_cell"].tolist() == ["a"] * 7 + ["b"] * 4
    for name, n_columns in (("rna", 12), ("prot", 5)):
        assert (
            cells[name].X.dtype == np.int32 and cells[name].X.format == "csr" and cells[name].shape == (11, n_columns)
        )
        assert cells[name].var_names.equals(joint.adata[name].var_names)
        assert cells[name].obs_names.equals(cells.obs_names)
    again = joint.generate(table, **OPTIONS)
    np.testing.assert_array_equal(counts(cells, "prot"), counts(again, "prot"))


def test_each_modality_has_the_depth_and_the_shares_of_its_type(joint: TokenDiffusion) -> None:
    cells = joint.generate({"sort_of_cell": "b"}, n_cells=300, **{**OPTIONS, "n_steps": 16})
    for name, expected in shares().items():
        real = counts(joint.adata, name).sum(1)
        np.testing.assert_allclose(np.log(counts(cells, name).sum(1)).mean(), np.log(real).mean(), atol=0.15)
        found = counts(cells, name).sum(0) / counts(cells, name).sum()
        assert np.abs(found - expected[1]).sum() < np.abs(found - expected[0]).sum() / 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"rna": 30}, [30] * 3), ({"rna": [10, 20, 30]}, [10, 20, 30]), ({"rna": lambda rows, rng: 5}, [5] * 3)],
)
def test_library_sizes_are_given_by_modality(given: dict[str, Any], expected: list[int], joint: TokenDiffusion) -> None:
    cells = joint.generate(n_cells=3, library_size=given, **OPTIONS)
    assert counts(cells, "rna").sum(1).tolist() == expected
    assert (counts(cells, "prot").sum(1) > 50).all()  # drawn as those of the training cells


def test_other_methods_return_all_modalities(joint: TokenDiffusion) -> None:
    deeper = joint.deepen(None, 2.0, indices=[3, 1], **OPTIONS)
    for name in ("rna", "prot"):
        own = counts(joint.adata, name)[[3, 1]]
        assert (counts(deeper, name) >= own).all()
        np.testing.assert_array_equal(counts(deeper, name).sum(1), 2 * own.sum(1))
    for keep in (None, 0.5):
        twins = joint.predict_perturbation(None, {"sort_of_cell": "b"}, indices=[5, 0], keep_fraction=keep, **OPTIONS)
        assert twins.obs["sort_of_cell"].tolist() == ["b", "b"] and twins.obs_names.tolist() == ["cell5", "cell0"]
        for name in ("rna", "prot"):
            np.testing.assert_array_equal(counts(twins, name).sum(1), counts(joint.adata, name)[[5, 0]].sum(1))


# One modality from another.


def test_imputation_keeps_given_molecules_and_ignores_the_target(joint: TokenDiffusion) -> None:
    cells = paired(30, seed=4)
    without = join({"rna": cells["rna"].copy()})
    without.obs["sort_of_cell"] = cells.obs["sort_of_cell"]
    imputed = joint.generate_modality(cells, "rna", "prot", expected=True, **OPTIONS)
    np.testing.assert_array_equal(counts(imputed, "rna"), counts(cells, "rna"))
    assert imputed.obs_names.equals(cells.obs_names) and imputed.obs["sort_of_cell"].equals(cells.obs["sort_of_cell"])
    same = joint.generate_modality(without, "rna", expected=True, **OPTIONS)
    np.testing.assert_array_equal(counts(imputed, "prot"), counts(same, "prot"))
    np.testing.assert_array_equal(imputed["prot"].layers["expected"], same["prot"].layers["expected"])


def test_cells_come_in_the_order_in_which_they_are_asked_for(joint: TokenDiffusion) -> None:
    sizes = np.arange(10, 20)
    chosen = np.random.default_rng(0).permutation(60)[:10]
    imputed = joint.generate_modality(
        None, "prot", "rna", indices=chosen, library_size=sizes, expected=True, batch_size=4, **OPTIONS
    )
    assert imputed.obs_names.tolist() == joint.adata.obs_names[chosen].tolist()
    np.testing.assert_array_equal(counts(imputed, "prot"), counts(joint.adata, "prot")[chosen])
    np.testing.assert_array_equal(counts(imputed, "rna").sum(1), sizes)
    np.testing.assert_allclose(imputed["rna"].layers["expected"].sum(1), sizes, rtol=1e-5)


def test_generated_counts_average_to_the_expected_ones(joint: TokenDiffusion) -> None:
    """By the tower property if the model is consistent; a small one is roughly so, at a given size."""
    draws = [
        counts(joint.generate_modality(None, "rna", indices=range(20), library_size=200, n_steps=8, seed=seed), "prot")
        for seed in range(40)
    ]
    expected = joint.generate_modality(
        None, "rna", indices=range(20), library_size=200, expected=True, n_steps=2, seed=0
    )["prot"].layers["expected"]
    assert np.corrcoef(np.mean(draws, axis=0).ravel(), expected.ravel())[0, 1] > 0.98


def test_library_sizes_of_the_target_follow_from_what_is_given() -> None:
    """Protein ten times deeper in type b, which only RNA shows: no label is registered."""
    mdata = paired(200)
    is_b = (mdata.obs["sort_of_cell"] == "b").to_numpy()
    mdata["prot"].X = sparse.csr_matrix(mdata["prot"].X.multiply(np.where(is_b, 10, 1)[:, None]))
    model = trained_model(mdata, 15, 20)
    imputed = model.generate_modality(paired(100, seed=9), "rna", "prot", **OPTIONS)
    found = np.log(counts(imputed, "prot").sum(1))
    of_b = (imputed.obs["sort_of_cell"] == "b").to_numpy()
    assert found[of_b].mean() - found[~of_b].mean() > np.log(10) / 2
    assert found[of_b].std() > 0.1  # with the spread that is left


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"given": "atac"}, "`given` names 'atac': the modalities of the model are"),
        ({"given": "rna", "target": "dna"}, "`target` names 'dna'"),
        ({"given": "rna", "target": "rna"}, "'rna' is in both `given` and `target`"),
        ({"given": ["rna", "prot"]}, "`target` names no modality"),
        ({"given": []}, "`given` names no modality"),
        ({"given": "rna", "library_size": {"rna": 5}}, "`library_size` names 'rna'"),
        ({"given": "rna", "library_size": 0}, "`library_size` holds 0"),
        ({"given": "rna", "n_steps": 0}, "`n_steps` is 0"),
    ],
)
def test_questions_that_make_no_sense(arguments: dict[str, Any], message: str, joint: TokenDiffusion) -> None:
    with pytest.raises(ValueError, match=message):
        joint.generate_modality(None, **arguments)


def test_one_modality_has_no_other_to_be_generated() -> None:
    mdata = join({"rna": paired()["rna"].copy()})
    model = trained_model(mdata, 1, 20)
    with pytest.raises(ValueError, match="`generate_modality` needs a model of several modalities"):
        model.generate_modality(None, "rna")


# Reading cells.


def test_what_is_said_of_genes_says_of_what_modality(joint: TokenDiffusion) -> None:
    expression = joint.get_normalized_expression(indices=[2, 0], library_size=100.0, silent=True)
    for name in ("rna", "prot"):
        assert expression[name].columns.tolist() == joint.adata[name].var_names.tolist()
        np.testing.assert_allclose(expression[name].sum(axis=1), 100, rtol=1e-5)
    one = joint.get_normalized_expression(indices=[2, 0], gene_list=[("prot", "protein3")], silent=True)
    np.testing.assert_allclose(one.to_numpy()[:, 0] * 100, expression["prot"]["protein3"], rtol=1e-4)
    with pytest.raises(ValueError, match=r"`gene_list` must hold pairs .* such as \('rna', 'gene1'\)"):
        joint.get_normalized_expression(gene_list=["gene1"])
    loadings = joint.get_token_loadings(method="readout")
    np.testing.assert_allclose(loadings.groupby(level=0).mean(), 0, atol=1e-5)  # a constant means nothing


def test_tokens_follow_from_whatever_modality_there_is(joint: TokenDiffusion) -> None:
    cells = paired(30, seed=4)
    whole = joint.get_latent_representation(cells, silent=True)
    only = {name: join({name: cells[name].copy()}) for name in ("rna", "prot")}
    parts = []
    for part in only.values():
        part.obs["sort_of_cell"] = cells.obs["sort_of_cell"]
        parts.append(joint.get_latent_representation(part, silent=True))
    assert whole.shape == parts[0].shape == parts[1].shape == (30, 16)
    assert not np.allclose(parts[0], parts[1]) and not np.allclose(whole, parts[0])


def test_the_bound_is_near_the_exact_likelihood_of_multinomials() -> None:
    """Cells of one type have fixed shares in each modality; trained long enough, the model knows them."""
    mdata = paired(150)
    model = trained_model(mdata, 40, 20, labels_key="sort_of_cell")
    bound = model.get_nll_bound(n_draws=16, seed=0, silent=True)["nll"].to_numpy()
    kind = (mdata.obs["sort_of_cell"] == "b").to_numpy().astype(int)
    cells = {name: counts(mdata, name) for name in shares()}
    exact = -sum(
        stats.multinomial.logpmf(cells[name], cells[name].sum(1), share[kind]) for name, share in shares().items()
    )
    assert exact.sum() < bound.sum() < exact.sum() * 1.25


@pytest.mark.parametrize("fixture", ["joint", "of_mosaic"])
def test_reading_works_for_all_cells(fixture: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(fixture)
    assert np.isfinite(model.get_nll_bound(seed=0, silent=True).to_numpy()).all()
    assert np.isfinite(model.get_latent_representation(silent=True)).all()
    assert model.get_token_activation(silent=True).shape == (60, 2)
    assert model.get_token_loadings(method="gradient", groupby="sort_of_cell").shape == (17, 4)
    assert model.get_token_adata(n_neighbors=None, silent=True).shape == (60, 2)


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.dose_response(None, "A", [1.0]),
        lambda model: model.get_token_contributions(),
    ],
)
def test_what_needs_one_anndata_says_so(ask: Callable[[TokenDiffusion], Any], joint: TokenDiffusion) -> None:
    with pytest.raises(ValueError, match=r"needs a model of one AnnData, .* registered with `setup_mudata`"):
        ask(joint)


def test_other_processes_take_one_modality() -> None:
    mdata = paired()
    TokenDiffusion.setup_mudata(mdata)
    with pytest.raises(ValueError, match="supports several modalities, .* with `process='thinning'`"):
        TokenDiffusion(mdata, process="gaussian")


def test_an_anndata_is_no_mudata(joint: TokenDiffusion, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="`mdata` is of type AnnData: pass a MuData"):
        joint.get_latent_representation(paired()["rna"])
    joint.save(tmp_path / "model")
    with pytest.raises(TypeError, match="`mdata` is of type AnnData: pass a MuData"):
        TokenDiffusion.load(tmp_path / "model", paired()["rna"], accelerator="cpu")


@pytest.mark.parametrize("sizes", [None, {"rna": 70, "prot": lambda table, rng: 40 + np.arange(len(table))}])
def test_cells_are_generated_into_a_file(joint: TokenDiffusion, tmp_path: Path, sizes: dict | None) -> None:
    table = pd.DataFrame({"sort_of_cell": ["a", "b"], "n_cells": [4, 6]})
    options = {"library_size": sizes, "chunk_size": 4, "n_steps": 4, "silent": True}
    path = joint.generate_to(tmp_path / "cells.h5mu", table, **options)
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        cells = read_h5mu(path)
    assert cells.obs["sort_of_cell"].tolist() == ["a"] * 4 + ["b"] * 6
    for name, part in cells.mod.items():
        assert part.var_names.tolist() == joint.get_var_names()[name].tolist() and part.X.dtype == np.int32
    if sizes is not None:
        assert counts(cells, "rna").sum(1).tolist() == [70] * 10
        assert counts(cells, "prot").sum(1).tolist() == [40, 41, 42, 43, 40, 41, 42, 43, 40, 41]
    assert joint.generate_to(path, table, **options) == path  # the same request
    with pytest.raises(ValueError, match=r"ends with '\.h5mu'"):
        joint.generate_to(tmp_path / "cells.h5ad", table)
    with pytest.raises(ValueError, match="`library_size` is 5, but there are several modalities"):
        joint.generate_to(tmp_path / "more.h5mu", table, library_size=5)


@pytest.mark.parametrize("fixture", ["joint", "of_mosaic"])
@pytest.mark.filterwarnings("ignore:.*needs .* cells:UserWarning")
def test_held_out_cells_are_evaluated_in_one_modality(fixture: str, request: pytest.FixtureRequest) -> None:
    model, real = request.getfixturevalue(fixture), paired(60, seed=3)
    options = {"n_steps": 4, "silent": True}
    found = {name: model.evaluate_held_out(real.copy(), modality=name, **options) for name in (None, "rna", "prot")}
    pd.testing.assert_frame_equal(found[None].scores.frame, found["rna"].scores.frame)
    pd.testing.assert_frame_equal(found["rna"].likelihood, found["prot"].likelihood)  # of all modalities
    assert found["rna"].likelihood.columns.tolist() == ["model", "multinomial", "dirichlet_multinomial"]
    named = " ".join(found["prot"].dispersion["genes"])
    assert "protein" in named and "gene" not in named
    nll, sizes = model.get_nll_bound(real.copy(), seed=0, silent=True)["nll"].sum(), 0
    sizes = sum(counts(real, name).sum() for name in real.mod)
    assert found["rna"].likelihood.loc["overall", "model"] == pytest.approx(nll / sizes, rel=0.05)
    with pytest.raises(ValueError, match=r"`modality` is 'atac': choose one of \[None, 'rna', 'prot'\]"):
        model.evaluate_held_out(modality="atac")


# Results in their places.


@pytest.mark.parametrize("make", [paired, mosaic])
def test_results_go_to_their_places(make: Callable[[], MuData], tmp_path: Path, joint: TokenDiffusion) -> None:
    mdata = make()
    joint.write_back(mdata, **OPTIONS)
    for name, modality in mdata.mod.items():
        twins = modality.obsm["X_generated"]
        assert twins.shape == modality.shape and twins.dtype == np.int32
        np.testing.assert_array_equal(twins.sum(1), modality.X.sum(1))  # the same depth, cell by cell
        np.testing.assert_array_equal(modality.varm["token_loadings"], joint.get_token_loadings().loc[name])
        assert modality.uns["scdiffgen"]["tokens"].tolist() == ["token_1", "token_2"]
        own = mdata.obs_names.get_indexer(modality.obs_names)
        np.testing.assert_array_equal(modality.obsm["X_tokens"], mdata.obsm["X_tokens"][own])
        scdiffgen.tl.rank_token_genes(modality, n_genes=1)
        best = modality.uns["rank_token_genes"]["names"]["token_1"][0]
        assert best == modality.var_names[modality.varm["token_loadings"][:, 0].argmax()]
    np.testing.assert_array_equal(mdata.obsm["X_tokens"], joint.get_latent_representation(mdata, silent=True))
    np.testing.assert_array_equal(mdata.obsm["X_token_activation"], joint.get_token_activation(mdata, silent=True))
    mdata.write(tmp_path / "cells.h5mu")
    read = read_h5mu(tmp_path / "cells.h5mu")
    np.testing.assert_array_equal(read["prot"].varm["token_loadings"], mdata["prot"].varm["token_loadings"])
    assert (read["rna"].obsm["X_generated"] != mdata["rna"].obsm["X_generated"]).nnz == 0


def test_muon_draws_tokens(joint: TokenDiffusion) -> None:
    muon = pytest.importorskip("muon")
    mdata = paired()
    joint.write_back(mdata, keys=["X_token_activation"], silent=True)
    axes = muon.pl.embedding(mdata, "X_token_activation", color="rna:gene1", show=False)
    points = np.concatenate([collection.get_offsets() for collection in axes.collections])
    assert {tuple(point) for point in points.round(4)} == {
        tuple(point) for point in mdata.obsm["X_token_activation"].astype(float).round(4)
    }


# Files.


@pytest.mark.parametrize("fixture", ["joint", "of_mosaic"])
@pytest.mark.parametrize("cells", ["given", "saved", "none"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_loaded_model_says_the_same(cells: str, fixture: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(fixture)
    model.save(tmp_path / "model", save_anndata=cells == "saved")
    given = {"given": model.adata.copy(), "saved": None, "none": False}[cells]
    loaded = TokenDiffusion.load(tmp_path / "model", given, accelerator="cpu")
    other = paired(10, seed=8)
    for ask in (
        lambda m: counts(m.generate({"sort_of_cell": "a"}, n_cells=4, **OPTIONS), "prot"),
        lambda m: counts(m.generate_modality(other.copy(), "rna", **OPTIONS), "prot"),
        lambda m: m.get_nll_bound(other.copy(), seed=0, silent=True).to_numpy(),
        lambda m: m.get_token_loadings().to_numpy(),
    ):
        np.testing.assert_array_equal(ask(loaded), ask(model))


def test_other_cells_keep_the_registration_through_saving_again(joint: TokenDiffusion, tmp_path: Path) -> None:
    """scvi-tools forgets that a model is one of a MuData when it gets other cells."""
    joint.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", paired(), accelerator="cpu")
    loaded.adata = paired(30, seed=5)
    loaded.save(tmp_path / "again")
    again = TokenDiffusion.load(tmp_path / "again", paired(30, seed=5), accelerator="cpu")
    np.testing.assert_array_equal(again.get_latent_representation(), loaded.get_latent_representation())
