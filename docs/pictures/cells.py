"""The cells and models that the pictures of the API show, made once in a build."""

from __future__ import annotations

import logging

import pandas as pd
import scanpy as sc
import scvi

import scdiffgen

__all__ = [
    "adata",
    "controls",
    "dosed_model",
    "generated",
    "generated_controls",
    "model",
    "pd",
    "real",
    "real_controls",
    "sc",
    "scdiffgen",
    "train",
]

sc.settings.autoshow = False
scvi.settings.seed = 0
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

adata = scdiffgen.datasets.pbmc68k()
held_out = adata.obs.groupby("cell_type", observed=True).sample(frac=0.3, random_state=0).index
is_held_out = adata.obs_names.isin(held_out)
real, train = adata[is_held_out].copy(), adata[~is_held_out].copy()
scdiffgen.model.setup_anndata(train, layer="counts", labels_key="cell_type")
model = scdiffgen.model.TokenDiffusion(train)
model.train(enable_progress_bar=False)
table = real.obs["cell_type"].value_counts().reset_index(name="n_cells")
generated = model.generate(table, seed=0, silent=True)
model.write_back(adata, silent=True)

simulated = scdiffgen.datasets.simulate(
    5000, n_genes=200, n_types=3, n_batches=1, doses=[0.1, 0.3, 1.0, 3.0, 10.0], seed=4
)
dosed, others = simulated[:3000].copy(), simulated[3000:].copy()
scdiffgen.model.setup_anndata(
    dosed, layer="counts", labels_key="cell_type", perturbation_key="perturbation", dose_key="dose", dose_unit="uM"
)
dosed_model = scdiffgen.model.TokenDiffusion(dosed, preset="small")
dosed_model.train(max_epochs=50, enable_progress_bar=False)
controls, real_controls = (cells[cells.obs["perturbation"] == "control"].copy() for cells in (dosed, others))
table = real_controls.obs["cell_type"].value_counts().reset_index(name="n_cells").assign(perturbation="control")
generated_controls = dosed_model.generate(table, seed=0, silent=True)
