"""Cells of one or several modalities as AnnData or MuData: new ones, and results written into given ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scipy import sparse

from scdiffgen._stored_tokens import LOADINGS_KEY

GENERATED_KEY = "X_generated"


def blocks_of(genes: pd.MultiIndex) -> dict[str, slice]:
    """Columns of each modality, from pairs of modality and gene."""
    modalities = genes.get_level_values(0)
    sizes = {name: int((modalities == name).sum()) for name in modalities.unique()}
    ends = np.cumsum(list(sizes.values()))
    return {name: slice(int(end) - size, int(end)) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def new_cells(counts: sparse.csr_matrix, obs: pd.DataFrame, genes: pd.Index) -> AnnData | MuData:
    """Make cells of counts: an AnnData, or a MuData if genes are pairs of modality and gene."""
    if not isinstance(genes, pd.MultiIndex):
        return AnnData(counts, obs=obs, var=pd.DataFrame(index=genes))
    names = pd.DataFrame(index=obs.index)
    parts = {
        name: AnnData(counts[:, block], obs=names.copy(), var=pd.DataFrame(index=genes.get_level_values(1)[block]))
        for name, block in blocks_of(genes).items()
    }
    return joined(parts, obs)


def joined(modalities: Mapping[str, AnnData], obs: pd.DataFrame) -> MuData:
    """Join modalities of the same cells."""
    with quiet():
        mdata = MuData(dict(modalities))
    for column, values in obs.items():
        mdata.obs[column] = values
    return mdata


def quiet() -> warnings.catch_warnings:
    """Leave out what mudata 0.3 says of its next version."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)


def write_result(data: AnnData | MuData, key: str, values: Any, genes: pd.Index) -> None:
    """Write a result to its place: what is of genes into their modality, what is of cells also into the whole."""
    if isinstance(data, AnnData):
        (data.varm if key == LOADINGS_KEY else data.obsm)[key] = values
        return
    if key not in (LOADINGS_KEY, GENERATED_KEY):
        data.obsm[key] = values
    there = {name: block for name, block in blocks_of(genes).items() if name in data.mod}
    for name, block in there.items():
        modality = data.mod[name]
        if key == LOADINGS_KEY:
            modality.varm[key] = values[block]
            continue
        of_cells = values[data.obs_names.get_indexer(modality.obs_names)]
        modality.obsm[key] = of_cells[:, block] if key == GENERATED_KEY else of_cells


def parts_of(data: AnnData | MuData, modalities: Sequence[str]) -> list[AnnData]:
    """Modalities of the model that are there; none of an AnnData."""
    return [data.mod[name] for name in modalities if name in data.mod]
