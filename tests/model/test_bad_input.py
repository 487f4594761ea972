"""Arguments are checked before any work is done, also by methods that the reliability suite does not ask."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_cells import SMALL, simulated_cells, small_model

from scdiffgen.model import TokenDiffusion


def test_genes_without_a_molecule_and_categories_of_one_cell_are_allowed() -> None:
    adata = simulated_cells()
    adata.X[:, 3] = 0
    adata.obs["cell_type"] = ["rare", *adata.obs["cell_type"][1:]]
    with pytest.warns(UserWarning, match=r"1 category with a single cell \('rare'\)"):
        model = small_model(adata)
    model.train(max_epochs=2, accelerator="cpu", enable_progress_bar=False)
    generated = model.generate({"cell_type": "rare"}, n_cells=20, n_steps=4, seed=0, silent=True)
    assert generated.X[:, 3].sum() < 0.02 * generated.X.sum()
    assert np.isfinite(model.get_nll_bound(silent=True)).all(axis=None)
    assert np.isfinite(model.get_token_loadings()).all(axis=None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "huge"}, "`preset` is 'huge': choose one of"),
        ({"process": "thining"}, "`process` is 'thining': choose one of"),
        ({"process": 3}, "`process` is 3: choose one of"),
        ({"condition_dropout": 1.0}, r"`condition_dropout` is 1.0: pass a share in \[0, 1\)"),
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
        lambda model: model.deepen(),
        lambda model: model.write_back(),
        lambda model: model.get_nll_bound(),
        lambda model: model.get_token_activation(),
        lambda model: model.get_token_loadings(),
        lambda model: model.predict_perturbation(None, {"cell_type": "a"}),
    ],
)
def test_a_model_that_is_not_trained(call: Callable[[TokenDiffusion], Any]) -> None:
    with pytest.raises(RuntimeError, match="not trained: call `train"):
        call(small_model())


A = {"cell_type": "a"}


def no_work(*_: Any) -> None:
    raise AssertionError("work was done before the arguments were checked")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"conditions": {"cell_type": "c"}}, "'c' was not registered; the registered categories are 'a', 'b'"),
        ({"conditions": pd.DataFrame({"cell_type": ["a"], "n_cells": [0]}), "n_cells": None}, "`n_cells` is 0: pass"),
        ({"n_cells": -3}, "`n_cells` is -3: pass a positive integer"),
        ({"n_steps": 0}, "`n_steps` is 0: pass a whole number of at least 1"),
        ({"batch_size": 0}, "`batch_size` is 0"),
        ({"seed": 1.5}, "`seed` is 1.5"),
        ({"guidance_scale": {"cell_type": -1}}, "`guidance_scale` is -1"),
        ({"guidance_scale": {"batch": 2.0}}, "`guidance_scale` names 'batch', but the conditions given are"),
        ({"library_size": [5, np.nan]}, "`library_size` holds nan"),
        ({"library_size": True}, "`library_size` holds values of type bool"),
        ({"library_size": lambda table, rng: np.zeros(len(table))}, "`library_size` holds 0.0"),
    ],
)
def test_generation_checks_its_arguments_before_any_work(
    arguments: dict[str, Any], message: str, small: TokenDiffusion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scdiffgen.diffusion._molecules.add_molecules", no_work)
    with pytest.raises(ValueError, match=message):
        small.generate(**{"conditions": A, "n_cells": 2, **arguments})


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (np.zeros(120, dtype=bool), "`indices` selects no cell"),
        ([0, 120], "`indices` holds 120, but there are 120 cells"),
        ([0.0, 1.0], "values of type float64"),
        (np.ones(119, dtype=bool), r"type bool in the shape \(119,\)"),
        (3, r"in the shape \(\)"),
    ],
)
def test_every_method_that_reads_cells_checks_positions(indices: Any, message: str, small: TokenDiffusion) -> None:
    for method in (small.get_latent_representation, small.get_nll_bound, small.get_token_activation, small.deepen):
        with pytest.raises(ValueError, match=message):
            method(indices=indices)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.deepen(factor=np.inf), "`factor` is inf"),
        (lambda model: model.deepen(factor="2"), "`factor` is '2'"),
        (lambda model: model.deepen(n_steps=0), "`n_steps` is 0"),
        (lambda model: model.get_nll_bound(n_draws=0), "`n_draws` is 0"),
        (lambda model: model.get_nll_bound(batch_size=0), "`batch_size` is 0"),
        (lambda model: model.get_normalized_expression(library_size=0), "`library_size` is 0: pass a positive number"),
        (lambda model: model.get_normalized_expression(gene_list="gene1"), r"pass a list of genes, \['gene1'\]"),
        (lambda model: model.write_back(model.adata[:5]), "`adata` is a view"),
        (
            lambda model: model.predict_perturbation(None, pd.DataFrame({"cell_type": [*"ab"]})),
            "`conditions` has 2 rows",
        ),
        (lambda model: model.predict_perturbation(None, A, guidance_scale={"drug": 2}), "names 'drug'"),
        (lambda model: model.dose_response(None, "A", [1.0]), "No doses were registered"),
    ],
)
def test_arguments_that_cannot_be(call: Callable[[TokenDiffusion], Any], message: str, small: TokenDiffusion) -> None:
    with pytest.raises(ValueError, match=message):
        call(small)
