"""Does ``transfer_batch`` integrate batches, and what stays of a cell? Beside the latent spaces of scVI and scANVI.

``python -m benchmarks.studies.integration --data kang --seeds 0 1 2``

Models are trained on a random subset of cells and its variable genes, with their defaults. They are given the batch
alone, or batch and cell type (*labels*). Counts are embedded by principal components of log-normalised values. All
cells are transferred to the most frequent batch. Scores:

- *type silhouette*, *batch silhouette*: mean silhouette widths; that of batches is taken within each type (Luecken et
  al. 2022, https://doi.org/10.1038/s41592-021-01336-8). Types should be far apart, batches at 0.
- *type LISI*, *batch LISI*: local inverse Simpson's index as harmonypy computes it (Korsunsky et al. 2019,
  https://doi.org/10.1038/s41592-019-0619-0): the effective number of types or batches around a cell, perplexity 30.
- *type of the cell*: share of cells whose type a 15-nearest-neighbour vote of the other cells recovers.
- *neighbours kept*: share of the 30 nearest cells of the same batch and type, in the components of the measured
  counts, that are among the 30 nearest of these after integration. A cell that is drawn anew keeps them by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import anndata
import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import entr
from scvi.model import SCANVI, SCVI
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_samples
from sklearn.neighbors import NearestNeighbors

from benchmarks._data import FOLDER, KANG, variable_genes
from benchmarks._variants import Run, study_options, study_runs, study_table
from benchmarks.generation import timed
from scdiffgen._log_normalise import log_normalise
from scdiffgen.model import TokenDiffusion

BATCH, TYPE = "batch", "cell_type"
N_CELLS, N_GENES, N_COMPONENTS = 3000, 1000, 30
PERPLEXITY, N_VOTES, N_NEIGHBOURS, LEAST_CELLS = 30, 15, 30, 10
Embedding = NDArray[np.floating]


@dataclass(frozen=True)
class Batches:
    """A file, and its columns of batches and cell types."""

    file: str
    batch: str
    unused_types: tuple[str, ...] = ()


DATA = {
    "kang": Batches(KANG, "condition", ("Erythrocytes",)),
    "snareseq": Batches("snareseq_cortex.h5mu", "batch", ("Mis",)),
}
SHARES = {"coupled": None, "keep=0": 0.0, "keep=0.1": 0.1, "keep=0.5": 0.5}
VARIANTS = ["uncorrected", "scdiffgen", "scdiffgen, labels", "scVI", "scANVI, labels"]
SCORES = ("type silhouette", "batch silhouette", "type LISI", "batch LISI", "type of the cell", "neighbours kept")


def load(name: str, seed: int) -> AnnData:
    """Counts of a random subset of cells over its variable genes, with batch and cell type."""
    data = DATA[name]
    if data.file.endswith(".h5mu"):
        import mudata

        whole = mudata.read_h5mu(FOLDER / data.file)
        adata = whole["rna"].copy()
        adata.obs = whole.obs[[data.batch, "cell_type"]].copy()
    else:
        adata = anndata.read_h5ad(FOLDER / data.file)
    adata = adata[~adata.obs["cell_type"].isin(data.unused_types)]
    rows = np.random.default_rng(seed).permutation(adata.n_obs)[:N_CELLS]
    adata = adata[np.sort(rows)].copy()
    genes = variable_genes(adata, N_GENES)
    cells = AnnData(sparse.csr_matrix(adata.X[:, genes], dtype=np.float32))
    cells.obs_names, cells.var_names = adata.obs_names, adata.var_names[genes]
    cells.obs[BATCH] = adata.obs[data.batch].astype(str).to_numpy()
    cells.obs[TYPE] = adata.obs["cell_type"].astype(str).to_numpy()
    return cells[np.asarray(cells.X.sum(1)).ravel() > 0].copy()


def components(counts: sparse.csr_matrix, seed: int) -> Embedding:
    """Principal components of log-normalised counts."""
    return PCA(N_COMPONENTS, random_state=seed).fit_transform(log_normalise(counts).toarray())


def local_inverse_simpson(embedding: Embedding, labels: NDArray) -> float:
    """Median over cells of the local inverse Simpson's index of some labels, as harmonypy computes it."""
    neighbours = NearestNeighbors(n_neighbors=3 * PERPLEXITY).fit(embedding)
    distances, indices = (found[:, 1:] for found in neighbours.kneighbors(embedding))
    codes = pd.factorize(labels)[0]
    found = []
    for near, rows in zip(distances, indices, strict=True):
        weights = neighbour_weights(near)
        found.append(1 / np.square(np.bincount(codes[rows], weights)).sum())
    return float(np.median(found))


def neighbour_weights(distances: NDArray[np.floating]) -> NDArray[np.floating]:
    """Weights ``exp(-beta * distance)`` that sum to 1, of such a beta that their perplexity is the one asked for."""
    low, high, beta = 0.0, np.inf, 1.0
    for _ in range(50):
        weights = np.exp(-(distances - distances.min()) * beta)
        weights /= weights.sum()
        excess = entr(weights).sum() - np.log(PERPLEXITY)
        if abs(excess) < 1e-5:
            break
        low, high = (beta, high) if excess > 0 else (low, beta)
        beta = 2 * beta if np.isinf(high) else (low + high) / 2
    return weights


def batch_silhouette(embedding: Embedding, cells: AnnData) -> float:
    """Mean over types of the mean silhouette width of batches, of those with several cells in two batches or more."""
    widths = []
    for rows in cells.obs.groupby(TYPE, observed=True).indices.values():
        batches = cells.obs[BATCH].to_numpy()[rows]
        enough = pd.Series(batches).map(pd.Series(batches).value_counts()).to_numpy() >= LEAST_CELLS
        if len(np.unique(batches[enough])) > 1:
            widths.append(silhouette_samples(embedding[rows][enough], batches[enough]).mean())
    return float(np.mean(widths))


def neighbours_kept(embedding: Embedding, before: Embedding, cells: AnnData) -> float:
    """Share of the nearest cells of the same batch and type that stay among the nearest, where there are enough."""
    kept = []
    for rows in cells.obs.groupby([TYPE, BATCH], observed=True).indices.values():
        if len(rows) > 3 * N_NEIGHBOURS:
            near = [
                NearestNeighbors(n_neighbors=N_NEIGHBOURS).fit(space[rows]).kneighbors(return_distance=False)
                for space in (before, embedding)
            ]
            kept += [len(np.intersect1d(*pair)) / N_NEIGHBOURS for pair in zip(*near, strict=True)]
    return float(np.mean(kept))


def own_type(embedding: Embedding, types: NDArray) -> float:
    """Share of cells whose type is the most frequent among their nearest other cells."""
    near = NearestNeighbors(n_neighbors=N_VOTES).fit(embedding).kneighbors(return_distance=False)
    codes = pd.factorize(types)[0]
    return float(np.mean([np.bincount(codes[rows]).argmax() == own for rows, own in zip(near, codes, strict=True)]))


def scores(embedding: Embedding, before: Embedding, cells: AnnData, seconds: float) -> Run:
    """All scores of an embedding of the cells; ``before`` are the components of their measured counts."""
    types, batches = cells.obs[TYPE].to_numpy(), cells.obs[BATCH].to_numpy()
    values = (
        float(silhouette_samples(embedding, types).mean()),
        batch_silhouette(embedding, cells),
        local_inverse_simpson(embedding, types),
        local_inverse_simpson(embedding, batches),
        own_type(embedding, types),
        neighbours_kept(embedding, before, cells),
    )
    return {"scores": dict(zip(SCORES, values, strict=True)) | {"seconds": seconds}}


def embeddings_of_scdiffgen(
    cells: AnnData, seed: int, max_epochs: int | None, labels: str | None
) -> Iterator[tuple[str, Embedding, float]]:
    """Tokens, components of transferred counts, and of the expected expression in the most frequent batch."""
    scvi.settings.seed = seed
    TokenDiffusion.setup_anndata(cells, batch_key=BATCH, labels_key=labels)
    model = TokenDiffusion(cells)
    _, seconds = timed(lambda: model.train(max_epochs, enable_progress_bar=False))
    pca = PCA(N_COMPONENTS, random_state=seed)
    yield "tokens", pca.fit_transform(model.get_latent_representation(silent=True)), seconds
    to = cells.obs[BATCH].value_counts().index[0]
    for name, keep in SHARES.items():
        moved = model.transfer_batch(cells, to, keep=keep, seed=seed, silent=True)
        yield f"transfer_batch, {name}", components(moved.X, seed), seconds
    expected = model.get_normalized_expression(cells, transform_batch=to, library_size=1e4, silent=True)
    yield "expression", pca.fit_transform(np.log1p(expected.to_numpy())), seconds


def measured(name: str, seed: int, variants: Sequence[str], max_epochs: int | None) -> Iterator[tuple[str, Run]]:
    """Scores of every embedding of some data."""
    cells = load(name, seed)
    before = components(cells.X, seed)
    if "uncorrected" in variants:
        yield "uncorrected", scores(before, before, cells, 0.0)
    for variant, labels in {"scdiffgen": None, "scdiffgen, labels": TYPE}.items():
        if variant in variants:
            for kind, embedding, seconds in embeddings_of_scdiffgen(cells.copy(), seed, max_epochs, labels):
                yield f"{variant}: {kind}", scores(embedding, before, cells, seconds)
    if {"scVI", "scANVI, labels"} & {*variants}:
        scvi.settings.seed = seed
        SCVI.setup_anndata(cells, batch_key=BATCH, labels_key=TYPE)
        model = SCVI(cells)
        _, seconds = timed(lambda: model.train(max_epochs, enable_progress_bar=False))
        if "scVI" in variants:
            yield "scVI: latent", scores(model.get_latent_representation(), before, cells, seconds)
        if "scANVI, labels" in variants:
            labelled = SCANVI.from_scvi_model(model, unlabeled_category="none")
            _, more = timed(lambda: labelled.train(max_epochs, enable_progress_bar=False))
            latent = labelled.get_latent_representation()
            yield "scANVI, labels: latent", scores(latent, before, cells, seconds + more)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.integration", __doc__.splitlines()[0]
    default = [name for name, data in DATA.items() if (FOLDER / data.file).exists()]
    options: Any = study_options(*about, [*DATA], default, [0, 1, 2], VARIANTS).parse_args(arguments)
    epochs = 2 if options.quick else None

    def runs_of(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        return measured(name, seed, options.variants, epochs)

    digits = {name: 2 if "LISI" in name else 3 for name in SCORES}
    print(study_table(study_runs(options, "study-integration.jsonl", runs_of), digits | {"seconds": 0}))


if __name__ == "__main__":
    main()
