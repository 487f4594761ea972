"""Minibatches of registered cells, construction of new cells, and random generators."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass
from scvi.utils import track
from torch import Tensor

from scdiffgen._arguments import check_whole_number
from scdiffgen._names import SYMBOLS_KEY
from scdiffgen.conditions import Conditions
from scdiffgen.data import check_counts_again
from scdiffgen.module import InvalidMinibatchError

from ._checks import cell_positions, check_seed

BATCH_SIZE = 512
SMALL_BATCH = 64  # for cells that are far apart on disk, because all cells between them are read
MOST_CELLS = 20_000  # maximum number of training cells for linear models, and kept from a data module

COUNT_SUMMARIES = (
    r"(log1p_)?(total_counts|n_genes_by_counts)(_\w+)?|(pct_counts|nCount|nFeature)_\w+|n_(counts|genes|umis)"
)
"""Columns of ``.obs`` that scanpy and Seurat compute from counts; they are wrong for other counts."""


class Cells:
    """Minibatches of registered cells in order; conditions in ``changes`` (one row) replace those of the cells."""

    def __init__(
        self,
        model: BaseModelClass,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        batch_size: int = BATCH_SIZE,
        description: str | None = None,
        changes: Conditions[np.ndarray] | None = None,
    ) -> None:
        batch_size = check_whole_number("batch_size", batch_size)  # PyTorch's loaders take no integer of NumPy
        self.module = model.module
        self.adata = model._validate_anndata(adata)
        self.manager = model.get_anndata_manager(self.adata, required=True)
        self.indices = cell_positions(indices, self.adata.n_obs)
        self.names = self.adata.obs_names[self.indices]
        self.description, self.changes = description, changes
        # Cells on disk are loaded in sorted order within a minibatch, so they are requested in sorted order.
        self.sorted = np.argsort(self.indices, kind="stable")
        self.loader = model._make_data_loader(
            adata=self.adata,
            indices=self.indices[self.sorted],
            batch_size=batch_size,
            load_sparse_tensor=True,
            generator=torch.Generator(),  # PyTorch's loaders would otherwise draw from the global generator
        )

    def __iter__(self) -> Iterator[tuple[Tensor, Conditions[Tensor]]]:
        """Yield minibatches of CSR counts and conditions, in sorted order."""
        silent = self.description is None or len(self.loader) < 2
        for batch in track(self.loader, description=self.description or "", disable=silent):
            try:
                self.module.check(batch)
            except InvalidMinibatchError:  # counts were replaced or changed after registration
                check_counts_again(self.manager)
                raise
            counts, conditions = self.module.unpack(batch)
            if self.changes:
                conditions = conditions.replace(repeated(self.changes, len(counts), counts.device))
            yield counts, conditions

    def obs(self) -> pd.DataFrame:
        """Return the ``.obs`` of the cells in the requested order, without summaries of their counts."""
        columns = self.adata.obs.columns.astype(str)
        stale = columns.str.fullmatch(COUNT_SUMMARIES) & ~columns.isin([spec.name for spec in self.module.specs])
        return self.adata.obs.loc[:, ~(columns.str.startswith("_scvi_") | stale)].iloc[self.indices].copy()

    def in_order(self, rows: list[Any]) -> Any:
        """Join results of minibatches in the requested order of the cells."""
        back = np.argsort(self.sorted)
        if sparse.issparse(rows[0]):
            return sparse.vstack(rows, format="csr")[back]
        return np.concatenate(rows)[back]


def evenly_spread(indices: np.ndarray, at_most: int) -> np.ndarray:
    return indices[:: max(1, -(-len(indices) // at_most))]


def repeated(condition: Conditions[np.ndarray], n_cells: int, device: torch.device) -> Conditions[Tensor]:
    return condition.take(np.zeros(n_cells, dtype=int)).to(device)


def generator_from(seed: int | None, device: torch.device) -> torch.Generator:
    """Create a random generator; without a seed, it is seeded by torch's global generator (``scvi.settings.seed``)."""
    check_seed(seed)
    chosen = int(torch.randint(2**31, (1,))) if seed is None else int(seed)
    return torch.Generator(device).manual_seed(chosen)


def blocks_of(genes: pd.MultiIndex) -> dict[str, slice]:
    """Map each modality to its columns, from pairs of modality and gene."""
    modalities = genes.get_level_values(0)
    sizes = {name: int((modalities == name).sum()) for name in modalities.unique()}
    ends = np.cumsum(list(sizes.values()))
    return {name: slice(int(end) - size, int(end)) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def new_cells(counts: sparse.csr_matrix, obs: pd.DataFrame, genes: pd.DataFrame) -> AnnData | MuData:
    """Create an AnnData from counts, or a MuData if the genes are indexed by pairs of modality and gene."""
    if not isinstance(genes.index, pd.MultiIndex):
        return AnnData(counts, obs=obs, var=genes, uns=dict(zip([SYMBOLS_KEY], genes, strict=False)))
    names, parts = pd.DataFrame(index=obs.index), {}
    for name, block in blocks_of(genes.index).items():
        own = genes.iloc[block].droplevel(0).rename_axis(index=None).dropna(axis=1, how="all")
        parts[name] = new_cells(counts[:, block], names.copy(), own)
    with quiet():
        mdata = MuData(parts)
    for column, values in obs.items():
        mdata.obs[column] = values
    return mdata


def gcxs(samples: list[sparse.csr_matrix], genes: pd.Index) -> Any:
    """Stack samples ``(cells, genes)`` along a last axis, as scvi-tools does; a mapping for several modalities."""
    from sparse import GCXS, stack

    if isinstance(genes, pd.MultiIndex):
        names = genes.get_level_values(1)
        return {name: gcxs([x[:, own] for x in samples], names[own]) for name, own in blocks_of(genes).items()}
    arrays = [GCXS.from_scipy_sparse(counts) for counts in samples]
    return arrays[0] if len(arrays) == 1 else GCXS(stack(arrays, axis=2))


def quiet() -> warnings.catch_warnings:
    """Silence warnings of mudata and scvi-tools about their next versions."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)
