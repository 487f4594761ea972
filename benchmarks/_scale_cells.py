"""Cells of known kinds simulated straight to disk, in constant memory: a file of any size."""

from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

N_TYPES = 8
N_MOLECULES = 1_000
CHUNK = 20_000
LABEL = "cell_type"


def simulate_to(path: Path, n_cells: int, n_genes: int, seed: int = 0, n_molecules: int = N_MOLECULES) -> None:
    """Write Poisson counts of eight types of cells, library sizes log-normal, to an ``.h5ad`` by rows."""
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.full(n_genes, 0.3), N_TYPES)
    types = random.integers(N_TYPES, size=n_cells)
    obs = pd.DataFrame({LABEL: pd.Categorical.from_codes(types, [f"type {i}" for i in range(N_TYPES)])})
    obs.index = obs.index.astype(str)
    AnnData(obs=obs, var=pd.DataFrame(index=[f"gene{i}" for i in range(n_genes)])).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        if "X" in file:
            del file["X"]
        for start in range(0, n_cells, CHUNK):
            chosen = types[start : start + CHUNK]
            library = random.lognormal(np.log(n_molecules), 0.3, len(chosen))
            counts = random.poisson(library[:, None] * shares[chosen]).astype(np.float32)
            counts[:, 0] += counts.sum(1) == 0
            rows = sparse.csr_matrix(counts)
            if start:
                ad.io.sparse_dataset(file["X"]).append(rows)
            else:
                rows.indptr = rows.indptr.astype(np.int64)
                ad.io.write_elem(file, "X", rows)
