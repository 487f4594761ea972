"""Cells of the published benchmark of responses (Wei et al. 2025, scPerturBench), prepared as there.

Of Kang et al. (2018), with a cell type left out in turn (``kangCrossCell``) or a donor (``kangCrossPatient``). The
filter of the genes and the choice of 5,000 of them see the cells that are left out, as they do in the benchmark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from numpy.typing import NDArray

from benchmarks._data import KANG, MissingData

TABLE, EXCLUDED = "scperturbench_kang.csv", "kang2018_crosspatient_excluded_cells.csv"
CONTEXT, CONDITION, CELL_TYPE, CONTROL, STIMULATED = "context", "condition", "cell_type", "ctrl", "stim"
MIN_CELLS, N_TOP_GENES = 10, 5000
TYPES = {
    "B": "B",
    "B Activated": "B",
    "CD14 Mono": "CD14_Mono",
    "CD16 Mono": "CD16_Mono",
    "CD4 Memory T": "CD4_T",
    "CD4 Naive T": "CD4_T",
    "CD8 T": "CD8_T",
    "DC": "DC",
    "NK": "NK",
    "T activated": "T",
}


@dataclass(frozen=True)
class Prepared:
    """Cells of one task, whose ``obs`` has the context, which is left out in turn, the condition and the cell type."""

    counts: AnnData  # counts of the genes that pass the filter: what models are trained on
    scored: NDArray[np.bool_]  # which of these genes are scored

    @property
    def contexts(self) -> list[str]:
        """What is left out in turn."""
        return sorted(self.counts.obs[CONTEXT].unique())

    def rows(self, context: str, condition: str) -> NDArray[np.intp]:
        """Positions of the cells of a context and condition."""
        obs = self.counts.obs
        return np.flatnonzero((obs[CONTEXT] == context) & (obs[CONDITION] == condition))

    def expression(self, counts: AnnData) -> NDArray[np.float64]:
        """Logarithm of counts per 10,000 over all genes, of the genes that are scored ``(cells, scored genes)``."""
        return _log_normalised(counts)[:, self.scored].X.toarray().astype(np.float64)

    def without(self, context: str) -> AnnData:
        """All cells but the stimulated ones of a context."""
        left_out = np.zeros(self.counts.n_obs, dtype=bool)
        left_out[self.rows(context, STIMULATED)] = True
        return self.counts[~left_out].copy()


def of_types(folder: Path) -> Prepared:
    """Eight cell types."""
    cells = _cells(folder)
    cells.obs[CONTEXT] = cells.obs[CELL_TYPE]
    return prepared(cells)


def of_donors(folder: Path) -> Prepared:
    """Eight donors, without the cells whose donor is ambiguous."""
    cells = _cells(folder)
    excluded = pd.read_csv(data_path(folder, EXCLUDED))["cell"]
    cells = cells[~cells.obs_names.isin(excluded)].copy()
    cells.obs[CONTEXT] = "Pat" + cells.obs["donor"].astype(str)
    return prepared(cells)


PREPARE: dict[str, Callable[[Path], Prepared]] = {"types": of_types, "donors": of_donors}
DATASETS = {"types": "kangCrossCell", "donors": "kangCrossPatient"}


def prepared(cells: AnnData) -> Prepared:
    """Filter the genes, and choose those that are scored, after normalising over all that are left."""
    counts = cells.copy()
    sc.pp.filter_genes(counts, min_cells=MIN_CELLS)
    expression = _log_normalised(counts)
    sc.pp.highly_variable_genes(expression, n_top_genes=min(N_TOP_GENES, counts.n_vars))
    return Prepared(counts, expression.var["highly_variable"].to_numpy())


def published(folder: Path, task: str) -> pd.DataFrame:
    """Published scores of a task: a row a method and what was left out, a column a score such as ``mse_5000``."""
    table = pd.read_csv(data_path(folder, TABLE))
    table = table[table["dataset"] == DATASETS[task]]
    table["score"] = table["metric"] + "_" + table["n_genes"].astype(str)
    return table.pivot(index=["method", "left_out"], columns="score", values="value")


def _cells(folder: Path) -> AnnData:
    cells = anndata.read_h5ad(data_path(folder, KANG))
    types = cells.obs["cell_type_seurat"].astype(str).map(TYPES)
    cells.obs[CELL_TYPE], cells.obs[CONDITION] = types, cells.obs[CONDITION].astype(str)
    return cells[types.notna().to_numpy()].copy()


def _log_normalised(counts: AnnData) -> AnnData:
    expression = AnnData(counts.X.astype(np.float32), obs=counts.obs, var=counts.var)
    sc.pp.normalize_total(expression, target_sum=1e4)
    sc.pp.log1p(expression)
    return expression


def data_path(folder: Path, file: str) -> Path:
    if not (folder / file).exists():
        raise MissingData(f"{file} is not in ../shared/data: put it there to run this benchmark.")
    return folder / file
