"""What cannot be right is named before any work is done, and leaves the data as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from small_cells import SMALL, simulated_cells, small_model

from scdiffgen.diffusion import UrnPrediction
from scdiffgen.model import TokenDiffusion


def with_value(value: float) -> Callable[[AnnData], None]:
    def spoil(adata: AnnData) -> None:
        adata.X[3, 5] = value

    return spoil


def in_obs(column: str, cell: int, value: Any) -> Callable[[AnnData], None]:
    def spoil(adata: AnnData) -> None:
        values = adata.obs[column].astype(object)
        values.iloc[cell] = value
        adata.obs[column] = values

    return spoil


def empty_cell(adata: AnnData) -> None:
    adata.X[4] = 0


def log_normalised(adata: AnnData) -> None:
    adata.X = np.log1p(adata.X / adata.X.sum(1, keepdims=True) * 1e4)


def names_twice(axis: str) -> Callable[[AnnData], None]:
    def spoil(adata: AnnData) -> None:
        names = getattr(adata, f"{axis}_names").tolist()
        setattr(adata, f"{axis}_names", [names[1], *names[1:]])

    return spoil


@pytest.mark.parametrize(
    ("spoil", "arguments", "message"),
    [
        (with_value(0.5), {}, "1 fractional of its values .first: 0.5 in cell 'cell3', gene 'gene5'"),
        (with_value(-2), {}, "1 negative of its values .first: -2 in cell 'cell3', gene 'gene5'"),
        (with_value(np.nan), {}, "1 not finite of its values .first: nan in cell 'cell3', gene 'gene5'"),
        (with_value(np.inf), {}, "1 not finite"),
        (log_normalised, {}, "does not hold molecule counts: .* fractional of its values"),
        (empty_cell, {}, "1 cell without a single molecule .'cell4'."),
        (names_twice("obs"), {}, "`adata.obs_names` are not unique: 'cell1'"),
        (names_twice("var"), {}, "`adata.var_names` are not unique: 'gene1'"),
        (in_obs("cell_type", 2, None), {}, "`labels_key='cell_type'`: 1 cell of 100 has no value .first: cell 'cell2'"),
        (in_obs("batch", 2, np.nan), {"batch_key": "batch"}, "`batch_key='batch'`: 1 cell of 100 has no value"),
        (in_obs("age", 2, "old"), {"continuous_covariate_keys": ["age"]}, "'old' in cell 'cell2' is no number"),
        (in_obs("age", 2, np.inf), {"continuous_covariate_keys": ["age"]}, "inf in cell 'cell2' is infinite"),
    ],
)
def test_cells_that_cannot_be_learned_from(
    spoil: Callable[[AnnData], None], arguments: dict[str, Any], message: str
) -> None:
    adata = simulated_cells()
    spoil(adata)
    before = adata.copy()
    with pytest.raises(ValueError, match=message):
        TokenDiffusion.setup_anndata(adata, labels_key="cell_type", **arguments)
    np.testing.assert_array_equal(adata.X, before.X)
    assert list(adata.obs) == list(before.obs) and list(adata.obsm) == list(before.obsm)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"labels_key": "celltype"}, KeyError, "`labels_key`: 'celltype' is not a column .* Did you mean 'cell_type'"),
        ({"batch_key": "plate"}, KeyError, "`batch_key`: 'plate' is not a column"),
        ({"layer": "counts"}, KeyError, "`layer='counts'` is not in `adata.layers`"),
        ({"continuous_covariate_keys": ["dose"]}, KeyError, "'dose' is not a column"),
        ({"continuous_covariate_keys": "age"}, TypeError, r"write `continuous_covariate_keys=\['age'\]`"),
        (
            {"labels_key": "cell_type", "batch_key": "cell_type"},
            ValueError,
            "would stand for more than one",
        ),
        ({"dose_key": "age"}, ValueError, "needs `perturbation_key`"),
        ({"perturbation_key": "guide"}, KeyError, "'guide' is not a column"),
        ({"hierarchy_keys": ["cell_type", "leaf"]}, KeyError, "'leaf' is not a column"),
    ],
)
def test_columns_that_are_not_there(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TokenDiffusion.setup_anndata(simulated_cells(), **arguments)


def test_views_are_refused() -> None:
    with pytest.raises(ValueError, match="copy"):
        TokenDiffusion.setup_anndata(simulated_cells()[:50], labels_key="cell_type")


def test_genes_without_a_molecule_and_categories_of_one_cell_are_allowed() -> None:
    adata = simulated_cells()
    adata.X[:, 3] = 0
    adata.obs["cell_type"] = ["rare", *adata.obs["cell_type"][1:]]
    with pytest.warns(UserWarning, match=r"1 category with a single cell \('rare'\)"):
        model = small_model(adata)
    model.train(max_epochs=2, accelerator="cpu", enable_progress_bar=False)
    made = model.generate({"cell_type": "rare"}, n_cells=20, n_steps=4, seed=0, silent=True)
    assert made.X[:, 3].sum() < 0.02 * made.X.sum()
    assert np.isfinite(model.get_nll(silent=True)).all(axis=None)
    assert np.isfinite(model.get_token_loadings()).all(axis=None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "huge"}, "`preset` is 'huge': choose one of"),
        ({"process": "thining"}, "`process` is 'thining': choose one of"),
        ({"process": 3}, "`process` is 3: choose one of"),
        ({"withhold_rate": 1.0}, r"`withhold_rate` is 1.0: pass a share in \[0, 1\)"),
        ({"n_tokens": 0}, "`n_tokens` is 0"),
    ],
)
def test_models_that_cannot_be_made(arguments: dict[str, Any], message: str) -> None:
    adata = simulated_cells()
    TokenDiffusion.setup_anndata(adata, labels_key="cell_type")
    with pytest.raises(ValueError, match=message):
        TokenDiffusion(adata, **{**SMALL, **arguments})


def test_cells_that_are_not_registered() -> None:
    with pytest.raises(ValueError, match="set up your AnnData with TokenDiffusion.setup_anndata"):
        TokenDiffusion(simulated_cells())


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.generate(n_cells=1),
        lambda model: model.deepen(),
        lambda model: model.write_back(),
        lambda model: model.get_nll(),
        lambda model: model.get_normalized_expression(),
        lambda model: model.get_latent_representation(),
        lambda model: model.get_token_activation(),
        lambda model: model.get_token_loadings(),
        lambda model: model.predict_perturbation(None, {"cell_type": "a"}),
        lambda model: model.interpolate({"cell_type": "a"}, {"cell_type": "b"}),
        lambda model: model.get_condition_embedding({"cell_type": "a"}),
    ],
)
def test_a_model_that_is_not_trained(call: Callable[[TokenDiffusion], Any]) -> None:
    with pytest.raises(RuntimeError, match="not trained: call `train"):
        call(small_model())


A = {"cell_type": "a"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"conditions": {"celltype": "a"}}, "'celltype' is not a registered condition .* Did you mean 'cell_type'"),
        ({"conditions": {"cell_type": "c"}}, "'c' was not registered; the registered categories are 'a', 'b'"),
        ({"conditions": {"batch": "z"}}, "Condition 'batch': 'z' was not registered"),
        ({"conditions": {"age": "old"}}, "'old' in cell 0"),
        ({"conditions": {"cell_type": ["a", "b"]}}, "holds several values"),
        ({"conditions": pd.DataFrame({"cell_type": []})}, "has no rows"),
        ({"conditions": pd.DataFrame({"cell_type": ["a"], "n_cells": [0]}), "n_cells": None}, "got 0"),
        ({"n_cells": 0}, "`n_cells` must be a positive integer, got 0"),
        ({"n_cells": -3}, "got -3"),
        ({"n_cells": 2.5}, "got 2.5"),
        ({"n_steps": 0}, "`n_steps` is 0: pass a whole number of at least 1"),
        ({"batch_size": 0}, "`batch_size` is 0"),
        ({"seed": -1}, "`seed` is -1: pass a whole number of at least 0"),
        ({"seed": 1.5}, "`seed` is 1.5"),
        ({"guidance_scale": -0.1}, "`guidance_scale` is -0.1: pass a number of at least 0"),
        ({"guidance_scale": np.nan}, "`guidance_scale` is nan"),
        ({"guidance_scale": {"cell_type": -1}}, "`guidance_scale` is -1"),
        ({"guidance_scale": {"batch": 2.0}}, "`guidance_scale` names 'batch', but the conditions given are"),
        ({"guidance_scale": "strong"}, "`guidance_scale` is 'strong'"),
        ({"library_size": 0}, "`library_size` holds 0: pass numbers of molecules, at least 1"),
        ({"library_size": [5, np.nan]}, "`library_size` holds nan"),
        ({"library_size": [5, 6, 7]}, r"`library_size` has shape \(3,\): pass one number, or one for each of 2 cells"),
        ({"library_size": "deep"}, "`library_size` holds values of type"),
        ({"library_size": True}, "`library_size` holds values of type bool"),
        ({"library_size": lambda table, rng: np.zeros(len(table))}, "`library_size` holds 0.0"),
    ],
)
def test_cells_that_cannot_be_generated(
    arguments: dict[str, Any], message: str, small: TokenDiffusion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UrnPrediction, "draw", no_work)
    with pytest.raises(ValueError, match=message):
        small.generate(**{"conditions": A, "n_cells": 2, **arguments})


def no_work(*_: Any) -> None:
    raise AssertionError("work was done before the arguments were checked")


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "`indices` chooses no cell"),
        (np.zeros(120, dtype=bool), "`indices` chooses no cell"),
        ([0, 120], "`indices` holds 120, but there are 120 cells"),
        ([-121], "`indices` holds -121"),
        ([0.0, 1.0], "values of type float64"),
        (["cell1"], "must be positions of cells or a mask of all 120"),
        (np.ones(119, dtype=bool), r"type bool in the shape \(119,\)"),
        (3, r"in the shape \(\)"),
    ],
)
def test_cells_that_are_not_there(indices: Any, message: str, small: TokenDiffusion) -> None:
    for method in (small.get_latent_representation, small.get_nll, small.get_token_activation, small.deepen):
        with pytest.raises(ValueError, match=message):
            method(indices=indices)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.deepen(factor=0.9), "`factor` is 0.9: pass a number of at least 1"),
        (lambda model: model.deepen(factor=np.inf), "`factor` is inf"),
        (lambda model: model.deepen(factor="2"), "`factor` is '2'"),
        (lambda model: model.deepen(n_steps=0), "`n_steps` is 0"),
        (lambda model: model.get_nll(n_draws=0), "`n_draws` is 0"),
        (lambda model: model.get_nll(batch_size=0), "`batch_size` is 0"),
        (lambda model: model.get_normalized_expression(library_size=0), "`library_size` is 0: pass a positive number"),
        (lambda model: model.get_normalized_expression(genes=["zzz"]), r"`genes` names \['zzz'\]"),
        (lambda model: model.get_normalized_expression(genes="gene1"), r"pass a list of genes, \['gene1'\]"),
        (lambda model: model.get_normalized_expression(transform_batch="z"), "'z' was not registered"),
        (lambda model: model.write_back(keys=["X_umap"]), r"`keys` names \['X_umap'\]: choose from"),
        (lambda model: model.write_back(model.adata[:5]), "`adata` is a view"),
        (lambda model: model.predict_perturbation(None, A, keep=1.0), r"`keep` is 1.0: pass a share"),
        (lambda model: model.predict_perturbation(None, {"cell_type": "q"}), "'q' was not registered"),
        (
            lambda model: model.predict_perturbation(None, pd.DataFrame({"cell_type": [*"ab"]})),
            "`conditions` has 2 rows",
        ),
        (lambda model: model.predict_perturbation(None, A, guidance_scale={"drug": 2}), "names 'drug'"),
        (lambda model: model.interpolate(A, A, n_points=1), "a path has at least its two ends"),
        (lambda model: model.interpolate(A, A, n_cells=0), "`n_cells` is 0"),
        (lambda model: model.dose_response(None, "A", [1.0]), "No doses were registered"),
    ],
)
def test_arguments_that_cannot_be(call: Callable[[TokenDiffusion], Any], message: str, small: TokenDiffusion) -> None:
    with pytest.raises(ValueError, match=message):
        call(small)
