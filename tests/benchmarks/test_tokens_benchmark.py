from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks import _data, render, tokens
from benchmarks._record import environment, read_result, write_result
from benchmarks._tables import AHEAD
from benchmarks._token_result import BY_READOUT, token_table
from benchmarks._token_scores import permuted, redundancy, sparsity, stability


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


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _small_study: None) -> Callable[..., dict[str, Any]]:
    """Run in tiny with two gene sets and one generation score; the result that is written."""
    pytest.importorskip("decoupler", reason="needs the extra `enrichment`")
    genes = _data.DATASETS["pbmc68k"].load().var_names[:40]
    monkeypatch.setattr("benchmarks._token_scores.GENE_SETS", {"one": genes[:20], "other": genes[20:]})
    monkeypatch.setattr("benchmarks.tokens.QUALITY", ("mmd",))

    def run(*arguments: str) -> dict[str, Any]:
        tokens.main(["--quick", "--threads", "1", "--output", str(tmp_path), *arguments])
        return read_result(tmp_path / "tokens-pbmc68k.json")

    return run


def test_a_run_writes_a_row_for_every_method_and_goes_on_where_it_stopped(
    quick: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {row["method"]: row for row in quick("--seeds", "0")["rows"]}
    assert [*first][:6] == ["default", BY_READOUT, "no units", "PCA", "NMF", "LDVAE"]
    for method, row in first.items():
        assert {"enriched", "enriched_null", "sparsity", "redundancy"} <= set(row["scores"])
        assert ("nll" in row["scores"]) == (method in ("default", "no units"))
        assert row["scores"]["stability"] == []  # of one seed
    fitted, fit = [], tokens.fit_variant
    monkeypatch.setattr(tokens, "fit_variant", lambda *arguments: fitted.append(arguments[1]) or fit(*arguments))
    rows = {row["method"]: row for row in quick("--seeds", "0", "1", "--baselines", "PCA")["rows"]}
    assert fitted == ["default", "no units"]  # of the second seed alone
    assert rows["NMF"] == first["NMF"]  # though not asked for again
    assert rows["default"]["seeds"] == rows["PCA"]["seeds"] == [0, 1]
    assert len(rows["default"]["scores"]["stability"]) == 1


def test_the_page_shows_medians_and_what_is_nearer_to_the_ideal(tmp_path: Path) -> None:
    rows = [
        {"method": "default", "kind": "ours", "scores": {"mmd": [2e-3, 1e-3, 9e-3], "sparsity": [0.4]}},
        {"method": "no units", "kind": "ours", "scores": {"mmd": [-1.5e-3], "sparsity": [0.1]}},
        {"method": "non-negative", "kind": "ours", "scores": {"mmd": [-2.5e-3]}},
        {"method": "PCA", "kind": "other", "scores": {"sparsity": [0.6], "stability": []}},
    ]
    result = {
        "benchmark": "tokens",
        "data": {"name": "pbmc68k", "description": "made up", "n_train": 8, "n_held_out": 2, "n_genes": 3},
        "settings": {"ours": {"max_epochs": 40, "n_permutations": 3}, "other": {"max_epochs": None}},
        "environments": [environment(1, [0])],
        "rows": [row | {"seeds": [0, 1, 2]} for row in rows],
    }
    write_result(tmp_path / "results", "tokens-pbmc68k", result)
    marked = {line.split("|")[1].strip(): line.count(AHEAD) for line in token_table(result).splitlines()[2:]}
    assert marked == {"**default**": 0, "no units": 1, "non-negative": 0, "PCA": 1}
    pages = render.render(tmp_path / "results", tmp_path)
    assert token_table(result) in pages["tokens.md"].read_text()
