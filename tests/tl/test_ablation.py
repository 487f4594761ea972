from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse, stats
from statsmodels.stats.multitest import multipletests

from scdiffgen import tl

GENES = ["up", "down", "rest"]
WITHOUT, WITH = [100.0, 100.0, 800.0], [200.0, 50.0, 750.0]  # counts of the genes


class Twins:
    """A model that generates given counts, and others without the token."""

    def __init__(self, counts: np.ndarray, without: np.ndarray) -> None:
        self.counts, self.without = np.asarray(counts), np.asarray(without)
        self.calls: list[object] = []

    def hold_tokens(self, levels: dict[str, float]) -> Twins:
        self.calls.append(levels)
        return Twins(self.without, self.without)

    def predict_perturbation(self, adata, conditions, *, indices, keep_fraction, n_steps, seed) -> AnnData:
        assert keep_fraction == 0.0  # from nothing: what a cell keeps would hide what it lost
        self.calls.append((indices.tolist(), n_steps, seed))
        return AnnData(sparse.csr_matrix(self.counts[indices]), var=pd.DataFrame(index=GENES))


def grouped(groups: str) -> AnnData:
    """Cells of these groups, a letter each."""
    obs = pd.DataFrame({"group": list(groups)}, index=[str(i) for i in range(len(groups))])
    var = pd.DataFrame({"symbol": ["UP", "DOWN", "REST"]}, index=GENES)
    return AnnData(np.ones((len(groups), 3)), obs=obs, var=var)


def test_changes_are_those_of_the_closed_form_and_come_in_order() -> None:
    """In group "b" the token doubles the first gene and halves the second."""
    cells, model = grouped("aabbbb"), Twins([WITHOUT] * 2 + [WITH] * 4, [WITHOUT] * 6)
    changed = tl.ablate_token(model, "token_2", cells, "group")
    table = changed.set_index(["group", "gene"])
    assert (table.loc["a", ["score", "log2_fold_change"]] == 0).all(axis=None) and (table.loc["a", "fdr"] == 1).all()
    table = table.loc["b"]
    assert table["log2_fold_change"][["up", "down"]].tolist() == pytest.approx([-1, 1], abs=1e-3)
    assert table["log2_fold_change"].abs().is_monotonic_decreasing
    assert table["mean"].sum() == pytest.approx(1e4)
    named = tl.ablate_token(model, "token_2", cells, "group", gene_symbols="symbol")
    assert named["gene"].tolist() == changed["gene"].str.upper().tolist()
    with pytest.raises(ValueError, match="`gene_symbols` is 'names', which is no column of `adata.var`"):
        tl.ablate_token(model, "token_2", cells, "group", gene_symbols="names")


def test_a_change_of_every_cell_comes_before_one_molecule_more() -> None:
    rng = np.random.default_rng(0)
    counts = np.column_stack([rng.poisson(100, 40), np.zeros(40), np.full(40, 800)]).astype(float)
    without = np.column_stack([rng.poisson(70, 40), np.eye(40)[3] * 3, np.full(40, 800)])
    changed = tl.ablate_token(Twins(counts, without), "token_1", grouped("a" * 40), "group").set_index("gene")
    assert changed.index[-1] == "down" and changed.loc["down", "log2_fold_change"] > 2
    assert changed.loc["up", "fdr"] < 1e-6 and changed.loc["down", "fdr"] > 0.1
    logs = [np.log1p(1e4 * part / part.sum(1, keepdims=True)) for part in (without, counts)]
    change = logs[0] - logs[1]
    score = change.mean(0) / (change.std(0, ddof=1) / np.sqrt(40))
    np.testing.assert_allclose(changed.loc[GENES, "score"], score)
    fdr = multipletests(2 * stats.t.sf(np.abs(score), 39), method="fdr_bh")[1]
    np.testing.assert_allclose(changed.loc[GENES, "fdr"], fdr)


def test_without_groups_all_cells_are_one_group() -> None:
    cells, model = grouped("ab"), Twins([WITH] * 2, [WITHOUT] * 2)
    table = tl.ablate_token(model, "token_2", cells)
    assert set(table["group"]) == {"all"}
    one = tl.ablate_token(model, "token_2", grouped("bb"), "group")
    pd.testing.assert_frame_equal(table.drop(columns="group"), one.drop(columns="group"))


def test_one_cell_of_a_group_proves_nothing() -> None:
    assert (tl.ablate_token(Twins([WITH], [WITHOUT]), "token_2", grouped("b"), "group")["fdr"] == 1).all()


def test_the_level_is_handed_on_and_groups_are_thinned_out() -> None:
    model, options = Twins([WITH] * 10, [WITHOUT] * 10), {"level": 1.5, "max_cells": 3, "n_steps": 7, "seed": 5}
    tl.ablate_token(model, "token_2", grouped("aabbbbbbbb"), "group", **options)
    assert {"token_2": 1.5} in model.calls and ([0, 1, 2, 5, 8], 7, 5) in model.calls and len(model.calls) == 2


def test_holding_a_token_moves_its_own_genes(example: tuple) -> None:
    adata, model = example
    loadings = model.get_token_loadings(method="readout")["token_1"]
    changed = tl.ablate_token(model, "token_1", adata, "phase", level=25.0, max_cells=30, n_steps=8)
    change = changed.groupby("gene")["log2_fold_change"].mean()
    expressed = adata.var_names[np.asarray(adata.layers["counts"].mean(0)).ravel() > 0.5]
    assert np.corrcoef(change[expressed], loadings[expressed])[0, 1] > 0.5
    with pytest.raises(ValueError, match=r"`levels` names \['token_77'\]"):
        tl.ablate_token(model, "token_77", adata, "cell_type")
