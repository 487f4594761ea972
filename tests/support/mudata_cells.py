"""Cells of two modalities, RNA and protein, whose shares differ by type; complete, or some lacking one of them."""

import warnings

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scipy import sparse

N_GENES, N_PROTEINS = 12, 5


def shares(seed: int = 0) -> dict[str, np.ndarray]:
    """Shares of genes and of proteins ``(types, columns)``."""
    random = np.random.default_rng(seed)
    return {"rna": random.dirichlet(np.ones(N_GENES), 2), "prot": random.dirichlet(np.ones(N_PROTEINS), 2)}


def paired(n_cells: int = 60, seed: int = 0) -> MuData:
    """Cells ``cell0`` and on of types ``a`` and ``b``, all with both modalities; float32 CSR."""
    random = np.random.default_rng(seed + 1)
    kind = random.integers(0, 2, n_cells)
    names = [f"cell{i}" for i in range(n_cells)]
    parts = {}
    for (name, share), median in zip(shares().items(), (60, 300), strict=True):
        library = random.lognormal(np.log(median), 0.3, n_cells).round().astype(int)
        counts = np.stack([random.multinomial(n, share[k]) for n, k in zip(library, kind, strict=True)])
        var = pd.DataFrame(index=[f"{'gene' if name == 'rna' else 'protein'}{i}" for i in range(share.shape[1])])
        parts[name] = AnnData(sparse.csr_matrix(counts, dtype=np.float32), obs=pd.DataFrame(index=names), var=var)
    mdata = join(parts)
    mdata.obs["sort_of_cell"] = pd.Categorical(np.array(["a", "b"])[kind])
    return mdata


def mosaic(n_cells: int = 60, seed: int = 0) -> MuData:
    """The same, but the first ten cells lack protein, the last ten RNA, and the proteins' cells are shuffled."""
    mdata = paired(n_cells, seed)
    kind = mdata.obs["sort_of_cell"]
    order = np.random.default_rng(seed).permutation(np.arange(10, n_cells))
    mixed = join({"rna": mdata["rna"][: n_cells - 10].copy(), "prot": mdata["prot"][order].copy()})
    mixed.obs["sort_of_cell"] = kind.loc[mixed.obs_names]
    return mixed


def join(parts: dict[str, AnnData]) -> MuData:
    """A MuData, without what mudata 0.3 says of its next version."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return MuData(parts)
