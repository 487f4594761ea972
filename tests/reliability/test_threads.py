"""Libraries that compute by numba give PyTorch as many threads as numba has; our functions put the number back."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import torch
from anndata import AnnData

from scdiffgen import tl
from scdiffgen.model import TokenDiffusion


def takes_threads(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a library, which leaves PyTorch with three threads."""

    def taking(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        torch.set_num_threads(3)
        return result

    return taking


@pytest.fixture(autouse=True)
def _taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sc.pp, "neighbors", takes_threads(sc.pp.neighbors))


def test_neighbours_of_tokens(example: tuple[AnnData, TokenDiffusion]) -> None:
    example[1].get_token_adata(silent=True)
    assert torch.get_num_threads() == 1


def test_enrichment_of_gene_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    decoupler = pytest.importorskip("decoupler", reason="needs the extra `enrichment`")
    monkeypatch.setattr(decoupler.mt, "ulm", takes_threads(decoupler.mt.ulm))
    genes = [f"gene {i}" for i in range(60)]
    loadings = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), genes, ["token_1", "token_2"])
    tl.enrich_tokens(loadings, {"set": genes[:20]})
    assert torch.get_num_threads() == 1
