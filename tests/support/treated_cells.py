"""Cells with every common kind of condition."""

import numpy as np
from anndata import AnnData
from small_cells import simulated_cells

SETUP = {
    "labels_key": "cell_type",
    "batch_key": "batch",
    "continuous_covariate_keys": ["age"],
    "perturbation_key": "guide",
    "dose_key": "dose",
    "control": "ctrl",
}


def treated_cells(n_cells: int = 60) -> AnnData:
    """Cells by type, batch and age; a third of them controls, the others given A or B at two doses."""
    adata = simulated_cells(n_cells, n_genes=12)
    adata.layers["counts"] = adata.X.copy()
    adata.obs["guide"] = np.resize(["ctrl", "A", "B"], n_cells)
    adata.obs["dose"] = np.where(adata.obs["guide"] == "ctrl", 0.0, np.resize([0.5, 0.5, 0.5, 2.0, 2.0, 2.0], n_cells))
    adata.obs["organ"] = np.resize(["blood", "lung"], n_cells)
    adata.obs["tissue"] = np.resize(["vein", "lobe"], n_cells)
    adata.uns["vectors"] = {"A": [1.0, 0.0], "B": [0.0, 1.0]}
    return adata
