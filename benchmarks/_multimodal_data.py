"""Cells with RNA and protein, and their splits."""

import warnings
from dataclasses import dataclass
from functools import partial

import mudata
import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from numpy.typing import NDArray
from scipy import sparse

import scdiffgen
from benchmarks._data import FOLDER, MissingData

CITE = "pbmc10k_cite.h5mu"
RNA, PROTEIN = "rna", "prot"
SHARE = 0.15


@dataclass(frozen=True)
class CiteSplit:
    """Cells by what they are for, each a MuData of counts."""

    name: str
    seed: int
    train: MuData  # cells whose RNA and protein models are trained on
    imputed: MuData  # cells of which models see the RNA, and are asked for the protein
    held_out: MuData  # cells that no model sees: those that generated cells are compared with, and as many more
    other: MuData

    def seen(self) -> MuData:
        """What models are trained on: all of the training cells, the RNA of those to be imputed."""
        rna = [self.train[RNA], self.imputed[RNA]]
        return joined({RNA: stacked(rna), PROTEIN: self.train[PROTEIN].copy()})


def split_cite(mdata: MuData, name: str, seed: int) -> CiteSplit:
    """Split cells at random; genes and proteins without molecules in the training cells are dropped."""
    shuffled = np.random.default_rng(seed).permutation(mdata.n_obs)
    n = round(SHARE * mdata.n_obs)
    parts = [np.sort(rows) for rows in np.split(shuffled, [n, 2 * n, 3 * n])]
    columns = {key: seen_columns(mdata[key].X[parts[-1]]) for key in (RNA, PROTEIN)}

    def cells(rows: NDArray[np.intp]) -> MuData:
        return joined({key: counts_of(mdata[key][rows][:, columns[key]]) for key in (RNA, PROTEIN)})

    imputed, held_out, other, train = map(cells, parts)
    return CiteSplit(name, seed, train, imputed, held_out, other)


def seen_columns(counts: sparse.csr_matrix) -> NDArray[np.bool_]:
    """Columns with molecules."""
    return np.asarray(counts.sum(axis=0)).ravel() > 0


def counts_of(cells: AnnData) -> AnnData:
    """Counts and names, and nothing else."""
    counts = AnnData(sparse.csr_matrix(cells.X, dtype=np.float32))
    counts.obs_names, counts.var_names = cells.obs_names, cells.var_names
    return counts


def stacked(parts: list[AnnData]) -> AnnData:
    """Cells of several parts, one after the other."""
    names = np.concatenate([part.obs_names for part in parts])
    counts = sparse.vstack([part.X for part in parts], format="csr")
    return AnnData(counts, obs=pd.DataFrame(index=names), var=pd.DataFrame(index=parts[0].var_names))


def padded(mdata: MuData) -> MuData:
    """The same cells with zeros where a modality was not measured, as scvi-tools expects them."""
    parts = {}
    for key, cells in mdata.mod.items():
        with_zeros = sparse.vstack([cells.X, sparse.csr_matrix((1, cells.n_vars), dtype=np.float32)], format="csr")
        counts = with_zeros[cells.obs_names.get_indexer(mdata.obs_names)]  # -1, of a cell without, is the last row
        parts[key] = AnnData(counts, obs=pd.DataFrame(index=mdata.obs_names), var=cells.var)
    return joined(parts)


def joined(modalities: dict[str, AnnData]) -> MuData:
    """A MuData, without what mudata 0.3 says of its next version."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return MuData(modalities)


def read_file(file: str) -> MuData:
    """Read a file of the data folder."""
    if not (FOLDER / file).exists():
        raise MissingData(f"{file} is not in ../shared/data: put it there, or choose other data.")
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return mudata.read_h5mu(FOLDER / file)


def simulated() -> MuData:
    """Simulated cells, small."""
    cells = scdiffgen.datasets.simulate_cite(n_cells=600)
    return joined({RNA: cells["rna"], PROTEIN: cells["protein"]})


CITE_DATA = {
    "pbmc10k": ("PBMC of 10x Genomics with 14 proteins", partial(read_file, CITE)),
    "simulated": ("simulated RNA and protein", simulated),
}
