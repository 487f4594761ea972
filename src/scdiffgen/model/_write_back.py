"""Writing of results into an AnnData, a MuData or a file. No other file of the package changes the user's cells."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen._stored_tokens import ACTIVATION_KEY, LOADINGS_KEY, LOG_RATES_KEY, UNS_KEY
from scdiffgen.conditions import Conditions
from scdiffgen.io import all_or_nothing, append_rows, new_zarr, write_quietly

from ._cells import Cells, blocks_of
from ._model_access import gene_names, modalities
from ._sampler import Sampler, whole_counts
from ._token_reader import TokenReader

GENERATED_KEY = "X_generated"
KEYS = (GENERATED_KEY, "X_tokens", ACTIVATION_KEY, LOADINGS_KEY)
OF_GENES = (LOADINGS_KEY, LOG_RATES_KEY)
DTYPES = ("float32", "float16")


def check_keys(keys: Sequence[str] | None, dtype: str) -> list[str]:
    """Return names of the results to write; raise if one is unknown."""
    chosen = list(KEYS) if keys is None else [keys] if isinstance(keys, str) else list(keys)
    unknown = [key for key in chosen if key not in KEYS]
    if unknown:
        raise ValueError(f"`keys` names {unknown}: choose from {list(KEYS)}.")
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` is {dtype!r}: choose from {list(DTYPES)}.")
    return chosen


def check_store(model: BaseModelClass, path: str | os.PathLike[str]) -> None:
    """Raise unless results can be written to a new file."""
    if Path(path).suffix != ".zarr" or Path(path).exists():
        raise ValueError(f"`path` is {str(path)!r}: pass the name of a new file that ends with '.zarr'.")
    if modalities(model):
        raise ValueError("`path`: results of several modalities go into a MuData in memory. Leave `path` out.")


def store_results(
    model: BaseModelClass,
    cells: Cells,
    keys: Sequence[str],
    dtype: str,
    sampler: Sampler,
    generator: torch.Generator,
    path: str | os.PathLike[str] | None = None,
) -> None:
    """Compute all results in one pass over the cells and write them; to a file, minibatch by minibatch."""
    genes, reader, module = gene_names(model), TokenReader(model), model.module
    compute: dict[str, Callable[[Tensor, Conditions[Tensor]], Any]] = {
        GENERATED_KEY: lambda counts, given: whole_counts(sampler.minibatch(given, module.library(counts), generator)),
        "X_tokens": lambda *batch: _stored(module.tokens(*batch).flatten(1).cpu().numpy(), dtype),
        ACTIVATION_KEY: lambda *batch: _stored(reader.activation_of(*batch), dtype),
    }
    chosen = [key for key in keys if key in compute]

    def results_of(*batch: Any) -> dict[str, Any]:
        return {key: compute[key](*batch) for key in chosen}

    loadings = {LOADINGS_KEY: reader.genes.loadings.copy(), LOG_RATES_KEY: reader.basis.loadings.copy()}
    gene_results = loadings if LOADINGS_KEY in keys else {}
    if path is not None:
        whole = AnnData(var=pd.DataFrame(index=genes), varm=gene_results)
        whole.uns[UNS_KEY] = reader.about(whole)
        with all_or_nothing(Path(path)) as folder:
            write_quietly(file := new_zarr(folder), "/", whole)

            def append(*batch: Any) -> None:
                for key, rows in results_of(*batch).items():
                    append_rows(file["obsm"], key, rows)

            sampler.over_cells(cells, append)
            write_quietly(file, "obs", cells.obs())
        return
    minibatches = sampler.over_cells(cells, results_of) if chosen else []
    results = {key: cells.in_order([part[key] for part in minibatches]) for key in chosen} | gene_results
    adata = cells.adata
    for key, values in results.items():
        _write_result(adata, key, values, genes)
    parts = [] if isinstance(adata, AnnData) else [adata.mod[name] for name in _modalities(adata, genes)]
    for part in (adata, *parts):
        part.uns[UNS_KEY] = reader.about(adata)


def _write_result(data: AnnData | MuData, key: str, values: Any, genes: pd.Index) -> None:
    """Write a result: per gene to its modality, per cell to each modality and the MuData."""
    if isinstance(data, AnnData):
        (data.varm if key in OF_GENES else data.obsm)[key] = values
        return
    if key not in (*OF_GENES, GENERATED_KEY):
        data.obsm[key] = values
    for name, block in _modalities(data, genes).items():
        modality = data.mod[name]
        if key in OF_GENES:
            modality.varm[key] = values[block]
            continue
        rows = values[data.obs_names.get_indexer(modality.obs_names)]
        modality.obsm[key] = rows[:, block] if key == GENERATED_KEY else rows


def _modalities(data: MuData, genes: pd.MultiIndex) -> dict[str, slice]:
    """Map the model's modalities in a MuData to their columns."""
    return {name: block for name, block in blocks_of(genes).items() if name in data.mod}


def _stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Convert values to the stored type; raise if they are too large for it."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > float(np.finfo(dtype).max):
        raise ValueError(f"`dtype` is {dtype!r}, too small for a token of {largest:g}: pass 'float32'.")
    return values.astype(dtype)
