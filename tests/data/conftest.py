"""Cells that the tests register, and the shortest way to register them."""

from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import sentence_encoder

from scdiffgen.data import Manager, SetupArguments


@pytest.fixture(autouse=True)
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All texts that the stand-in for the sentence encoder is asked for."""
    return sentence_encoder.install(monkeypatch)


@pytest.fixture
def cells() -> ad.AnnData:
    """24 cells of 5 genes with every kind of condition, none of them in alphabetical order."""
    random = np.random.default_rng(0)
    perturbations = ["ctrl", "KLF1+BAK1", "BAK1", "KLF1", "ctrl", "BAK1+ctrl"]
    doses = ["0", "0.5+2.0", "4.0", "1.0", "", "1.0"]
    obs = pd.DataFrame(
        {
            "cell_type": ["T cells", "B cells"] * 12,
            "donor": [7, 7, 3, 3] * 6,
            "sex": ["m", "f", "f"] * 8,
            "age.years": np.linspace(20.0, 66.0, 24),
            "guide": perturbations * 4,
            "dose": doses * 4,
            "tissue": ["blut", "blut", "lung"] * 8,
            "state": ["naive", None, "memory", "naive"] * 6,
            "stage": ["s2", "s1", "s3", "s1"] * 6,
            "hours": [0.0, 6.0, 24.0, None] * 6,
            "note": ["a naive cell", "a memory cell"] * 12,
        },
        index=[f"cell{i}" for i in range(24)],
    )
    counts = random.poisson(3.0, (24, 5)).astype(np.float32)
    counts[:, 0] += 1
    return ad.AnnData(counts, obs=obs, var=pd.DataFrame(index=[f"gene{i}" for i in range(5)]))


@pytest.fixture
def register() -> Callable[..., Manager]:
    """Register data as a model's `setup_anndata` does."""

    def register_on(
        adata: ad.AnnData, source: Manager | None = None, extend: bool = False, **arguments: Any
    ) -> Manager:
        manager = Manager(
            fields=SetupArguments(**arguments).fields(),
            setup_method_args={"model_name": "M", "setup_method_name": "setup_anndata", "setup_args": arguments},
        )
        if source is None:
            manager.register_fields(adata)
        else:
            manager.register_fields(adata, source.registry, extend_categories=extend)
        return manager

    return register_on
