"""Cells with made-up tokens, as `write_back` would leave them."""

import numpy as np
import pytest
from anndata import AnnData

import scdiffgen


@pytest.fixture
def cells() -> AnnData:
    adata = scdiffgen.datasets.pbmc68k()
    rng = np.random.default_rng(0)
    adata.varm["token_loadings"] = rng.normal(size=(adata.n_vars, 6)).astype(np.float32)
    activation = rng.normal(size=(adata.n_obs, 6)).astype(np.float32)
    activation[:, 1] += 2 * (adata.obs["cell_type"] == "Dendritic")
    adata.obsm["X_token_activation"] = activation
    adata.uns["scdiffgen"] = {"tokens": np.array([f"token_{i}" for i in range(1, 7)], dtype=object)}
    return adata
