"""Real counts with labels, and their splits into training, held-out and other real cells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import scanpy as sc
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

import scdiffgen

FOLDER = Path(__file__).parents[1] / "../shared/data"
KANG, PBMC3K, PAUL15 = "kang2018_pbmc_ifnb.h5ad", "pbmc3k.h5ad", "paul15_myeloid.h5ad"
LABEL = "label"
HELD_OUT_SHARE, HELD_OUT_CELLS = 0.15, 2000
FEW_TRAINING_CELLS, LEAST_OF_LABEL = 700, 8


class MissingData(FileNotFoundError):
    """A data set is not there."""


@dataclass(frozen=True)
class Dataset:
    """A data set: what it is, how it is loaded, its file unless the package brings it.

    ``n_top_genes`` and ``n_train`` are how many genes and training cells are taken, by default all.
    """

    description: str
    load: Callable[[], AnnData]
    file: str | None = None
    n_top_genes: int | None = None
    n_train: int | None = None


@dataclass(frozen=True)
class Split:
    """Cells by what they are for: counts in ``.X``, labels in ``.obs["label"]``, over the same genes."""

    name: str
    seed: int
    train: AnnData
    held_out: AnnData
    other: AnnData

    @property
    def labels(self) -> NDArray[np.str_]:
        """Labels of the held-out cells: what every method is asked to generate."""
        return self.held_out.obs[LABEL].to_numpy(dtype=str)


def load_split(name: str, seed: int) -> Split:
    """Load a data set and split it."""
    dataset = DATASETS[name]
    return split(dataset.load(), name, seed, dataset.n_top_genes, dataset.n_train)


def split(adata: AnnData, name: str, seed: int, n_top_genes: int | None = None, n_train: int | None = None) -> Split:
    """Hold out 15 % of the cells of each label, at most 2,000 in all, and as many other real cells; train on the rest.

    Of the rest at most ``n_train`` are kept, as many of each label as its share, but at least 8 where there are.
    Variable genes are chosen on the training cells. Cells without molecules in them are dropped.
    """
    rng = np.random.default_rng(seed)
    share = min(HELD_OUT_SHARE, HELD_OUT_CELLS / adata.n_obs)
    rows: tuple[list[NDArray], ...] = ([], [], [])
    for positions in adata.obs.groupby(LABEL, observed=True).indices.values():
        shuffled, n = rng.permutation(positions), round(share * len(positions))
        for part, chosen in zip(rows, (shuffled[2 * n :], shuffled[:n], shuffled[n : 2 * n]), strict=True):
            part.append(chosen)
    if n_train is not None:
        rows = ([_fewer(rows[0], n_train)], *rows[1:])
    train, held_out, other = (adata[np.sort(np.concatenate(part))].copy() for part in rows)
    if n_top_genes is not None and n_top_genes < adata.n_vars:
        genes = variable_genes(train, n_top_genes)
        train, held_out, other = (_without_empty(part[:, genes]) for part in (train, held_out, other))
    return Split(name, seed, train, held_out, other)


def _fewer(of_labels: Sequence[NDArray], n: int) -> NDArray:
    """The first cells of every label, in all ``n``, as many of each as its share, but at least 8 where there are."""
    ranks = [np.arange(len(cells)) for cells in of_labels]
    places = [np.where(rank < LEAST_OF_LABEL, -1.0, (rank + 0.5) / max(len(rank), 1)) for rank in ranks]
    return np.concatenate(of_labels)[np.argsort(np.concatenate(places), kind="stable")[:n]]


def described(split: Split) -> dict[str, Any]:
    """What a result says of its data."""
    return {
        "name": split.name,
        "description": DATASETS[split.name].description,
        "n_train": split.train.n_obs,
        "n_held_out": split.held_out.n_obs,
        "n_genes": split.train.n_vars,
    }


def variable_genes(adata: AnnData, n_top_genes: int) -> NDArray[np.bool_]:
    """Choose genes of variable log expression, by scanpy's default definition."""
    normalised = adata.copy()
    sc.pp.normalize_total(normalised, target_sum=1e4)
    sc.pp.log1p(normalised)
    sc.pp.highly_variable_genes(normalised, n_top_genes=n_top_genes)
    return normalised.var["highly_variable"].to_numpy()


def available(*, fewer: bool = False) -> list[str]:
    """Names of the data sets that are there; with ``fewer``, also of those cut to fewer training cells."""
    there = {name: data for name, data in DATASETS.items() if data.file is None or (FOLDER / data.file).exists()}
    return [name for name, data in there.items() if fewer or data.n_train is None]


def load_kang() -> AnnData:
    """PBMC with and without interferon beta; labels are cell type x condition."""
    adata = _read(KANG)
    adata = adata[adata.obs["cell_type"] != "Erythrocytes"]
    return _labelled(adata, adata.obs["cell_type"].astype(str) + ", " + adata.obs["condition"].astype(str))


def load_pbmc3k(min_cells: int = 30) -> AnnData:
    """Labelled cells, genes seen in at least so many of them."""
    adata = _read(PBMC3K)
    adata = adata[adata.obs["cell_type"] != "unlabelled"]
    return _labelled(adata[:, (adata.X > 0).sum(axis=0).A1 >= min_cells], adata.obs["cell_type"])


def load_paul15() -> AnnData:
    """Differentiating myeloid progenitors."""
    adata = _read(PAUL15)
    return _labelled(adata, adata.obs["cell_type"])


def load_pbmc68k() -> AnnData:
    """Load the bundled counts."""
    adata = scdiffgen.datasets.pbmc68k()
    adata.X = adata.layers["counts"]
    return _labelled(adata, adata.obs["cell_type"])


DATASETS = {
    "kang": Dataset("PBMC with and without interferon beta (Kang et al. 2018), 8 types x 2", load_kang, KANG, 2000),
    "pbmc3k": Dataset("PBMC of 10x Genomics, genes seen in at least 30 cells", load_pbmc3k, PBMC3K),
    "paul15": Dataset("myeloid progenitors (Paul et al. 2015)", load_paul15, PAUL15),
    "kang700": Dataset(
        "the same PBMC (Kang et al. 2018), 700 training cells", load_kang, KANG, 2000, FEW_TRAINING_CELLS
    ),
    "paul700": Dataset(
        "the same progenitors (Paul et al. 2015), 700 training cells", load_paul15, PAUL15, None, FEW_TRAINING_CELLS
    ),
    "pbmc68k": Dataset("bundled PBMC data (700 cells)", load_pbmc68k),
}


def _read(file: str) -> AnnData:
    path = FOLDER / file
    if not path.exists():
        raise MissingData(f"{file} is not in ../shared/data: put it there, or choose other data.")
    return anndata.read_h5ad(path)


def _labelled(adata: AnnData, labels: NDArray) -> AnnData:
    """Counts and labels, and nothing else."""
    counts = AnnData(sparse.csr_matrix(adata.X, dtype=np.float32))
    counts.obs_names, counts.var_names = adata.obs_names, adata.var_names
    counts.obs[LABEL] = np.asarray(labels, dtype=str)
    counts.obs[LABEL] = counts.obs[LABEL].astype("category")
    return counts


def _without_empty(adata: AnnData) -> AnnData:
    return adata[adata.X.sum(axis=1).A1 > 0].copy()
