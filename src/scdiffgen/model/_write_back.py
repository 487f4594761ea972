"""Writing results into an AnnData or MuData: the only place where the model touches one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scvi.model.base import BaseModelClass

from scdiffgen._stored_tokens import ACTIVATION_KEY, LOADINGS_KEY, UNS_KEY
from scdiffgen.module import DiffusionModule

from ._cells import Cells
from ._model_access import gene_names, modalities, registered
from ._mudata import GENERATED_KEY, parts_of, write_result
from ._sampler import Sampler
from ._token_reader import token_reader

if TYPE_CHECKING:
    from anndata import AnnData
    from mudata import MuData

KEYS = (GENERATED_KEY, "X_tokens", ACTIVATION_KEY, LOADINGS_KEY)
DTYPES = ("float32", "float16")


def check_keys(module: DiffusionModule, keys: Sequence[str] | None, dtype: str) -> list[str]:
    """Names of the results to write; raise if one is unknown, or there is none of it without an additive read-out."""
    there = KEYS[:2] if module.gene_weights() is None else KEYS
    chosen = list(there) if keys is None else [keys] if isinstance(keys, str) else list(keys)
    unknown = [key for key in chosen if key not in there]
    if unknown:
        raise ValueError(f"`keys` names {unknown}: choose from {list(there)}.")
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` is {dtype!r}: choose from {list(DTYPES)}.")
    return chosen


def store_results(
    model: BaseModelClass,
    adata: AnnData | MuData | None,
    keys: Sequence[str],
    dtype: str,
    sampler: Sampler,
    generator: torch.Generator,
    *,
    silent: bool,
) -> None:
    """Compute all results, then write them."""
    adata, batch_size = registered(model, adata), sampler.batch_size
    options: dict[str, Any] = {"batch_size": batch_size, "silent": silent}

    def matched_samples() -> Any:
        cells = Cells(model, adata, None, batch_size, None if silent else "Generating")
        return sampler.matched(cells, generator)

    compute: dict[str, Callable[[], Any]] = {
        GENERATED_KEY: matched_samples,
        "X_tokens": lambda: _stored(model.get_latent_representation(adata, **options), dtype),
        ACTIVATION_KEY: lambda: _stored(model.get_token_activation(adata, **options).to_numpy(), dtype),
        LOADINGS_KEY: lambda: model.get_token_loadings().to_numpy(),
    }
    results = {key: compute[key]() for key in keys}
    for key, values in results.items():
        write_result(adata, key, values, gene_names(model))
    if model.module.gene_weights() is not None:
        about = token_reader(model).about(adata)
        for part in (adata, *parts_of(adata, modalities(model))):
            part.uns[UNS_KEY] = about


def _stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values of a type to store them in; raise if it does not hold them."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > float(np.finfo(dtype).max):
        raise ValueError(f"`dtype` is {dtype!r}, which does not hold a token of {largest:g}: pass 'float32'.")
    return values.astype(dtype)
