"""Studies at the size of a test: they are run to see that they run, not for their numbers."""

from dataclasses import replace

import numpy as np
import pytest
from anndata import AnnData
from benchmarks import _data, _variants


@pytest.fixture
def _small_study(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the bundled cells and the 150 genes with most molecules; few steps and trees."""

    def few() -> AnnData:
        cells = _data.load_pbmc68k()[::2]
        return cells[:, np.sort(np.argsort(-cells.X.sum(0).A1)[:150])].copy()

    monkeypatch.setitem(_data.DATASETS, "pbmc68k", replace(_data.DATASETS["pbmc68k"], load=few))
    monkeypatch.setattr(_variants, "N_TREES", 10)
