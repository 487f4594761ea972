"""Digests of results, in which what an earlier call left behind shows."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData, read_h5ad
from fingerprint import fingerprint, weights_of
from mudata import MuData

from scdiffgen.metrics import Evaluation
from scdiffgen.model import TokenDiffusion


def digest(result: Any) -> str:
    """Of anything that a method of the model returns or writes, to the last bit."""
    if isinstance(result, Path):
        result = read_h5ad(result)
    if isinstance(result, TokenDiffusion):
        return str(weights_of(result))
    if isinstance(result, MuData):
        parts = [result.obs, *(result[name] for name in result.mod)]
        return digest([*parts, *(value for key, value in result.obsm.items() if key not in result.mod)])
    if isinstance(result, AnnData):
        return str(fingerprint(result))
    if isinstance(result, list | tuple):
        return sha256("".join(map(digest, result)).encode()).hexdigest()
    if isinstance(result, Evaluation):
        result = result.frame
    if isinstance(result, pd.DataFrame | np.ndarray):
        return str(fingerprint(AnnData(uns={"result": result})))
    return sha256(repr(result).encode()).hexdigest()
