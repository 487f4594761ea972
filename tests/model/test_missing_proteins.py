"""A protein that one batch's panel lacks, in trained models: it is missing there, not zero."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mudata import MuData
from mudata_cells import paired
from scipy import sparse
from small_cells import QUIET, SMALL, trained_model

from scdiffgen.data import registered_conditions
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_summary import are_training_cells, measured_only, training_summary

OPTIONS: dict[str, Any] = {"n_steps": 8, "seed": 0, "silent": True}
SETUP = {"labels_key": "sort_of_cell", "batch_key": "site"}
WARNING = r"'site'.*are treated as missing there.*'protein3' of 'prot' in 'y'"
LACKED = 3


def planted(n_cells: int = 400) -> tuple[MuData, np.ndarray]:
    """Cells of two sites, of which the second lacks a protein, and all proteins."""
    mdata = paired(n_cells)
    mdata.obs["site"] = np.where(np.arange(n_cells) % 2, "y", "x")
    truth = mdata["prot"].X.toarray()
    truth[:, LACKED] = np.random.default_rng(3).poisson(np.where(mdata.obs["sort_of_cell"] == "a", 120, 60))
    observed = truth.copy()
    observed[1::2, LACKED] = 0
    mdata["prot"].X = observed  # registration stores it by rows
    return mdata, truth


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    with pytest.warns(UserWarning, match=WARNING) as caught:
        trained = trained_model(planted()[0], 12, 40, **SETUP)
    assert len([warning for warning in caught if "missing there" in str(warning.message)]) == 1
    return trained


def by_type_and_site(cells: MuData, counts: np.ndarray) -> np.ndarray:
    """Mean counts of the protein ``(types, sites)``."""
    keys = [cells.obs["sort_of_cell"].astype(str).to_numpy(), cells.obs["site"].astype(str).to_numpy()]
    rows = [[(keys[0] == kind) & (keys[1] == site) for site in "xy"] for kind in "ab"]
    return np.array([[counts[cells, LACKED].mean() for cells in row] for row in rows])


def test_it_is_imputed_and_generated_in_both_batches(model: TokenDiffusion) -> None:
    cells, truth = model.adata, planted()[1]
    imputed = model.generate_modality(cells, "rna", "prot", expected=True, **OPTIONS)["prot"]
    real = by_type_and_site(cells, truth)
    for counts in (imputed.layers["expected"], imputed.X.toarray()):
        np.testing.assert_allclose(by_type_and_site(cells, counts), real, rtol=0.2)
    generated = model.generate(cells.obs[["sort_of_cell", "site"]], **OPTIONS)["prot"].X.toarray()
    np.testing.assert_allclose(
        by_type_and_site(cells, generated)[:, 1], by_type_and_site(cells, generated)[:, 0], rtol=0.2
    )


def test_library_sizes_are_those_of_the_full_panel(model: TokenDiffusion) -> None:
    cells, truth = model.adata, planted()[1]
    rows = np.sort(np.concatenate([model.train_indices, model.validation_indices]))
    sizes = training_summary(model).library[:, 1]
    without = cells["prot"].X.sum(1)[rows]
    lacks = rows % 2 == 1
    np.testing.assert_array_equal(sizes[~lacks], without[~lacks])
    real = truth.sum(1)[rows]
    assert abs(sizes[lacks].mean() - real[lacks].mean()) < 0.3 * abs(without[lacks].mean() - real[lacks].mean())


def test_expression_is_predicted_where_it_is_missing(model: TokenDiffusion) -> None:
    expression = model.get_normalized_expression(model.adata, silent=True)["prot"].to_numpy()
    shares = by_type_and_site(model.adata, expression)
    np.testing.assert_allclose(shares[:, 1], shares[:, 0], rtol=0.3)


def test_panels_are_saved_and_loaded(model: TokenDiffusion, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    with warnings.catch_warnings(action="error", category=UserWarning):
        loaded = TokenDiffusion.load(tmp_path / "model", model.adata, accelerator="cpu")
    draws = [each.generate_modality(None, "rna", "prot", **OPTIONS)["prot"].X for each in (model, loaded)]
    assert (draws[0] != draws[1]).nnz == 0
    nll = [np.asarray(each.get_nll_bound(seed=0, silent=True)) for each in (model, loaded)]
    np.testing.assert_array_equal(*nll)


def test_few_cells_and_a_model_without_batches_are_trained() -> None:
    cells = planted(80)[0]
    with pytest.warns(UserWarning, match=WARNING):
        few = trained_model(cells, 2, 40, **SETUP)
    assert not training_summary(few).deep_columns["rna",]
    drawn = few.generate_modality(cells, "rna", "prot", expected=True, **OPTIONS)["prot"]
    assert drawn.X[1::2, LACKED].mean() > 20 and drawn.layers["expected"][1::2, LACKED].mean() > 20
    with warnings.catch_warnings(action="error", category=UserWarning):
        TokenDiffusion.setup_mudata(cells, labels_key="sort_of_cell")
        TokenDiffusion(cells, **SMALL).train(max_epochs=1, batch_size=40, **QUIET)


def test_held_out_cells_are_compared_in_the_features_of_their_panel(model: TokenDiffusion) -> None:
    """Library sizes are those of the full panel, and real cells lack the protein at the second site."""
    found = model.evaluate_held_out(modality="prot", **OPTIONS)
    assert found.scores.frame.loc[("overall", "generated"), "n"] > 10
    known = training_summary(model)
    assert not are_training_cells(model, known.library[::-1])
    counts = sparse.csr_matrix(np.ones((4, model.module.n_vars), dtype=np.int32))
    given = registered_conditions(model.adata_manager, np.arange(4))
    kept = measured_only(model, counts, given.to(model.device)).toarray()
    lacked = model.get_var_names(legacy_mudata_format=True) == "protein3"
    np.testing.assert_array_equal(kept, np.where(lacked & (np.arange(4) % 2 == 1)[:, None], 0, 1))
