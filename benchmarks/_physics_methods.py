"""Simple methods that denoise counts, with settings chosen by molecular cross-validation, and scVI."""

from collections.abc import Callable, Iterator
from importlib import import_module

import numpy as np
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from benchmarks._data import LABEL
from benchmarks._physics_data import thinned
from benchmarks._physics_scores import nats_per_molecule
from scdiffgen._log_normalise import log_normalise

Shares = NDArray[np.float64]  # (cells, genes), rows sum to 1
Denoiser = Callable[[sparse.csr_matrix], Shares]

SHARE_FITTED = 0.9  # of the molecules in molecular cross-validation; the others choose the setting
NEIGHBOURS, POOLED = (4, 8, 16, 32, 64, 128), (0.01, 0.03, 0.1, 0.3)
STRENGTHS = (100, 300, 1000, 3000, 10_000, 30_000)
N_COMPONENTS = 20


def chosen(counts: sparse.csr_matrix, candidates: dict[str, Denoiser], seed: int) -> tuple[str, Shares]:
    """Choose a setting by molecular cross-validation (Batson et al. 2019), and apply it to all counts."""
    fitted = thinned(counts, SHARE_FITTED, seed)
    hidden = sparse.csr_matrix(counts - fitted)
    losses = {name: nats_per_molecule(denoise(fitted), hidden) for name, denoise in candidates.items()}
    best = min(losses, key=losses.__getitem__)
    return best, candidates[best](counts)


def pooled_shares(counts: sparse.csr_matrix) -> Shares:
    """Shares of all cells together, with half a molecule more of each gene."""
    total = np.asarray(counts.sum(axis=0), dtype=np.float64) + 0.5
    return total / total.sum()


def neighbour_smoothing(counts: sparse.csr_matrix, n_neighbours: int, pooled: float) -> Shares:
    """Pool each cell with its nearest cells on principal components, and mix with the shares of all cells."""
    n_components = min(N_COMPONENTS, *(n - 1 for n in counts.shape))
    scores = PCA(n_components, svd_solver="arpack", random_state=0).fit_transform(log_normalise(counts).toarray())
    graph = NearestNeighbors(n_neighbors=min(n_neighbours, len(scores))).fit(scores).kneighbors_graph(scores)
    return mixed(graph @ counts, pooled_shares(counts), pooled)


def mixed(counts: sparse.csr_matrix, other: Shares, weight: float) -> Shares:
    """Shares of counts, mixed with other shares."""
    total = np.maximum(np.asarray(counts.sum(axis=1), dtype=np.float64), 1.0)
    return (1 - weight) * (counts.toarray() / total) + weight * other


def label_means(counts: sparse.csr_matrix, labels: NDArray[np.str_], pooled: float) -> Shares:
    """Shares of the cells of each label together, mixed with the shares of all cells."""
    same = sparse.csr_matrix((labels[:, None] == np.unique(labels)).astype(float))
    return same @ mixed(same.T @ counts, pooled_shares(counts), pooled)


def with_own_molecules(counts: sparse.csr_matrix, prior: Shares, strength: float) -> Shares:
    """Posterior mean of a cell's shares under a Dirichlet prior of a strength, in molecules."""
    return (counts.toarray() + strength * prior) / (np.asarray(counts.sum(axis=1)).reshape(-1, 1) + strength)


def simple_methods(cells: AnnData, seed: int) -> Iterator[tuple[str, str, Callable[[], tuple[str, Shares]]]]:
    """Name, kind, and function that returns the chosen setting and shares."""
    counts, labels = cells.X, cells.obs[LABEL].to_numpy(dtype=str)
    yield "mean of all cells", "null", lambda: ("", np.repeat(pooled_shares(counts), counts.shape[0], axis=0))
    by_label = {f"pooled {w:g}": lambda x, w=w: label_means(x, labels, w) for w in POOLED}
    yield "mean of the label", "simple", lambda: chosen(counts, by_label, seed)
    own = {
        f"strength {s:,}": lambda x, s=s: with_own_molecules(x, label_means(x, labels, POOLED[0]), s) for s in STRENGTHS
    }
    yield "mean of the label and own molecules", "simple", lambda: chosen(counts, own, seed)
    yield "kNN smoothing", "simple", lambda: smoothed(counts, seed)


def smoothed(counts: sparse.csr_matrix, seed: int) -> tuple[str, Shares]:
    """Smooth over neighbours; their number and the weight of all cells are chosen by molecular cross-validation."""
    settings = {
        f"k = {k}, pooled {w:g}": lambda x, k=k, w=w: neighbour_smoothing(x, k, w)
        for k in NEIGHBOURS
        if k < counts.shape[0]
        for w in POOLED
    }
    return chosen(counts, settings, seed)


def magic_shares(counts: sparse.csr_matrix, seed: int) -> Shares:
    """Smooth square roots of counts by MAGIC with its defaults, and return the shares of their squares."""
    magic = import_module("magic")
    library = np.asarray(counts.sum(axis=1), dtype=np.float64)
    roots = np.sqrt(counts.toarray() * (np.median(library) / library))
    rates = np.clip(magic.MAGIC(n_jobs=1, random_state=seed, verbose=0).fit_transform(roots), 0, None) ** 2
    return rates / rates.sum(axis=1, keepdims=True)


def scvi_shares(cells: AnnData, seed: int, max_epochs: int | None) -> Shares:
    """Expected expression under scVI without labels, its training stopped early by a tenth of the cells."""
    scvi.settings.seed = seed
    adata = cells.copy()
    scvi.model.SCVI.setup_anndata(adata)
    model = scvi.model.SCVI(adata, gene_likelihood="nb")
    model.train(max_epochs, early_stopping=True, enable_progress_bar=False)
    return model.get_normalized_expression(library_size=1, n_samples=10, return_numpy=True).astype(np.float64)
