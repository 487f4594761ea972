"""Write results into an AnnData or MuData: the only place where the model changes one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass

from scdiffgen._stored_tokens import ACTIVATION_KEY, LOADINGS_KEY, LOG_RATES_KEY, UNS_KEY

from ._cells import Cells, blocks_of
from ._model_access import gene_names
from ._sampler import Sampler
from ._token_reader import TokenReader

GENERATED_KEY = "X_generated"
KEYS = (GENERATED_KEY, "X_tokens", ACTIVATION_KEY, LOADINGS_KEY)
OF_GENES = (LOADINGS_KEY, LOG_RATES_KEY)
DTYPES = ("float32", "float16")


def check_keys(keys: Sequence[str] | None, dtype: str) -> list[str]:
    """Names of the results to write; raise if one is unknown."""
    chosen = list(KEYS) if keys is None else [keys] if isinstance(keys, str) else list(keys)
    unknown = [key for key in chosen if key not in KEYS]
    if unknown:
        raise ValueError(f"`keys` names {unknown}: choose from {list(KEYS)}.")
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` is {dtype!r}: choose from {list(DTYPES)}.")
    return chosen


def store_results(
    model: BaseModelClass, cells: Cells, keys: Sequence[str], dtype: str, sampler: Sampler, generator: torch.Generator
) -> None:
    """Compute all results, then write them."""
    adata, genes, reader = cells.adata, gene_names(model), TokenReader(model)
    compute: dict[str, Callable[[], Any]] = {
        GENERATED_KEY: lambda: sampler.matched(cells, generator),
        "X_tokens": lambda: _stored(cells.tokens(), dtype),
        ACTIVATION_KEY: lambda: _stored(reader.activation(cells), dtype),
        LOADINGS_KEY: lambda: reader.genes.loadings.copy(),
    }
    results = {key: compute[key]() for key in keys}
    if LOADINGS_KEY in keys:
        results[LOG_RATES_KEY] = reader.basis.loadings.copy()
    for key, values in results.items():
        _write_result(adata, key, values, genes)
    modalities = [] if isinstance(adata, AnnData) else [adata.mod[name] for name in _modalities(adata, genes)]
    for part in (adata, *modalities):
        part.uns[UNS_KEY] = reader.about(adata)


def _write_result(data: AnnData | MuData, key: str, values: Any, genes: pd.Index) -> None:
    """Write a result to its place: what is of genes into their modality, what is of cells also into the whole."""
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
        of_cells = values[data.obs_names.get_indexer(modality.obs_names)]
        modality.obsm[key] = of_cells[:, block] if key == GENERATED_KEY else of_cells


def _modalities(data: MuData, genes: pd.MultiIndex) -> dict[str, slice]:
    """Modalities of the model that a MuData has, with their columns."""
    return {name: block for name, block in blocks_of(genes).items() if name in data.mod}


def _stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values of a type to store them in; raise if it does not hold them."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > float(np.finfo(dtype).max):
        raise ValueError(f"`dtype` is {dtype!r}, which does not hold a token of {largest:g}: pass 'float32'.")
    return values.astype(dtype)
