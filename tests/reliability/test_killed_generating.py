"""Whatever the moment at which generation is killed, asking again gives the very file, and generates nothing twice."""

import json
import os
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pytest
from own_process import run_script

from scdiffgen.model import TokenDiffusion

HERE = Path(__file__).parent
N_CHUNKS = 4

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")


@pytest.fixture(scope="module")
def deaths(tiny: TokenDiffusion, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("killed_generating")
    tiny.save(folder / "trained", save_anndata=True)
    printed = run_script(HERE / "killed_generating.py", folder / "work", folder / "trained", folder=folder)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def test_processes_were_killed_before_between_and_after_chunks(deaths: list[dict[str, Any]]) -> None:
    assert {death["there"] for death in deaths if not death["whole"]} == set(range(N_CHUNKS + 1))


def test_what_was_there_is_not_generated_again(deaths: list[dict[str, Any]]) -> None:
    assert all(death["there"] + death["generated"] == N_CHUNKS for death in deaths)
    assert not any(death["left"] for death in deaths)


def test_the_file_is_that_of_a_run_without_a_death(
    deaths: list[dict[str, Any]], tiny: TokenDiffusion, tmp_path: Path
) -> None:
    options = {"chunk_size": 3, "n_steps": 2, "silent": True}
    expected = ad.read_h5ad(tiny.generate_to(tmp_path / "cells.h5ad", {"cell_type": "a"}, 3 * N_CHUNKS, **options))
    for death in deaths:
        path = Path(death["path"])
        cells = ad.read_h5ad(path) if path.suffix == ".h5ad" else ad.io.read_zarr(path)
        np.testing.assert_array_equal(cells.X.toarray(), expected.X.toarray(), err_msg=path.name)
        assert cells.obs.equals(expected.obs) and cells.var_names.equals(expected.var_names)
