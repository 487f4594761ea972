"""Simple methods that denoise counts, with settings chosen by molecular cross-validation, and other programs."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

from benchmarks._data import LABEL
from benchmarks._physics_data import thinned
from benchmarks._physics_scores import nats_per_molecule
from scdiffgen._log_normalise import log_normalise

Shares = NDArray[np.float64]  # (cells, genes), rows sum to 1
Candidates = Callable[[sparse.csr_matrix], Iterator[tuple[str, Shares]]]  # counts -> settings and shares

SHARE_FITTED = 0.9  # of the molecules in molecular cross-validation; the others choose the setting
NEIGHBOURS, POOLED = (8, 16, 32, 64, 128, 256, 512), (0.01, 0.03, 0.1, 0.3)
STRENGTHS = (100, 300, 1000, 3000, 10_000, 30_000)
N_COMPONENTS = 20
SMOOTHING = "kNN smoothing"


def chosen(counts: sparse.csr_matrix, candidates: Candidates, seed: int) -> tuple[str, Shares]:
    """Choose a setting by molecular cross-validation (Batson et al. 2019), and apply it to all counts."""
    fitted = thinned(counts, SHARE_FITTED, seed)
    hidden = sparse.csr_matrix(counts - fitted)
    losses = {setting: nats_per_molecule(shares, hidden) for setting, shares in candidates(fitted)}
    best = min(losses, key=losses.__getitem__)
    return next((setting, shares) for setting, shares in candidates(counts) if setting == best)


def pooled_shares(counts: sparse.csr_matrix) -> Shares:
    """Shares of all cells together, with half a molecule more of each gene."""
    total = np.asarray(counts.sum(axis=0), dtype=np.float64) + 0.5
    return total / total.sum()


def neighbour_smoothing(counts: sparse.csr_matrix) -> Iterator[tuple[str, Shares]]:
    """Pool each cell with its nearest cells on principal components, with or without a weight of its own molecules."""
    n_components = min(N_COMPONENTS, *(n - 1 for n in counts.shape))
    scores = PCA(n_components, svd_solver="arpack", random_state=0).fit_transform(log_normalise(counts).toarray())
    others = pooled_shares(counts)
    for k in (k for k in NEIGHBOURS if k <= len(scores)):
        graph = NearestNeighbors(n_neighbors=k).fit(scores).kneighbors_graph(scores)
        for pooled in POOLED:
            shares = mixed(graph @ counts, others, pooled)
            yield f"{k} neighbours, pooled {pooled:g}", shares
            for strength in STRENGTHS[::2]:
                setting = f"{k} neighbours, pooled {pooled:g}, strength {strength}"
                yield setting, with_own_molecules(counts, shares, strength)


def mixed(counts: sparse.csr_matrix, other: Shares, weight: float) -> Shares:
    """Shares of counts, mixed with other shares."""
    total = np.maximum(np.asarray(counts.sum(axis=1), dtype=np.float64), 1.0)
    return (1 - weight) * (counts.toarray() / total) + weight * other


def label_means(counts: sparse.csr_matrix, labels: NDArray[np.str_]) -> Iterator[tuple[str, Shares]]:
    """Pool the cells of each label, with or without a weight of the cell's own molecules."""
    same = sparse.csr_matrix((labels[:, None] == np.unique(labels)).astype(float))
    for pooled in POOLED:
        shares = same @ mixed(same.T @ counts, pooled_shares(counts), pooled)
        yield f"pooled {pooled:g}", shares
        for strength in STRENGTHS:
            yield f"pooled {pooled:g}, strength {strength}", with_own_molecules(counts, shares, strength)


def with_own_molecules(counts: sparse.csr_matrix, prior: Shares, strength: float) -> Shares:
    """Posterior mean of a cell's shares under a Dirichlet prior of a strength, in molecules."""
    return (counts.toarray() + strength * prior) / (np.asarray(counts.sum(axis=1)).reshape(-1, 1) + strength)


def simple_methods(cells: AnnData, seed: int) -> Iterator[tuple[str, str, Callable[[], tuple[str, Shares]]]]:
    """Name, kind, and function that returns the chosen setting and shares."""
    counts, labels = cells.X, cells.obs[LABEL].to_numpy(dtype=str)
    yield "mean of all cells", "null", lambda: ("", np.repeat(pooled_shares(counts), counts.shape[0], axis=0))
    yield "mean of the label", "simple", lambda: chosen(counts, partial(label_means, labels=labels), seed)
    yield "ALRA", "other", lambda: chosen(counts, partial(pooled_alra, seed=seed), seed)
    yield SMOOTHING, "simple", lambda: chosen(counts, neighbour_smoothing, seed)


def magic_shares(counts: sparse.csr_matrix, seed: int) -> Shares:
    """Smooth square roots of counts by MAGIC with its defaults, and return the shares of their squares."""
    magic = import_module("magic")
    library = np.asarray(counts.sum(axis=1), dtype=np.float64)
    roots = np.sqrt(counts.toarray() * (np.median(library) / library))
    rates = np.clip(magic.MAGIC(n_jobs=1, random_state=seed, verbose=0).fit_transform(roots), 0, None) ** 2
    return rates / rates.sum(axis=1, keepdims=True)


def alra_shares(counts: sparse.csr_matrix, seed: int) -> Shares:
    """Shares by ALRA (Linderman et al. 2022): log expression of low rank, with the small values of each gene set to 0.

    As in the authors' R code: the rank is that of the last of 100 singular values whose gap is significant beside those
    from the 80th; values up to the size of the most negative ones of the gene (quantile .001) become 0, all others get
    the mean and standard deviation of the measured ones, and what was measured does not become 0.
    """
    logs = log_normalise(counts).toarray().astype(np.float64)
    gaps = np.diff(randomized_svd(logs, min(100, *logs.shape), n_iter=2, random_state=seed)[1])
    noise = gaps[78 if len(gaps) == 99 else len(gaps) // 2 :]  # half of fewer singular values
    rank = np.flatnonzero(norm.cdf(gaps, noise.mean(), noise.std(ddof=1)) < 1e-10).max(initial=0) + 1
    left, singular, right = randomized_svd(logs, rank, n_iter=10, random_state=seed)
    low = left * singular @ right
    low[low <= abs(np.quantile(low, 0.001, axis=0))] = 0
    kept, measured = np.ma.masked_equal(low, 0), np.ma.masked_equal(logs, 0)
    ratio = measured.std(axis=0, ddof=1) / kept.std(axis=0, ddof=1)
    scaled = low * ratio.filled(1.0) + (measured.mean(axis=0) - kept.mean(axis=0) * ratio).filled(0.0)
    scaled = np.where(low > 0, np.maximum(scaled, 0), 0)
    rates = np.expm1(np.where(scaled > 0, scaled, logs))
    return rates / np.maximum(rates.sum(axis=1, keepdims=True), 1e-9)  # cells without a molecule can have no rate


def pooled_alra(counts: sparse.csr_matrix, seed: int) -> Iterator[tuple[str, Shares]]:
    """Mix shares by ALRA with those of all cells, because a share of 0 forbids an unseen molecule."""
    shares = alra_shares(counts, seed)
    for pooled in (*POOLED, 0.5, 0.7, 0.9, 0.97, 1.0):
        yield f"pooled {pooled:g}", (1 - pooled) * shares + pooled * pooled_shares(counts)


def fit_scvi(cells: AnnData, seed: int, max_epochs: int | None, batch_key: str | None = None) -> scvi.model.SCVI:
    """Train scVI without labels; a tenth of the cells stops its training early."""
    scvi.settings.seed = seed
    adata = cells.copy()
    scvi.model.SCVI.setup_anndata(adata, batch_key=batch_key)
    model = scvi.model.SCVI(adata, gene_likelihood="nb")
    model.train(max_epochs, early_stopping=True, enable_progress_bar=False)
    return model


def scvi_shares(cells: AnnData, seed: int, max_epochs: int | None) -> Shares:
    """Expected expression under scVI without labels."""
    return expected_by_scvi(fit_scvi(cells, seed, max_epochs))


def expected_by_scvi(model: scvi.model.SCVI, batch: str | None = None) -> Shares:
    """Expected expression under scVI, in the batch of each cell or in a given one."""
    shares = model.get_normalized_expression(transform_batch=batch, library_size=1, n_samples=10, return_numpy=True)
    return shares.astype(np.float64)


def harmony(scores: NDArray, batch: NDArray[np.str_], seed: int) -> NDArray:
    """Correct principal components ``(cells, components)`` by Harmony with its defaults."""
    batches = pd.DataFrame({"batch": batch})
    run_harmony = import_module("harmonypy").run_harmony
    return run_harmony(scores, batches, "batch", random_state=seed, verbose=False).Z_corr
