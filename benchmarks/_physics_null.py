"""Tests of batch transfer: one batch split at random into two pseudo-batches, with and without a planted difference."""

import numpy as np
import scanpy as sc
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, pairwise_distances

from scdiffgen._log_normalise import log_normalise

N_NEIGHBOURS, N_COMPONENTS, N_CLUSTERS = 15, 30, 9
FDR = 0.05
SHARE_PLANTED, LEAST_MOLECULES = 0.1, 100  # genes of a planted difference, and molecules of those that are read
Mask = NDArray[np.bool_]  # (cells,)


def null_scores(
    before: sparse.csr_matrix, after: sparse.csr_matrix, moved: Mask, clusters_seed: int = 0
) -> dict[str, float]:
    """Compare counts or expected counts before and after a transfer; only the cells ``moved`` may change."""
    logs = [log_normalise(counts).toarray() for counts in (before, after)]
    fit = PCA(N_COMPONENTS, svd_solver="arpack", random_state=0).fit(logs[0])
    old, new = (fit.transform(values) for values in logs)
    changed = float(abs(before[moved] - after[moved]).sum() / 2 / before[moved].sum())
    return {"changed": changed, **space_scores(old, new, moved, old, clusters_seed)}


def space_scores(old: NDArray, new: NDArray, moved: Mask, target: NDArray, clusters_seed: int = 0) -> dict[str, float]:
    """Compare positions of cells, and their clusters, before and after a transfer into a space ``target``."""
    clusters = [
        KMeans(N_CLUSTERS, n_init=5, random_state=seed).fit_predict(scores)
        for scores, seed in ((old, 0), (new, clusters_seed))
    ]
    return {**neighbours_kept(old, new, moved, target), "ari": float(adjusted_rand_score(*clusters))}


def neighbours_kept(old: NDArray, new: NDArray, moved: Mask, target: NDArray) -> dict[str, float]:
    """Share of nearest neighbours that moved cells keep, and median rank of their former selves (1 is nearest).

    Neighbours of moved cells are sought among ``old`` positions of all cells before, and among ``target`` after.
    """
    rows, own = np.flatnonzero(moved), np.arange(moved.sum())
    former = pairwise_distances(new[rows], old)
    ranks = (former < former[own, rows][:, None]).sum(axis=1) + 1
    nearest = []
    for distance in (pairwise_distances(old[rows], old), pairwise_distances(new[rows], target)):
        distance[own, rows] = np.inf  # a cell is not its own neighbour
        nearest.append(np.argpartition(distance, N_NEIGHBOURS, axis=1)[:, :N_NEIGHBOURS])
    kept = [len(np.intersect1d(*pair)) / N_NEIGHBOURS for pair in zip(*nearest, strict=True)]
    return {"neighbours": float(np.mean(kept)), "rank": float(np.median(ranks))}


def n_de_genes(counts: sparse.csr_matrix, moved: Mask) -> int:
    """Number of genes that a Wilcoxon test finds between moved cells and the others, at a false discovery rate."""
    adata = AnnData(log_normalise(counts).astype(np.float32))
    adata.obs["batch"] = np.where(moved, "moved", "others").astype(str)
    sc.tl.rank_genes_groups(adata, "batch", groups=["moved"], reference="others", method="wilcoxon")
    return int((adata.uns["rank_genes_groups"]["pvals_adj"]["moved"] < FDR).sum())


def planted_batch_effect(cells: AnnData, moved: Mask, seed: int) -> tuple[AnnData, NDArray[np.bool_]]:
    """Lose half of the molecules of a tenth of the genes in the moved cells: cells, and which genes."""
    rng = np.random.default_rng(seed)
    genes = rng.random(cells.n_vars) < SHARE_PLANTED
    counts, places = cells.X.toarray().astype(int), np.ix_(moved, genes)
    counts[places] = rng.binomial(counts[places], 0.5)
    changed = cells.copy()
    changed.X = sparse.csr_matrix(counts, dtype=np.float32)
    return changed, genes


def change_left(counts: sparse.csr_matrix, moved: Mask, genes: NDArray[np.bool_]) -> float:
    """Median log2 ratio of the shares of planted genes in moved cells and in the others; -1 if all of it is left."""
    sums = np.stack([counts[rows].sum(axis=0).A1 for rows in (moved, ~moved)]).astype(np.float64)
    shares = sums / sums.sum(axis=1, keepdims=True)
    frequent = genes & (sums[1] >= LEAST_MOLECULES)
    return float(np.median(np.log2((shares[0, frequent] + 1e-9) / shares[1, frequent])))
