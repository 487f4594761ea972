from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse, stats

import scdiffgen
from scdiffgen import tl


class TwoPrograms:
    """A model with closed-form means: in group "b" the token doubles the first gene and halves the second."""

    def __init__(self, level: float = 1.0) -> None:
        self.level = level
        self.asked: list[dict] = []

    def hold_tokens(self, levels: dict[str, float]) -> TwoPrograms:
        assert list(levels) == ["token_2"]
        return TwoPrograms(levels["token_2"])

    def predict_perturbation(self, adata, conditions, *, indices, keep, n_steps, seed) -> AnnData:
        assert keep == 0.0  # from nothing: what a cell keeps would hide what it lost
        self.asked.append({"indices": indices, "n_steps": n_steps, "seed": seed})
        active = (adata.obs["group"].to_numpy()[indices] == "b") * self.level
        counts = np.stack([100 * 2.0**active, 100 * 2.0**-active, np.full(len(indices), 200.0)], axis=1)
        counts[:, 2] = 1000 - counts[:, 0] - counts[:, 1]
        return AnnData(sparse.csr_matrix(counts), var=pd.DataFrame(index=["up", "down", "rest"]))


def test_changes_are_those_of_the_closed_form_and_come_in_order() -> None:
    cells = AnnData(np.ones((10, 1)), obs=pd.DataFrame({"group": list("aabbbbbbbb")}, index=list("0123456789")))
    changed = tl.ablate_token(TwoPrograms(), "token_2", cells, "group")
    table = changed.set_index(["group", "gene"])["log2_fold_change"]
    assert (table["a"] == 0).all()
    assert table["b", "up"] == pytest.approx(-1, abs=1e-3) and table["b", "down"] == pytest.approx(1, abs=1e-3)
    sizes = changed.loc[changed["group"] == "b", "log2_fold_change"].abs()
    assert sizes.is_monotonic_decreasing
    assert changed.loc[changed["group"] == "b", "mean"].sum() == pytest.approx(1e4)


class Noisy:
    """Twins whose first gene changes a little in every cell, whose second is a molecule that one of them has."""

    def __init__(self, counts: np.ndarray, without: np.ndarray) -> None:
        self.counts, self.without = counts, without

    def hold_tokens(self, levels: dict[str, float]) -> Noisy:
        return Noisy(self.without, self.without)

    def predict_perturbation(self, adata, conditions, *, indices, keep, n_steps, seed) -> AnnData:
        return AnnData(sparse.csr_matrix(self.counts[indices]), var=pd.DataFrame(index=["steady", "rare", "rest"]))


def test_a_change_of_every_cell_comes_before_one_molecule_more() -> None:
    rng = np.random.default_rng(0)
    counts = np.column_stack([rng.poisson(100, 40), np.zeros(40), np.full(40, 800)]).astype(float)
    without = np.column_stack([rng.poisson(70, 40), np.eye(40)[3] * 3, np.full(40, 800)])
    cells = AnnData(np.ones((40, 1)), obs=pd.DataFrame({"group": ["a"] * 40}, index=[str(i) for i in range(40)]))
    changed = tl.ablate_token(Noisy(counts, without), "token_1", cells, "group").set_index("gene")
    assert changed.index[-1] == "rare" and changed.loc["rare", "log2_fold_change"] > 2
    assert changed.loc["steady", "fdr"] < 1e-6 and changed.loc["rare", "fdr"] > 0.1
    logs = [np.log1p(1e4 * part / part.sum(1, keepdims=True)) for part in (without, counts)]
    expected = stats.ttest_rel(*logs)
    np.testing.assert_allclose(changed.loc[["steady", "rare", "rest"], "score"], expected.statistic)
    fdr = stats.false_discovery_control(expected.pvalue)
    np.testing.assert_allclose(changed.loc[["steady", "rare", "rest"], "fdr"], fdr)


def test_genes_are_called_by_their_symbols() -> None:
    cells = AnnData(np.ones((6, 3)), obs=pd.DataFrame({"group": list("aabbbb")}, index=list("012345")))
    cells.var = pd.DataFrame({"symbol": ["UP", "DOWN", "REST"]}, index=["up", "down", "rest"])
    plain, named = (
        tl.ablate_token(TwoPrograms(), "token_2", cells, "group", gene_symbols=key) for key in (None, "symbol")
    )
    assert named["gene"].tolist() == plain["gene"].str.upper().tolist()
    with pytest.raises(ValueError, match="`gene_symbols` is 'names', which is no column of `adata.var`"):
        tl.ablate_token(TwoPrograms(), "token_2", cells, "group", gene_symbols="names")


def test_one_cell_of_a_group_proves_nothing() -> None:
    cells = AnnData(np.ones((1, 1)), obs=pd.DataFrame({"group": ["b"]}, index=["cell"]))
    assert (tl.ablate_token(TwoPrograms(), "token_2", cells, "group")["fdr"] == 1).all()


def test_the_level_is_handed_on_and_groups_are_thinned_out() -> None:
    cells = AnnData(np.ones((10, 1)), obs=pd.DataFrame({"group": list("aabbbbbbbb")}, index=list("0123456789")))
    model = TwoPrograms()
    changed = tl.ablate_token(model, "token_2", cells, "group", level=1.0, max_cells=3, n_steps=7, seed=5)
    assert (changed["log2_fold_change"] == 0).all()
    (asked,) = model.asked
    assert asked["indices"].tolist() == [0, 1, 2, 5, 8] and (asked["n_steps"], asked["seed"]) == (7, 5)


def test_holding_a_token_moves_its_own_genes(example: tuple) -> None:
    adata, model = example
    loadings = model.get_token_loadings(method="readout")["token_1"]
    changed = tl.ablate_token(model, "token_1", adata, "phase", level=25.0, max_cells=30, n_steps=8)
    change = changed.groupby("gene")["log2_fold_change"].mean()
    expressed = adata.var_names[np.asarray(adata.layers["counts"].mean(0)).ravel() > 0.5]
    assert np.corrcoef(change[expressed], loadings[expressed])[0, 1] > 0.5


def test_an_unknown_token_is_named(example: tuple) -> None:
    with pytest.raises(ValueError, match=r"`levels` names \['token_77'\]"):
        tl.ablate_token(example[1], "token_77", scdiffgen.datasets.pbmc68k(), "cell_type")
