"""Deeply measured modalities imputed by their regression, in a trained model: protein from RNA."""

from typing import Any

import numpy as np
import pytest
from mudata import MuData
from mudata_cells import join, mosaic, paired
from small_cells import trained_model

from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_summary import training_summary

OPTIONS: dict[str, Any] = {"n_steps": 4, "silent": True}


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    """A model of enough cells for a regression, of which some lack a modality; not to be changed, nor its cells."""
    return trained_model(mosaic(240), 2, 40)


def protein(model: TokenDiffusion, cells: MuData | None, seed: int = 0, **arguments: Any) -> np.ndarray:
    return model.generate_modality(cells, "rna", "prot", seed=seed, **OPTIONS, **arguments)["prot"].X.toarray()


def test_what_is_deep_is_regressed_on_the_rest_and_nothing_else_is(model: TokenDiffusion) -> None:
    fits = training_summary(model).deep_columns
    assert {given: list(of_given) for given, of_given in fits.items()} == {("rna",): ["prot"], ("prot",): []}
    assert not training_summary(trained_model(paired(60), 2, 40)).deep_columns[("rna",)]  # too few cells


def test_of_many_columns_there_is_no_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scdiffgen.module._group_sums.Panels.most_columns", 4)
    assert not training_summary(trained_model(paired(120), 2, 40)).deep_columns[("rna",)]


def test_imputed_protein_has_mean_and_spread_of_new_cells(model: TokenDiffusion) -> None:
    """Even after two epochs: types differ in both modalities, which the regression reads off the expression."""
    cells = paired(300, seed=7)
    real = np.log1p(cells["prot"].X.toarray())
    draws = np.log1p([protein(model, cells, seed) for seed in range(60)])
    imputed = model.generate_modality(cells, "rna", "prot", expected=True, seed=0, **OPTIONS)
    expected = np.log1p(imputed["prot"].layers["expected"])
    np.testing.assert_allclose(draws.mean(0), expected, atol=0.35)
    assert np.abs((draws.mean(0) - expected).mean(0)).max() < 0.1
    of_types = [real[(cells.obs["sort_of_cell"] == kind).to_numpy()] for kind in "ab"]
    residual = np.vstack([of_type - of_type.mean(0) for of_type in of_types])
    assert np.abs(expected - real).mean() < 1.15 * np.abs(residual).mean()
    low, high = np.quantile(draws, [0.1, 0.9], axis=0)
    assert 0.72 < ((real >= low) & (real <= high)).mean() < 0.88


def test_cells_without_what_is_given_get_protein_as_well(model: TokenDiffusion) -> None:
    assert (model.adata["rna"].n_obs, model.adata.n_obs) == (230, 240)
    imputed = model.generate_modality(None, "rna", "prot", expected=True, seed=0, **OPTIONS)["prot"]
    lacks = ~model.adata.obs_names.isin(model.adata["rna"].obs_names)
    assert lacks.sum() == 10 and (imputed.X.sum(1) > 0).all()
    assert np.isfinite(imputed.layers["expected"]).all() and (imputed.layers["expected"][lacks].sum(1) > 1).all()


def test_chosen_library_sizes_are_kept(model: TokenDiffusion) -> None:
    assert protein(model, paired(5), library_size=123).sum(1).tolist() == [123] * 5


def test_what_is_not_deep_is_drawn_beside_it() -> None:
    cells = paired(150)
    third = cells["rna"].copy()
    third.var_names = [f"peak{i}" for i in range(third.n_vars)]
    model = trained_model(join({"rna": cells["rna"].copy(), "prot": cells["prot"].copy(), "atac": third}), 2, 40)
    fits = training_summary(model).deep_columns
    assert all(list(of_given) == ([] if "prot" in given else ["prot"]) for given, of_given in fits.items())
    alone = join({"rna": cells["rna"].copy()})
    imputed = model.generate_modality(alone, "rna", expected=True, seed=0, **OPTIONS)
    assert (imputed["rna"].X != cells["rna"].X).nnz == 0
    for name in ("prot", "atac"):
        assert (imputed[name].X.sum(1) > 0).all() and (imputed[name].layers["expected"].sum(1) > 0).all()
