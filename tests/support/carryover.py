"""Orders of calls in which what a call leaves behind shows: designs for carry-over effects, and digests of results."""

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


def williams_design(n: int) -> list[list[int]]:
    """Orders of ``n`` things, ``n`` even: each is first once, and each comes directly after each other one once.

    Williams (1949), Experimental designs balanced for the estimation of residual effects of treatments.
    """
    if n % 2:
        raise ValueError(f"`n` is {n}: pass an even number.")
    zigzag = [place // 2 if place % 2 == 0 else n - 1 - place // 2 for place in range(n)]
    return [[(shift + step) % n for step in zigzag] for shift in range(n)]


def digest(result: Any) -> str:
    """Of anything that a method of the model returns or writes, to the last bit."""
    if isinstance(result, Path):
        result = read_h5ad(result)
    if isinstance(result, TokenDiffusion):
        return weights_of(result)
    if isinstance(result, MuData):
        parts = [result.obs, *(result[name] for name in result.mod)]
        return digest([*parts, *(value for key, value in result.obsm.items() if key not in result.mod)])
    if isinstance(result, AnnData):
        return fingerprint(result)
    if isinstance(result, list | tuple):
        return sha256("".join(map(digest, result)).encode()).hexdigest()
    if isinstance(result, Evaluation):
        result = result.frame
    if isinstance(result, pd.DataFrame | np.ndarray):
        return fingerprint(AnnData(uns={"result": result}))
    return sha256(repr(result).encode()).hexdigest()
