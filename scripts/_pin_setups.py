"""Small set-ups whose results are pinned: cells, what is registered of them, and the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from mudata import MuData

from scdiffgen.datasets import pbmc68k, simulate, simulate_cite
from scdiffgen.model import TokenDiffusion

Cells = AnnData | MuData
TRAINING = {
    "max_epochs": 3,
    "batch_size": 128,
    "accelerator": "cpu",
    "plan_kwargs": {"lr": 1e-2},
    "enable_progress_bar": False,
}


@dataclass(frozen=True)
class Setup:
    """Cells, what is registered of them, conditions to ask for (all; some left out; one guided), and the model."""

    cells: Callable[[], Cells]
    keys: dict[str, Any]
    asked: dict[str, Any]
    part: dict[str, Any]
    guided: str
    model: dict[str, Any] = field(default_factory=dict)

    def trained(self) -> TokenDiffusion:
        """A trained model, at a fixed seed."""
        cells = self.cells()
        register = TokenDiffusion.setup_mudata if isinstance(cells, MuData) else TokenDiffusion.setup_anndata
        register(cells, **self.keys)
        scvi.settings.seed = 0
        model = TokenDiffusion(cells, **{"n_tokens": 4, "token_dim": 16, "n_layers": 1, **self.model})
        model.train(**TRAINING)
        return model


def blood_cells() -> AnnData:
    """Real cells."""
    cells = pbmc68k()[:400, :150].copy()
    return cells[np.asarray(cells.layers["counts"].sum(axis=1)).ravel() > 20].copy()


def treated_cells() -> AnnData:
    """Cells of three types given A, B or both at two doses; one type never had B, another A + B in eight cells."""
    cells = simulate(n_cells=1000, n_genes=50, n_types=3, doses=(1.0, 10.0), seed=1)
    never = (cells.obs["cell_type"] == "type_2") & (cells.obs["perturbation"] == "B")
    rare = (cells.obs["cell_type"] == "type_1") & (cells.obs["perturbation"] == "A+B")
    return cells[~never & ~(rare & (rare.cumsum() > 8))].copy()


def placed_cells() -> AnnData:
    """Cells at places of a hierarchy, some known down to the first level only, with batch, sex and time."""
    cells = simulate(n_cells=300, n_genes=50, n_types=4, seed=2)
    rng = np.random.default_rng(0)
    kind = cells.obs["cell_type"].astype(str)
    cells.obs["organ"] = kind.map({"type_0": "blood", "type_1": "blood", "type_2": "lung", "type_3": "lung"})
    cells.obs["state"] = kind.where(rng.random(cells.n_obs) > 0.1)
    cells.obs["sex"] = pd.Categorical(rng.choice(["f", "m"], cells.n_obs))
    return cells


def cells_with_vectors() -> AnnData:
    """Cells given one of five perturbations, each with a feature vector: A and B of the simulation by other names."""
    cells = simulate(n_cells=500, n_genes=50, n_types=2, doses=(10.0,), seed=3)
    cells = cells[cells.obs["perturbation"] != "A+B"].copy()
    rng = np.random.default_rng(0)
    names = {"control": ["control"], "A": ["A1", "A2"], "B": ["B1", "B2", "B3"]}
    cells.obs["perturbation"] = [rng.choice(names[name]) for name in cells.obs["perturbation"]]
    known = ["A1", "A2", "B1", "B2", "B3"]
    cells.uns["vectors"] = {name: [float(name[0] == "A"), *rng.normal(0, 0.3, 2)] for name in known}
    return cells


def rna_and_protein() -> MuData:
    """Cells of which two modalities are counted, some without protein."""
    cells = simulate_cite(n_cells=300, n_genes=40, n_proteins=10, seed=4)
    protein = cells["protein"].X.toarray()
    protein[:30] = 0
    cells["protein"].X = type(cells["protein"].X)(protein)
    return cells


TREATED = {"labels_key": "cell_type", "perturbation_key": "perturbation", "dose_key": "dose"}

SETUPS = {
    "labels": Setup(
        blood_cells,
        {"layer": "counts", "labels_key": "cell_type"},
        asked={"cell_type": "Dendritic"},
        part={},
        guided="cell_type",
        model={"n_layers": 2},
    ),
    "perturbation": Setup(
        treated_cells,
        {"layer": "counts", **TREATED},
        asked={"cell_type": "type_0", "perturbation": "A+B", "dose": "1+10"},
        part={"perturbation": "A", "dose": 1.0},
        guided="perturbation",
    ),
    "hierarchy": Setup(
        placed_cells,
        {
            "layer": "counts",
            "hierarchy_keys": ["organ", "state"],
            "batch_key": "batch",
            "categorical_covariate_keys": ["sex"],
            "continuous_covariate_keys": ["time"],
        },
        asked={"organ": "lung", "state": "type_2", "batch": "batch_1", "sex": "f", "time": 0.5},
        part={"organ": "blood", "state": "type_0", "sex": "m"},
        guided="hierarchy",
    ),
    "modalities": Setup(
        rna_and_protein,
        {"labels_key": "cell_type"},
        asked={"cell_type": "type_1"},
        part={},
        guided="cell_type",
    ),
    "latent": Setup(
        treated_cells,
        {"layer": "counts", **TREATED, "batch_key": "batch"},
        asked={"cell_type": "type_0", "batch": "batch_0", "perturbation": "A+B", "dose": "1+10"},
        part={"perturbation": "A", "dose": 1.0},
        guided="perturbation",
        model={"process": "latent"},
    ),
    "gaussian": Setup(
        placed_cells,
        {"layer": "counts", "labels_key": "cell_type", "batch_key": "batch", "continuous_covariate_keys": ["time"]},
        asked={"cell_type": "type_2", "batch": "batch_1", "time": 0.5},
        part={"cell_type": "type_1"},
        guided="batch",
        model={"process": "gaussian"},
    ),
    "vectors": Setup(
        cells_with_vectors,
        {
            "layer": "counts",
            "labels_key": "cell_type",
            "perturbation_key": "perturbation",
            "perturbation_features_key": "vectors",
        },
        asked={"cell_type": "type_0", "perturbation": "A1+B1"},
        part={"perturbation": "B2"},
        guided="perturbation",
    ),
}
