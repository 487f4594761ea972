"""Did anything change? A digest of all that an AnnData holds, less what scvi-tools writes when it registers data."""

from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

from scdiffgen.model import TokenDiffusion


def fingerprint(adata: AnnData) -> str:
    """Names and values, with their types, of the matrices, annotations and everything else."""
    digest = sha256()
    parts = [adata.X, adata.obs, adata.var]
    parts += [dict(getattr(adata, slot)) for slot in ("layers", "obsm", "varm", "obsp", "uns")]
    for part in parts:
        _add(digest, part)
    return digest.hexdigest()


def weights_of(model: TokenDiffusion) -> str:
    """Of all weights of a model."""
    digest = sha256()
    for name, weight in model.module.state_dict().items():
        _add(digest, name)
        _add(digest, weight.cpu().numpy())
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    digest.update(type(value).__name__.encode())
    if isinstance(value, dict):
        for name, entry in sorted(value.items(), key=str):
            if not str(name).startswith("_scvi"):
                digest.update(repr(name).encode())
                _add(digest, entry)
    elif isinstance(value, pd.DataFrame):
        digest.update(repr(value.index.tolist()).encode())
        for place, name in enumerate(value.columns):
            _add(digest, {name: value.iloc[:, place]})
    elif isinstance(value, pd.Series):
        digest.update(f"{value.dtype} {value.tolist()}".encode())
    elif sparse.issparse(value):
        _add(digest, {"data": value.data, "indices": value.indices, "indptr": value.indptr, "shape": value.shape})
    elif isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    else:
        digest.update(repr(value).encode())
