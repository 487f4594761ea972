"""How many sampling steps are enough, by depth of the cells: errors against 64 steps of the same model.

``python -m benchmarks.studies.steps --data pbmc68k paul15 kang --threads 1``

A model is trained with the defaults on at most 2,500 cells and 1,000 variable genes. Cells with the labels and library
sizes of the training cells are drawn in 8, 16, 32 and 64 steps. The *error* of gene means of log expression, and of
their log variances (dispersion), is the mean squared difference from 64 steps, less its sampling noise, over the
sampling noise of 1,000 cells: below 1, it is smaller than that noise. *enough* is the fewest of 8, 16 and 32 steps for
which both are below 1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._data import DATASETS, FOLDER, LABEL, variable_genes
from benchmarks._record import start
from scdiffgen._log_normalise import log_normalise
from scdiffgen.model import TokenDiffusion

N_CELLS, N_GENES, N_DRAWN, N_COMPARED = 2_500, 1_000, 3_000, 1_000
STEPS, MOST_STEPS = (8, 16, 32), 64
LEAST_DETECTED = 0.05  # share of cells with a molecule of a gene whose moments are compared


def from_file(name: str, label: str | None) -> AnnData:
    """Counts of a file, with a column of labels."""
    adata = sc.read_h5ad(FOLDER / name)
    labels = np.repeat("all", adata.n_obs) if label is None else adata.obs[label].astype(str).to_numpy()
    counts = AnnData(sparse.csr_matrix(adata.X, dtype=np.float32), var=pd.DataFrame(index=adata.var_names))
    counts.obs[LABEL] = pd.Categorical(labels)
    return counts


def summed(load: Callable[[], AnnData], n_together: int) -> AnnData:
    """Sums of so many cells of a label."""
    cells, rng, parts, labels = load(), np.random.default_rng(0), [], []
    for label, positions in cells.obs.groupby(LABEL, observed=True).indices.items():
        n = len(positions) // n_together
        chosen = rng.permutation(positions)[: n * n_together]
        together = sparse.csr_matrix(
            (np.ones(len(chosen)), (np.repeat(np.arange(n), n_together), chosen)), (n, cells.n_obs)
        )
        parts.append(together @ cells.X)
        labels += [label] * n
    counts = AnnData(sparse.vstack(parts, format="csr").astype(np.float32), var=cells.var)
    counts.obs[LABEL] = pd.Categorical(labels)
    return counts


DATA: dict[str, Callable[[], AnnData]] = {
    **{name: DATASETS[name].load for name in ("pbmc68k", "paul15", "kang")},
    "kidney": partial(from_file, "scdcc_kidney.h5ad", "cell_type"),
    "haber": partial(from_file, "haber2017_intestine_1000g.h5ad", "cell_type"),
    "rnamix": partial(from_file, "tian2019_rnamix_celseq2.h5ad", "mix"),
    **{f"kang x {n}": partial(summed, DATASETS["kang"].load, n) for n in (10, 100)},
}


def chosen(cells: AnnData, seed: int) -> AnnData:
    """At most 2,500 cells and 1,000 variable genes."""
    rows = np.random.default_rng(seed).permutation(cells.n_obs)[:N_CELLS]
    some = cells[np.sort(rows)].copy()
    genes = variable_genes(some, N_GENES) if some.n_vars > N_GENES else np.ones(some.n_vars, dtype=bool)
    some = some[:, genes]
    return some[np.asarray(some.X.sum(axis=1)).ravel() > 0].copy()


def moments(counts: sparse.csr_matrix, genes: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Means and log variances of log expression, and their variances over cells: ``(moments, 2, genes)``."""
    x = log_normalise(counts)[:, genes].toarray().astype(np.float64)
    mean, centred = x.mean(axis=0), x - x.mean(axis=0)
    variance = np.maximum((centred**2).mean(axis=0), 1e-12)
    return np.array([[mean, variance], [np.log(variance), (centred**4).mean(axis=0) / variance**2 - 1]])


def errors(found: NDArray[np.float64], best: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared differences of moments over the sampling noise of 1,000 cells, without that of the drawn cells."""
    noise = (found[:, 1] + best[:, 1]).mean(axis=1) / N_DRAWN
    return (((found - best)[:, 0] ** 2).mean(axis=1) - noise) / (best[:, 1].mean(axis=1) / N_COMPARED)


def scores(name: str, seed: int) -> pd.DataFrame:
    """Errors of each number of steps on a data set."""
    cells = chosen(DATA[name](), seed)
    TokenDiffusion.setup_anndata(cells, labels_key=LABEL)
    model = TokenDiffusion(cells)
    model.train(enable_progress_bar=False)
    rows = np.random.default_rng(seed).choice(cells.n_obs, N_DRAWN)
    table = pd.DataFrame({LABEL: cells.obs[LABEL].astype(str).to_numpy()[rows]})
    sizes, found, seconds = np.asarray(cells.X.sum(axis=1)).ravel()[rows], {}, {}
    for n_steps in (*STEPS, MOST_STEPS):
        began = time.perf_counter()
        new = model.generate(table, library_size=sizes, n_steps=n_steps, seed=seed + n_steps, silent=True)
        found[n_steps], seconds[n_steps] = sparse.csr_matrix(new.X), time.perf_counter() - began
    genes = np.asarray((found[MOST_STEPS] > 0).mean(axis=0)).ravel() >= LEAST_DETECTED
    best = moments(found[MOST_STEPS], genes)
    frame = pd.DataFrame(
        [[n, *errors(moments(found[n], genes), best), N_DRAWN / seconds[n]] for n in STEPS],
        columns=["n_steps", "mean", "dispersion", "cells a second"],
    )
    is_enough = (frame[["mean", "dispersion"]] < 1).all(axis=1)
    per_cell = float(cells.X.sum(axis=1).mean())
    return frame.assign(
        data=name,
        cells=cells.n_obs,
        molecules=per_cell,
        per_gene=per_cell / cells.n_vars,
        enough=next((n for n, ok in zip(STEPS, is_enough, strict=True) if ok), MOST_STEPS),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the errors by data set and number of steps."""
    parser = argparse.ArgumentParser("python -m benchmarks.studies.steps", description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="threads of everything (1)")
    options = parser.parse_args(arguments)
    start(options.threads)
    for name in options.data:
        print(scores(name, options.seed).set_index(["data", "n_steps"]).round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
