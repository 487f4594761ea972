"""Cells with reads in place of molecules."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from anndata import AnnData
from benchmarks.studies import full_length
from scipy import sparse, stats


def test_reads_are_geometric_numbers_for_each_molecule() -> None:
    molecules = np.repeat([[0, 1, 2, 5]], 20_000, axis=0).astype(np.float32)
    reads = full_length.reads_of(AnnData(sparse.csr_matrix(molecules)), np.random.default_rng(0)).X.toarray()
    assert (reads[:, 0] == 0).all() and (reads >= molecules).all() and (reads == reads.round()).all()
    np.testing.assert_allclose(reads[:, 1:].mean(0), full_length.READS * np.array([1, 2, 5]), rtol=0.02)
    values = np.arange(1, 200)
    share = np.searchsorted(np.sort(reads[:, 1]), values, side="right") / len(reads)
    assert np.abs(share - stats.geom(1 / full_length.READS).cdf(values)).max() < 0.015


def test_divided_reads_are_about_molecules() -> None:
    rng = np.random.default_rng(0)
    molecules = AnnData(sparse.csr_matrix(rng.poisson(0.3, (50, 400)).astype(np.float32)))
    found = full_length.divided(full_length.reads_of(molecules, rng)).X
    assert ((found > 0) != (molecules.X > 0)).nnz == 0 and (found.data == found.data.round()).all()
    assert 0.8 < found.sum() / molecules.X.sum() < 2
    assert np.median(found.data) == 1


@pytest.mark.usefixtures("_small_study")
def test_the_study_runs(tmp_path: Path) -> None:
    output = tmp_path / "runs.jsonl"
    full_length.main(["--data", "pbmc68k", "--seeds", "0", "--quick", "--threads", "1", "--output", str(output)])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [run["variant"] for run in runs] == list(full_length.VARIANTS)
    assert [run["limited"] for run in runs] == [False, True, False, False]
