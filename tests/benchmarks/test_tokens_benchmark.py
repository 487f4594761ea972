from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import tokens
from benchmarks._token_scores import permuted, redundancy, sparsity, stability

from scdiffgen.datasets import pbmc68k


def table(values: np.ndarray) -> pd.DataFrame:
    names = [f"gene_{i}" for i in range(len(values))]
    return pd.DataFrame(values, index=names, columns=[f"token_{i + 1}" for i in range(values.shape[1])])


def test_sparsity_is_one_for_a_single_gene_and_zero_for_equal_ones() -> None:
    single = np.zeros((50, 2))
    single[[3, 7], [0, 1]] = [5.0, -2.0]
    assert sparsity(table(single)) == pytest.approx(1)
    assert sparsity(table(np.full((50, 2), -3.0))) == pytest.approx(0)


def test_redundancy_and_stability_of_known_copies() -> None:
    values = np.random.default_rng(0).normal(size=(400, 3))
    copied = np.column_stack([values, -values[:, 0]])
    correlations = np.abs(np.corrcoef(copied, rowvar=False) - np.eye(4))
    assert redundancy(table(copied)) == pytest.approx(correlations.max(1).mean())
    assert stability([table(values), table(values[:, [2, 0, 1]]), table(-values)]) == pytest.approx(1)
    assert np.isnan(stability([table(values)]))


def test_permuting_keeps_the_values_and_their_correlations() -> None:
    loadings = table(np.random.default_rng(0).normal(size=(50, 3)))
    other = permuted(loadings, seed=1)
    assert (other.to_numpy() == loadings.to_numpy()).all()
    assert sorted(other.index) == sorted(loadings.index) and not other.index.equals(loadings.index)


def test_a_quick_run_writes_a_row_for_every_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("decoupler", reason="needs the extra `enrichment`")
    genes = pbmc68k().var_names[:40]
    monkeypatch.setattr("benchmarks._token_scores.GENE_SETS", {"one": genes[:20], "other": genes[20:]})
    monkeypatch.setattr("benchmarks.tokens.QUALITY", ("mmd",))
    tokens.main(["--quick", "--seeds", "0", "--threads", "1", "--output", str(tmp_path)])
    rows = json.loads((tmp_path / "tokens-pbmc68k.json").read_text())["rows"]
    methods = [row["method"] for row in rows]
    assert methods[:5] == ["default", "nested", "PCA", "NMF", "LDVAE"]
    for row in rows:
        assert {"enriched", "enriched_null", "sparsity", "redundancy", "stability"} <= set(row["scores"])
        assert ("nll" in row["scores"]) == (row["kind"] == "ours")
