"""Studies at the size of a test: they are run to see that they run, not for their numbers."""

import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any

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


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run here what a program starts in a process of its own, which would take longer to start than to run."""
    run = subprocess.run

    def replace_process(*start: str, main: Callable[[list[str]], Any]) -> None:
        """Of commands ``python START OPTIONS``, give the options to a function."""

        def here(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
            if tuple(command[1 : 1 + len(start)]) != start:
                return run(command, **options)
            with redirect_stdout(StringIO()) as printed:
                main(command[1 + len(start) :])
            return subprocess.CompletedProcess(command, 0, printed.getvalue())

        monkeypatch.setattr(subprocess, "run", here)

    return replace_process
