"""Warnings and messages where a result would otherwise mislead without a word."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData, read_h5ad
from small_cells import simulated_cells, trained_model

from scdiffgen.metrics import evaluate
from scdiffgen.model import TokenDiffusion
from scdiffgen.responses import _pseudobulks

KEYS = {"perturbation_key": "drug", "control": "DMSO", "dose_key": "dose"}


def screen(n_cells: int = 240) -> AnnData:
    """Cells of types and batches, half of them treated with a drug at dose 1."""
    adata = simulated_cells(n_cells)
    adata.obs["drug"] = np.resize(["DMSO", "X"], n_cells)
    adata.obs["dose"] = np.resize([0.0, 1.0], n_cells)
    return adata


def test_training_warns_that_pseudobulks_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pseudobulks, "LARGEST", 10)
    with pytest.warns(UserWarning, match="Sums of 2 groups of cells over 20 genes need too much memory"):
        trained_model(screen(), **KEYS)


def test_a_screen_without_cells_of_the_control_is_trained_with_a_warning() -> None:
    adata = simulated_cells(240, n_labels=3)
    adata.obs["drug"] = np.resize(["DMSO", "X"], 240)
    with pytest.warns(UserWarning, match="no cell is a control.*Did you mean 'DMSO'"):
        assert trained_model(adata, labels_key="cell_type", perturbation_key="drug", control="dmso").is_trained


def predict(model: TokenDiffusion, conditions: dict, **options) -> AnnData:
    return model.predict_perturbation(None, conditions, n_steps=2, silent=True, **options)


def test_treatment_and_batch_that_change_together_warn_and_are_marked() -> None:
    model = trained_model(screen(), batch_key="batch", labels_key="cell_type", **KEYS)
    control, to_drug = np.flatnonzero(model.adata.obs["drug"] == "DMSO"), {"drug": "X", "dose": 1.0}
    with pytest.warns(UserWarning, match=r"`conditions` changes 'batch' and 'drug' together.*or call `transfer_batch`"):
        moved = predict(model, {**to_drug, "batch": "x"}, indices=control)
    with pytest.warns(UserWarning, match="changes 'cell_type' and 'drug' together.*Leave out 'cell_type'"):
        predict(model, {**to_drug, "cell_type": "a"}, indices=control)
    assert set(moved.obs["response_source"]) == {"resampled"}
    assert set(predict(model, {"cell_type": "a"}).obs["response_source"]) == {"resampled"}
    own = control[(model.adata.obs["batch"].iloc[control] == "x").to_numpy()]
    same_batch = predict(model, {**to_drug, "batch": "x"}, indices=own)
    assert set(same_batch.obs["response_source"]) == {"own"}


def test_cells_that_are_treated_already_are_counted() -> None:
    model = trained_model(screen(), labels_key="cell_type", **KEYS)
    treated, control = (np.flatnonzero(model.adata.obs["drug"] == name) for name in ("X", "DMSO"))
    message = (
        r"120 of 240 cells have a treatment already \(first: 'cell1'\).*Pass control cells, as `adata` or by `indices`"
    )
    with pytest.warns(UserWarning, match=message):
        predicted = predict(model, {"drug": "X", "dose": 1.0})
    np.testing.assert_array_equal(predicted.X[treated].toarray(), model.adata.X[treated])
    with warnings.catch_warnings(action="error", category=UserWarning):
        predict(model, {"drug": "X", "dose": 1.0}, indices=control)
        predict(model, {"drug": "DMSO", "dose": 0.0})
        predict(model, {"cell_type": "a"})


@pytest.mark.filterwarnings("default:.* has treatments that no measured response predicts:UserWarning")
def test_a_guide_that_never_occurs_alone_is_drawn_by_the_network_with_a_warning() -> None:
    adata = simulated_cells(240)
    adata.obs["guide"] = np.resize(["control", "A+B", "A+C", "B+C"], 240)
    model = trained_model(adata, labels_key="cell_type", perturbation_key="guide")
    controls = np.flatnonzero(adata.obs["guide"] == "control")
    with pytest.warns(UserWarning, match="treatments that no measured response predicts: the network draws"):
        assert set(predict(model, {"guide": "A"}, indices=controls).obs["response_source"]) == {"network"}
    with pytest.warns(UserWarning, match="treatments that no measured response predicts: the network draws"):
        model.generate({"guide": "A"}, 2, n_steps=2, silent=True)


def test_counts_that_are_read_from_another_place_than_registered_are_named() -> None:
    adata = simulated_cells(60)
    adata.layers["counts"] = adata.X.copy()
    model = trained_model(adata, layer="counts", labels_key="cell_type")
    new = simulated_cells(20, seed=1)
    with pytest.warns(UserWarning, match=r"counts are read from `adata.X` instead of `layer='counts'`"):
        model.get_token_activation(new, silent=True)
    with warnings.catch_warnings(action="error", category=UserWarning):
        model.get_token_activation(model.generate(n_cells=3, n_steps=2), silent=True)


def test_cells_whose_counts_changed_in_place_are_neither_saved_nor_evaluated(tmp_path: Path) -> None:
    adata = simulated_cells(60)
    model = trained_model(adata, labels_key="cell_type")
    adata.X = np.log1p(adata.X)
    for ask in (
        lambda: model.save(tmp_path / "model", save_anndata=True),
        lambda: model.evaluate_held_out(silent=True),
    ):
        with pytest.raises(ValueError, match=r"`adata.X` .* does not hold molecule counts: .* fractional"):
            ask()
    assert not any(tmp_path.iterdir())


def test_generated_cells_name_the_source_of_their_response(tmp_path: Path) -> None:
    measured = (adata := screen())[(adata.obs["cell_type"] != "b") | (adata.obs["drug"] == "DMSO")].copy()
    model = trained_model(measured, labels_key="cell_type", **KEYS)
    table = pd.DataFrame({"cell_type": ["a", "b", "b"], "drug": ["X", "X", "DMSO"], "dose": [1.0, 1.0, 0.0]})
    path = model.generate_to(tmp_path / "cells.h5ad", table, chunk_size=2, n_steps=2, silent=True)
    for cells in (model.generate(table, n_steps=2), read_h5ad(path)):
        assert cells.obs["response_source"].astype(object).fillna("").tolist() == ["own", "transferred", ""]
    assert "drug with doses" in str(model)
    predicted = predict(model, {"drug": "X", "dose": 1.0}, indices=np.flatnonzero(measured.obs["cell_type"] == "b"))
    assert set(predicted.obs["response_source"]) == {"transferred"}
    assert "response_source" not in trained_model(adata, labels_key="cell_type").generate(n_cells=2, n_steps=2).obs


def test_training_cells_are_not_accepted_as_held_out_cells_without_a_warning() -> None:
    train, real, generated = (simulated_cells(60, seed=seed) for seed in range(3))
    options = {"metrics": "mmd", "n_pcs": 5, "n_bootstrap": 0, "sources": "generated", "silent": True}
    copied = train[:20, ::-1].copy()  # genes are aligned by name
    with pytest.warns(UserWarning, match="20 of 20 real cells are also training cells"):
        evaluate(copied, generated, train, **options)
    with warnings.catch_warnings(action="error", category=UserWarning):
        evaluate(real, generated, train, **options)
    model = trained_model(train.copy())
    with pytest.warns(UserWarning, match=r"of 60 real cells are also training cells.*Pass held-out"):
        model.evaluate_held_out(train, n_steps=2, silent=True)


def test_unknown_arguments_of_a_model_name_the_closest_one() -> None:
    for name, way_out in (("n_token", " Did you mean 'n_tokens'"), ("n", "$")):
        with pytest.raises(TypeError, match=f"`TokenDiffusion` has no argument '{name}'.{way_out}"):
            TokenDiffusion(screen(), **{name: 4})


def test_missing_values_written_as_text_warn() -> None:
    adata = simulated_cells(60)
    adata.obs["cell_type"] = adata.obs["cell_type"].astype(str)
    adata.obs.loc[adata.obs_names[:25], "cell_type"] = "nan"
    adata.obs["donor"] = np.resize(["d1", "None"], 60)
    with pytest.warns(UserWarning) as caught:
        TokenDiffusion.setup_anndata(adata, labels_key="cell_type", categorical_covariate_keys=["donor"])
    said = [str(warning.message) for warning in caught]
    assert any("`labels_key='cell_type'`: 'nan' (25 cells) is probably a missing value" in text for text in said)
    assert any("`categorical_covariate_keys='donor'`: 'None' (30 cells) is probably" in text for text in said)
    adata.obs["donor"] = np.resize(["nano", "nonesuch"], 60)
    with warnings.catch_warnings(action="error", category=UserWarning):
        TokenDiffusion.setup_anndata(adata, categorical_covariate_keys=["donor"])


def test_doses_beyond_the_registered_ones_warn_without_drawn_cells_too() -> None:
    adata = screen()
    adata.obs["dose"] = np.where(adata.obs["drug"] == "X", 0.1, 0.0)  # not a number of single precision
    model = trained_model(adata, **KEYS)
    beyond = r"`conditions` has doses of 'X' beyond the largest registered one, 0\.1"
    with pytest.warns(
        UserWarning, match=r"The response to 'X': doses beyond the largest measured dose, 0\.1, have its"
    ):
        model.get_mean_response(pd.DataFrame({"drug": ["X", "X"], "dose": [0.1, 5.0]}))
    with pytest.warns(UserWarning, match=beyond):
        model.generate({"drug": "X", "dose": 5.0}, 2, n_steps=2, silent=True)
    with pytest.raises(ValueError, match=r"`conditions` names no perturbation \('drug'\): add it"):
        model.get_mean_response(None)
    with warnings.catch_warnings(action="error", category=UserWarning):
        inside = pd.DataFrame({"drug": ["X", "X", "DMSO", None], "dose": [0.1, 0.05, 0.0, None]})
        model.get_mean_response(inside)
        model.generate(inside, silent=True, n_steps=2)
