"""What is asked of each model: a table of calls, each a function of a freshly loaded model and its cells."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import anndata
import numpy as np
import pandas as pd
import scvi
from _pin_setups import SETUPS, TRAINING, Cells, Setup
from anndata import AnnData
from scipy import sparse

from scdiffgen.model import TokenDiffusion

Call = Callable[[TokenDiffusion, Any], Any]

STEPS = {"n_steps": 4, "seed": 0}
QUIET = {**STEPS, "silent": True}
FEW = np.arange(5, 45)


def calls_of(name: str) -> dict[str, Call]:
    """The calls of a set-up, by name."""
    setup = SETUPS[name]
    return {**common(setup), **({} if "process" in setup.model else THINNING), **OWN[name]}


def weights(model: TokenDiffusion) -> dict[str, np.ndarray]:
    """All weights and buffers by name."""
    return {name: value.cpu().numpy() for name, value in model.module.state_dict().items()}


def written_back(model: TokenDiffusion, cells: Cells, **options: Any) -> Cells:
    model.write_back(cells, **QUIET, **options)
    return cells


def generated_to(model: TokenDiffusion, conditions: Any, n_cells: int | None, **options: Any) -> AnnData:
    with tempfile.TemporaryDirectory() as folder:
        path = model.generate_to(f"{folder}/cells.h5ad", conditions, n_cells, **QUIET, **options)
        return anndata.read_h5ad(path)


def saved_again(model: TokenDiffusion, conditions: Any) -> Cells:
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        return TokenDiffusion.load(f"{folder}/model", False).generate(conditions, 10, **QUIET)


def trained_on(model: TokenDiffusion, conditions: Any) -> dict[str, Any]:
    scvi.settings.seed = 1
    model.train(**{**TRAINING, "max_epochs": 2})
    return {"weights": weights(model), "history": model.history, "cells": model.generate(conditions, 10, **QUIET)}


def from_now_on(model: TokenDiffusion, conditions: Any) -> Cells:
    """Without a seed the randomness follows that of scvi-tools."""
    scvi.settings.seed = 2
    return model.generate(conditions, 10, n_steps=4, seed=None, silent=True)


def queried(model: TokenDiffusion, new: AnnData, conditions: Any, **options: Any) -> dict[str, Any]:
    scvi.settings.seed = 1
    query = TokenDiffusion.load_query_data(new, model, **options)
    before = query.generate(conditions, 10, **QUIET)
    query.train(**{**TRAINING, "max_epochs": 2, "batch_size": 32})
    return {"before": before, "weights": weights(query), "cells": query.generate(conditions, 10, **QUIET)}


def with_new_type(cells: AnnData) -> AnnData:
    new = cells[:100].copy()
    new.obs["cell_type"] = np.where(np.arange(100) % 2, "new type", new.obs["cell_type"].astype(str))
    return new


def with_new_genes(cells: AnnData) -> AnnData:
    new = cells[:100].copy()
    counts = sparse.csr_matrix(np.random.default_rng(0).poisson(1.0, (100, 5)), dtype=np.float32)
    names = [*new.var_names, *(f"new_gene_{i}" for i in range(5))]
    joined = sparse.hstack([new.layers["counts"], counts], format="csr")
    return AnnData(joined, obs=new.obs.copy(), var=pd.DataFrame(index=names), layers={"counts": joined.copy()})


def with_new_perturbation(cells: AnnData) -> AnnData:
    new = cells[cells.obs["perturbation"].isin(["control", "A"])][:150].copy()
    new.obs["perturbation"] = new.obs["perturbation"].astype(str).replace({"A": "C"})
    return new


def extended(model: TokenDiffusion, cells: AnnData) -> dict[str, Any]:
    model.add_perturbation_features({"A3": [1.0, 0.1, 0.2], "B4": [0.0, 0.1, -0.1]})
    untreated = cells.obs["perturbation"] == "control"
    return {
        "cells": model.generate({"cell_type": "type_1", "perturbation": "A3+B4"}, 10, **QUIET),
        "predicted": model.predict_perturbation(cells, {"perturbation": "A3"}, indices=untreated, **QUIET),
        "saved": saved_again(model, {"perturbation": "B4"}),
    }


def common(setup: Setup) -> dict[str, Call]:
    """What every model is asked."""
    asked, part = setup.asked, setup.part
    both = pd.DataFrame([asked, {**asked, **part}]).assign(n_cells=[7, 5])
    return {
        "weights": lambda m, c: weights(m),
        "history": lambda m, c: m.history,
        "train again": lambda m, c: trained_on(m, asked),
        "generate": lambda m, c: m.generate(asked, 30, **QUIET),
        "generate, some left out": lambda m, c: m.generate(part, 30, batch_size=8, **QUIET),
        "generate, nothing told": lambda m, c: m.generate(n_cells=30, **QUIET),
        "generate, table": lambda m, c: m.generate(both, **QUIET),
        "generate, guided": lambda m, c: m.generate(asked, 30, guidance_scale=2.0, **QUIET),
        "generate, one condition guided": lambda m, c: m.generate(
            asked, 20, guidance_scale={setup.guided: 1.5}, **QUIET
        ),
        "generate, no seed": lambda m, c: from_now_on(m, asked),
        "save, load, generate": lambda m, c: saved_again(m, asked),
        "get_latent_representation": lambda m, c: m.get_latent_representation(c, silent=True),
        "get_normalized_expression": lambda m, c: m.get_normalized_expression(c, FEW, silent=True),
        "get_token_activation": lambda m, c: m.get_token_activation(c, silent=True),
        "get_token_loadings": lambda m, c: m.get_token_loadings(),
        "write_back": written_back,
    }


THINNING: dict[str, Call] = {
    "get_nll_bound": lambda m, c: m.get_nll_bound(c, FEW, n_draws=3, seed=0, silent=True),
    "get_token_loadings, gradient": lambda m, c: m.get_token_loadings(c, method="gradient"),
    "deepen": lambda m, c: m.deepen(c, 1.5, indices=FEW, **QUIET),
    "hold_tokens": lambda m, c: m.hold_tokens({"token_1": 1.0, "token_3": -0.5}).generate(None, 20, **QUIET),
}

ONE_MODALITY: dict[str, Call] = {
    "get_token_adata": lambda m, c: m.get_token_adata(c, n_neighbors=5, silent=True),
    "generate, sizes given": lambda m, c: m.generate(None, 10, library_size=np.arange(100, 110), **QUIET),
    "generate, sizes by function": lambda m, c: m.generate(
        None, 10, library_size=lambda rows, rng: rng.integers(50, 300, len(rows)), **QUIET
    ),
    "generate_to": lambda m, c: generated_to(m, None, 25, chunk_size=10),
    "get_normalized_expression, of genes": lambda m, c: m.get_normalized_expression(
        c, FEW, gene_list=list(c.var_names[3:9]), library_size=1e4, silent=True
    ),
}

OF_CELLS: dict[str, Call] = {
    **ONE_MODALITY,
    "get_token_contributions": lambda m, c: m.get_token_contributions(c, indices=FEW, silent=True),
}


def predicted(conditions: dict[str, Any], **options: Any) -> Call:
    return lambda m, c: m.predict_perturbation(c, conditions, indices=of_controls(c), **QUIET, **options)


def of_controls(cells: AnnData) -> np.ndarray:
    return np.flatnonzero(cells.obs["perturbation"] == "control")[::2]


def of_treated(cells: AnnData) -> np.ndarray:
    return np.flatnonzero(cells.obs["perturbation"] == "A")[::2]


HELD_OUT: dict[str, Call] = {
    "evaluate_held_out": lambda m, c: m.evaluate_held_out(n_steps=4, max_cells=60, seed=0, silent=True)
}

A, B, BOTH = (
    {"perturbation": "A", "dose": 1.0},
    {"perturbation": "B", "dose": 10.0},
    {"perturbation": "A+B", "dose": "10+1"},
)
UNTREATED = {"perturbation": "control"}
DOSES = [0.1, 3.0, 10.0]

RESPONSES: dict[str, Call] = {
    "predict_perturbation": predicted(A),
    "predict_perturbation, one missing": predicted(B),
    "predict_perturbation, both": predicted(BOTH),
    "predict_perturbation, other type": predicted({"cell_type": "type_2", **A}),
    "predict_perturbation, guided": predicted(B, guidance_scale=2.0),
    "predict_perturbation, keep": predicted(B, keep_fraction=0.3),
    "predict_perturbation, not measured": predicted(B, source="network"),
    "predict_perturbation, of treated": lambda m, c: m.predict_perturbation(c, B, indices=of_treated(c), **QUIET),
    "predict_perturbation, to control": lambda m, c: m.predict_perturbation(
        c, UNTREATED, indices=of_treated(c), **QUIET
    ),
    "dose_response": lambda m, c: m.dose_response(c, "A", DOSES, indices=of_controls(c), n_bootstrap=20, **QUIET),
    "dose_response, not measured": lambda m, c: m.dose_response(
        c, "B", DOSES, indices=of_controls(c), n_bootstrap=20, source="network", **QUIET
    ),
}

TO_BATCH: dict[str, Call] = {
    "transfer_batch": lambda m, c: m.transfer_batch(c, "batch_1", indices=FEW, **QUIET),
    "transfer_batch, keep": lambda m, c: m.transfer_batch(c, "batch_0", indices=FEW, keep_fraction=0.8, **QUIET),
    "get_normalized_expression, of batch": lambda m, c: m.get_normalized_expression(
        c, FEW, transform_batch="batch_1", silent=True
    ),
}

OWN: dict[str, dict[str, Call]] = {
    "labels": {
        **OF_CELLS,
        **HELD_OUT,
        "get_latent_representation, minibatches": lambda m, c: m.get_latent_representation(
            c, FEW, batch_size=16, silent=True
        ),
        "get_token_loadings, groups": lambda m, c: m.get_token_loadings(groupby="cell_type", adata=c),
        "get_token_loadings, gradient, groups": lambda m, c: m.get_token_loadings(
            c, method="gradient", groupby="cell_type"
        ),
        "get_token_contributions, of genes": lambda m, c: m.get_token_contributions(
            c, FEW, gene_list=list(c.var_names[:5]), silent=True
        ),
        "predict_perturbation, other label": lambda m, c: m.predict_perturbation(
            c, {"cell_type": "Dendritic"}, indices=FEW, **QUIET
        ),
        "interpolate": lambda m, c: m.interpolate({"cell_type": "Dendritic"}, None, [0.3, 1], 10, **QUIET),
        "generate_to, of label": lambda m, c: generated_to(m, {"cell_type": "Dendritic"}, 25, batch_size=4),
        "write_back, half": partial(written_back, keys=["X_tokens", "X_token_activation"], dtype="float16"),
        "load_query_data": lambda m, c: queried(m, with_new_type(c), {"cell_type": "new type"}),
        "load_query_data, new genes": lambda m, c: queried(m, with_new_genes(c), {"cell_type": "Dendritic"}),
        "load_query_data, unfrozen": lambda m, c: queried(
            m, with_new_type(c), {"cell_type": "new type"}, unfrozen=True
        ),
    },
    "perturbation": {
        **OF_CELLS,
        **HELD_OUT,
        **RESPONSES,
        "generate, one missing": lambda m, c: m.generate({"cell_type": "type_2", **B}, 30, **QUIET),
        "generate, few cells": lambda m, c: m.generate({"cell_type": "type_1", **BOTH}, 30, **QUIET),
        "generate, doses": lambda m, c: m.generate(pd.DataFrame([A, B, BOTH]), 10, **QUIET),
        "generate_to, one missing": lambda m, c: generated_to(m, {"cell_type": "type_2", **B}, 25, chunk_size=10),
        "get_token_loadings, groups": lambda m, c: m.get_token_loadings(groupby="perturbation", adata=c),
        "load_query_data": lambda m, c: queried(m, with_new_perturbation(c), {"perturbation": "C", "dose": 1.0}),
    },
    "hierarchy": {
        **OF_CELLS,
        **TO_BATCH,
        "generate, number told": lambda m, c: m.generate({"time": 0.9}, 20, **QUIET),
        "predict_perturbation, other place": lambda m, c: m.predict_perturbation(
            c, {"organ": "lung", "state": "type_3", "time": 0.1}, indices=FEW, **QUIET
        ),
    },
    "modalities": {
        "generate, sizes by modality": lambda m, c: m.generate(None, 10, library_size={"protein": 500}, **QUIET),
        "generate_modality": lambda m, c: m.generate_modality(c, "rna", "protein", **QUIET),
        "generate_modality, expected": lambda m, c: m.generate_modality(
            c, "protein", "rna", indices=FEW, expected=True, **QUIET
        ),
        "generate_modality, sizes": lambda m, c: m.generate_modality(c, "rna", indices=FEW, library_size=300, **QUIET),
        "get_token_loadings, groups": lambda m, c: m.get_token_loadings(groupby="cell_type", adata=c),
    },
    "latent": {
        **ONE_MODALITY,
        **TO_BATCH,
        "predict_perturbation": predicted(A, source="network"),
        "predict_perturbation, guided": predicted(BOTH, guidance_scale=2.0, source="network"),
        "predict_perturbation, keep": predicted(B, keep_fraction=0.3),
        "dose_response": lambda m, c: m.dose_response(c, "A", DOSES, indices=of_controls(c), n_bootstrap=20, **QUIET),
        "load_query_data": lambda m, c: queried(m, with_new_type(c), {"cell_type": "new type"}),
    },
    "gaussian": {
        **ONE_MODALITY,
        **TO_BATCH,
        "predict_perturbation, other type": lambda m, c: m.predict_perturbation(
            c, {"cell_type": "type_1"}, indices=FEW, keep_fraction=0.5, **QUIET
        ),
        "load_query_data": lambda m, c: queried(m, with_new_type(c), {"cell_type": "new type"}),
    },
    "vectors": {
        **OF_CELLS,
        "add_perturbation_features": extended,
        "predict_perturbation": predicted({"perturbation": "A1"}),
        "predict_perturbation, both": predicted({"perturbation": "A1+B1"}),
        "predict_perturbation, not measured": predicted({"perturbation": "A1"}, source="network"),
    },
}
