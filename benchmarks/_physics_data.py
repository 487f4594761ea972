"""Wells of mixed and diluted RNA (Tian et al. 2019), and cells whose molecules are split into seen and unseen."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._data import (
    FOLDER,
    MissingData,
    _labelled,
    _read,
    load_paul15,
    load_pbmc3k,
    load_pbmc68k,
    variable_genes,
)
from benchmarks._data import load_kang as load_all_kang

WELLS = {"CEL-seq2": "tian2019_rnamix_celseq2.h5ad", "SORT-seq": "tian2019_rnamix_sortseq.h5ad"}
PLATES = {"CEL-seq2": "RNAmix_CELseq2", "SORT-seq": "RNAmix_Sortseq"}  # names in the published tables
DENOISING, TIMING = "tian2019_denoising.csv", "tian2019_timing.csv"
IMPUTATIONS = {"no_imputation": "no imputation", "knn_smooth2": "kNN-smoothing"}  # clearer than published names
LINES = ("H2228", "H1975", "HCC827")
MIX, AMOUNT, TOTAL = "mix", "mRNA_amount", "total_count_per_cell"
CONCENTRATION = "ercc_attomol_per_ul"  # of spike-ins
MISLABELLED = ("celseq2_L19", "sortseq_L19")  # called a mixture, but pure H2228
BUNDLED = "bundled PBMC"
MOST_CELLS, MOST_GENES = 2000, 1000  # of the cells whose molecules are split
SHARE_SEEN, DEPTH_GENES = 0.25, 3000  # of the molecules; of deepened wells


def load_wells(protocol: str) -> AnnData:
    """Load all wells of a protocol with the published choice of genes: counts in ``.X``, the mixture as label."""
    adata = _read(WELLS[protocol])
    seen, total = (adata.X > 0).sum(axis=0).A1, adata.X.sum(axis=0).A1
    adata = adata[:, (seen > 10) & (total > 1.1 * seen)]
    wells = _labelled(adata, adata.obs[MIX])
    wells.obs = wells.obs.join(adata.obs[[MIX, AMOUNT, TOTAL, *LINES]])
    for column in ("is_ercc", CONCENTRATION):
        wells.var[column] = adata.var[column].to_numpy()
    return wells


def sound_wells(wells: AnnData) -> AnnData:
    """Wells without the mislabelled one; the genes with most molecules, without spike-ins, which are not diluted."""
    wells = wells[~wells.obs_names.isin(MISLABELLED), ~wells.var["is_ercc"]]
    return wells[:, np.sort(np.argsort(-wells.X.sum(axis=0).A1)[:DEPTH_GENES])].copy()


def published_denoising() -> pd.DataFrame:
    """Read the published scores: a row per plate, normalisation and imputation, a column per score."""
    if not (FOLDER / DENOISING).exists():
        raise MissingData(f"{DENOISING} is not in ../shared/data: put it there.")
    table = pd.read_csv(FOLDER / DENOISING)
    return table.pivot_table("value", ["data", "normalisation", "imputation"], "metric")


def best_published(protocol: str) -> list[dict[str, Any]]:
    """Scores of each published imputation with the normalisation of its highest silhouette, and seconds if known."""
    table, timing = published_denoising().loc[PLATES[protocol]], pd.read_csv(FOLDER / TIMING)
    is_timed = (timing["data"] == PLATES[protocol]) & (timing["normalisation"] == "logCPM")
    seconds = timing[is_timed].set_index("imputation")["seconds"].to_dict()
    best = table.loc[table["silhouette_mean"].groupby("imputation").idxmax()].reset_index()
    best["published_seconds"] = [seconds.get(name, 0.0) for name in best["imputation"]]
    return best.replace({"imputation": IMPUTATIONS}).to_dict("records")


def thinned(counts: sparse.csr_matrix, share: float | NDArray, seed: int) -> sparse.csr_matrix:
    """Keep each molecule with a probability, the same for all cells or one per cell: binomial thinning."""
    kept = sparse.csr_matrix(counts, dtype=np.int64, copy=True)
    of_value = np.repeat(np.broadcast_to(share, kept.shape[0]), np.diff(kept.indptr))
    kept.data = np.random.default_rng(seed).binomial(kept.data, of_value)
    kept.eliminate_zeros()
    return kept


def load_split_molecules(name: str, seed: int) -> tuple[AnnData, sparse.csr_matrix]:
    """Load cells with a quarter of their molecules, and their other molecules; cells without a seen one are dropped."""
    adata = CELLS[name]()
    if adata.n_obs > MOST_CELLS:
        adata = adata[np.sort(np.random.default_rng(seed).permutation(adata.n_obs)[:MOST_CELLS])].copy()
    if adata.n_vars > MOST_GENES:
        adata = adata[:, variable_genes(adata, MOST_GENES)].copy()
    seen = thinned(adata.X, SHARE_SEEN, seed)
    unseen = sparse.csr_matrix(adata.X - seen)
    kept, genes = seen.sum(axis=1).A1 > 0, seen.sum(axis=0).A1 > 0
    split = adata[kept][:, genes].copy()
    split.X = seen[kept][:, genes].astype(np.float32)
    return split, unseen[kept][:, genes]


def _typed(file: str) -> AnnData:
    adata = _read(file)
    return _labelled(adata, adata.obs["cell_type"])


CELLS: dict[str, Callable[[], AnnData]] = {
    "Kang 2018": load_all_kang,
    "PBMC 3k": load_pbmc3k,
    "PBMC 4k": lambda: _typed("scdcc_pbmc4k.h5ad"),
    "Paul 2015": load_paul15,
    "Haber 2017": lambda: _typed("haber2017_intestine_1000g.h5ad"),
    "kidney": lambda: _typed("scdcc_kidney.h5ad"),
    "CEL-seq2 wells": lambda: load_wells("CEL-seq2"),
    "SORT-seq wells": lambda: load_wells("SORT-seq"),
    BUNDLED: load_pbmc68k,
}
