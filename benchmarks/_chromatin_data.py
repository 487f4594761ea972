"""Cells with RNA and chromatin, and their splits: paired cells, cells of one modality, cells that no model sees."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from numpy.typing import NDArray
from scipy import sparse

import scdiffgen
from benchmarks._data import LABEL, split
from benchmarks._multimodal_data import RNA, counts_of, joined, read_file, seen_columns, stacked

SNARE, ATAC = "snareseq_cortex.h5mu", "atac"
UNASSIGNED = "Mis"
OTHER = {RNA: ATAC, ATAC: RNA}


@dataclass(frozen=True)
class ChromatinSplit:
    """Cells by what they are for, each a MuData of counts with labels in ``.obs["label"]``."""

    name: str
    seed: int
    train: MuData  # cells of which models see both modalities
    without: dict[str, MuData]  # by modality: cells of which models see the other one alone, and that are to be imputed
    held_out: MuData  # cells that no model sees: those that generated cells are compared with, and as many more
    other: MuData

    @property
    def conditions(self) -> pd.DataFrame:
        """Labels of the held-out cells: what every method generates."""
        return pd.DataFrame({LABEL: labels_of(self.held_out)})

    def seen(self) -> MuData:
        """What models are trained on: cells with both modalities, and those with one."""
        parts = {key: stacked([self.train[key], self.without[OTHER[key]][key]]) for key in OTHER}
        mdata = joined(parts)
        labels = pd.concat([cells.obs[LABEL] for cells in (self.train, *self.without.values())])
        mdata.obs[LABEL] = pd.Categorical(labels[mdata.obs_names])
        return mdata


def split_chromatin(mdata: MuData, name: str, seed: int) -> ChromatinSplit:
    """Hold out 15 % of the cells of each label, as many others; 15 % of the rest lack RNA, as many lack peaks."""
    whole = split(AnnData(obs=pd.DataFrame({LABEL: mdata.obs[LABEL]})), name, seed)
    seen = split(whole.train, name, seed)
    columns = {key: seen_columns(mdata[seen.train.obs_names][key].X) for key in OTHER}

    def cells(part: AnnData) -> MuData:
        chosen = mdata[part.obs_names]
        found = joined({key: counts_of(chosen[key][:, columns[key]]) for key in OTHER})
        found.obs[LABEL] = chosen.obs[LABEL].to_numpy(dtype=str)
        return found

    without = {ATAC: cells(seen.held_out), RNA: cells(seen.other)}
    return ChromatinSplit(name, seed, cells(seen.train), without, cells(whole.held_out), cells(whole.other))


def labels_of(mdata: MuData) -> NDArray[np.str_]:
    """Label of each cell."""
    return mdata.obs[LABEL].to_numpy(dtype=str)


def read_snare() -> MuData:
    """Cells of the mouse cortex that have a label."""
    mdata = read_file(SNARE)
    return labelled(mdata[(mdata.obs["cell_type"] != UNASSIGNED).to_numpy()])


def simulated() -> MuData:
    """Simulated cells, small: the second modality has few molecules over many columns, as chromatin has."""
    cells = scdiffgen.datasets.simulate_cite(400, 60, 120, library_sizes=(250.0, 40.0))
    found = joined({RNA: cells["rna"], ATAC: cells["protein"]})
    found.obs["cell_type"] = cells.obs["cell_type"]
    return labelled(found)


def labelled(mdata: MuData) -> MuData:
    """The cells that have molecules of both modalities, with their label."""
    both = np.logical_and(*(np.asarray(sparse.csr_matrix(mdata[key].X).sum(axis=1)).ravel() > 0 for key in OTHER))
    found = mdata[both].copy()
    found.obs[LABEL] = found.obs["cell_type"].astype(str)
    return found


CHROMATIN_DATA = {
    "snareseq": ("SNARE-seq of the adult mouse cortex", read_snare),
    "simulated": ("simulated RNA and peaks", simulated),
}
