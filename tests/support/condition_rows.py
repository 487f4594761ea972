"""Cells with every kind of condition, and for each kind a small model of them."""

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

import numpy as np
import torch
from anndata import AnnData
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen.conditions import request_table
from scdiffgen.model import NetworkOptions, TokenDiffusion
from scdiffgen.model._cell_request import encode
from scdiffgen.nn._options import NumberKind

VECTORS = {"A": [1.0, 0.0, 2.0], "B": [0.0, 1.0, 1.0], "C": [1.0, 1.0, 0.0], "Z": [0.5, 0.5, 0.5]}
GUIDES = {"perturbation_key": "guide", "control": "ctrl"}
DOSED = {**GUIDES, "dose_key": "dose", "dose_unit": "uM"}
FEATURED = {**DOSED, "perturbation_features_key": "vectors"}
SLOTS = {"perturbation_key": ["gene", "drug"], "dose_key": ["gene_dose", "drug_dose"], "control": "ctrl"}
EVERYTHING = {
    **FEATURED,
    "labels_key": "cell_type",
    "batch_key": "batch",
    "hierarchy_keys": ["organ", "tissue"],
    "categorical_covariate_keys": ["donor"],
    "continuous_covariate_keys": ["age"],
    "text_key": "note",
}
DOSE = {"guide": "A+B", "dose": "0.5+2.0"}
ALL_TOLD = {
    **DOSE,
    **{
        "cell_type": "a",
        "batch": "y",
        "organ": "blood",
        "tissue": "vein",
        "donor": "d1",
        "age": 50.0,
        "note": "a naive cell",
    },
}

# setup, model, and what it is asked for
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "categorical": ({"labels_key": "cell_type", "batch_key": "batch"}, {}, {"cell_type": "b"}),
    "hashed": ({"hierarchy_keys": ["organ", "tissue"]}, {"vocabulary": "hashed"}, {"organ": "blood", "tissue": "vein"}),
    "coded": ({"labels_key": "cell_type"}, {"vocabulary": "coded"}, {"cell_type": "b"}),
    "multi-component": (SLOTS, {}, {"gene": "K1", "gene_dose": 1.0, "drug": "D2", "drug_dose": 3.0}),
    "set": (DOSED, {}, DOSE),
    "hierarchical": ({"hierarchy_keys": ["organ", "tissue"]}, {}, {"organ": "blood", "tissue": "vein"}),
    "text": ({"text_key": "note"}, {}, {"note": "a naive cell"}),
    "features": (FEATURED, {}, {"guide": "Z+A", "dose": "1+2"}),
    "adaln": (EVERYTHING, {"conditioning": "adaln"}, ALL_TOLD),
    "cross_attention": (EVERYTHING, {"conditioning": "cross_attention"}, ALL_TOLD),
    "concat": (EVERYTHING, {"conditioning": "concat"}, ALL_TOLD),
    "no conditions, cross_attention": ({}, {"conditioning": "cross_attention"}, {}),
    "no conditions, concat": ({}, {"conditioning": "concat"}, {}),
}
for number in get_args(NumberKind):
    chosen = {"number_embedding": number, "level_embedding": number}
    ROWS[number] = ({**DOSED, "continuous_covariate_keys": ["age"]}, chosen, {**DOSE, "age": 50.0})


def cells() -> AnnData:
    """96 cells with every kind of condition; cells of type b are never given A."""
    adata = simulated_cells(96, n_genes=12)
    row = np.arange(96)
    adata.obs["guide"] = np.where(row % 2, np.array(["ctrl", "B", "C", "A", "A+B", "C+B"])[row % 12 // 2], "ctrl")
    adata.obs.loc[(adata.obs["cell_type"] == "b") & adata.obs["guide"].str.contains("A"), "guide"] = "B"
    doses = {"ctrl": "0", "A+B": "1.0+4.0", "C+B": "2.0+0.5"}
    adata.obs["dose"] = [doses.get(guide, str(0.5 + i % 3)) for i, guide in enumerate(adata.obs["guide"])]
    adata.obs["gene"] = np.array(["K1", "ctrl", "K2", "ctrl"])[row % 4]
    adata.obs["gene_dose"] = (adata.obs["gene"] != "ctrl").astype(float)
    adata.obs["drug"] = np.array(["D1", "D2", None, "ctrl", None, "D2"], dtype=object)[row % 6]
    adata.obs["drug_dose"] = adata.obs["drug"].map({"D1": 0.5, "D2": 3.0}).astype(float)
    adata.obs["organ"] = np.array(["blood", "blood", "lung"])[row % 3]
    adata.obs["tissue"] = np.array(["vein", "artery", "lobe"])[row % 3]
    adata.obs["donor"] = np.array(["d1", "d2"])[row % 2]
    adata.obs["note"] = np.array(["a naive cell", "a memory cell"])[row % 2]
    adata.uns["vectors"] = VECTORS
    return adata


@cache
def fitted(name: str) -> TokenDiffusion:
    """A model trained for an epoch, and then shaken so that every condition matters; not to be changed."""
    return fit(name)


def fit(row: str) -> TokenDiffusion:
    setup, options, _ = ROWS[row]
    adata = cells()
    TokenDiffusion.setup_anndata(adata, **setup)
    torch.manual_seed(0)
    model = TokenDiffusion(adata, **SMALL, network=NetworkOptions(**options))
    model.train(max_epochs=1, batch_size=32, **QUIET)
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.add_(0.1 * torch.randn(weight.shape))
    return model


def generated(model: TokenDiffusion, conditions: Mapping[str, Any]) -> np.ndarray:
    return model.generate(conditions, n_cells=5, n_steps=4, seed=1).X.toarray()


def log_odds(model: TokenDiffusion, conditions: Mapping[str, Any]) -> np.ndarray:
    """Log-rates of the genes, less their mean, in three growing cells under these conditions."""
    state = torch.tensor(np.random.default_rng(0).poisson(2.0, (3, 12))).float()
    table = request_table(conditions)
    given = encode(model, table).take(np.zeros(3, dtype=int)).to(model.device)
    with torch.no_grad():
        log_rates = model.module.bind(given)(state, 2 * state.sum(1)).log_rates
    return (log_rates - log_rates.mean(1, keepdim=True)).numpy()
