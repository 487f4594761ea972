"""Planted interactions of simulated cells are found, with their sign, and intervals hold them."""

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

from scdiffgen import tl

N_GENES, PART, BEYOND = 400, 1.0, 1.5  # log2 fold changes of the first 80 genes by each part, and beyond their sum
KINDS = np.repeat(["additive", "synergistic", "buffering", "new", "unchanged"], [20, 20, 20, 20, 320])


def effects() -> dict[str, np.ndarray]:
    """Log2 fold changes of each arm; genes of the kind "new" respond to the combination alone."""
    part = np.where(np.isin(KINDS, ["additive", "synergistic", "buffering"]), PART, 0.0)
    beyond = (
        pd.Series({"synergistic": BEYOND, "buffering": -BEYOND, "new": -BEYOND}).reindex(KINDS).fillna(0).to_numpy()
    )
    return {"control": 0 * part, "A": part, "B": part, "A+B": 2 * part + beyond}


def study(seed: int, n_cells: int = 150, n_donors: int = 1, sd: float = 0.0, library: float = 6000.0) -> AnnData:
    """Negative binomial counts of four arms; donors differ in every gene of every arm."""
    rng, blocks = np.random.default_rng(seed), []
    base = np.random.default_rng(0).dirichlet(np.full(N_GENES, 5.0))
    for arm, change in effects().items():
        for donor in range(n_donors):
            share = base * np.exp2(change) * np.exp(rng.normal(0, sd, N_GENES))
            sizes = library * rng.lognormal(0, 0.3, (n_cells, 1))
            counts = rng.poisson(sizes * share * rng.gamma(5, 1 / 5, (n_cells, N_GENES)))
            blocks.append((counts, arm, f"donor_{donor}"))
    obs = pd.DataFrame(
        {"perturbation": [arm for x, arm, _ in blocks for _ in x], "donor": [d for x, _, d in blocks for _ in x]}
    )
    cells = AnnData(sparse.csr_matrix(np.concatenate([x for x, _, _ in blocks])), obs.set_axis(obs.index.astype(str)))
    cells.var_names = [f"gene{i}" for i in range(N_GENES)]
    return cells


def truth() -> np.ndarray:
    arms = effects()
    return arms["A+B"] - arms["A"] - arms["B"]


@pytest.mark.parametrize("donors", [{}, {"n_donors": 5, "sd": 0.1}])
def test_planted_interactions_are_found_with_their_sign(donors: dict) -> None:
    cells = study(1, **donors)
    table = tl.interactions(cells, "perturbation", donor_key="donor" if donors else None)
    assert table["perturbation"].eq("A+B").all() and table["gene"].tolist() == cells.var_names.tolist()
    verdict = table["verdict"].to_numpy()
    for kind, word in {"synergistic": "synergistic", "buffering": "buffering", "new": "synergistic"}.items():
        assert (verdict[KINDS == kind] == word).mean() > 0.9
    null = np.isin(KINDS, ["additive", "unchanged"])
    assert np.isin(verdict[null], ["additive", "undecided"]).mean() > 0.97
    assert (verdict[null] == "additive").mean() > 0.6
    assert (verdict[~null] != "additive").all()
    np.testing.assert_allclose(table["log2_fold_change"] - table["sum_of_parts"], table["interaction"], atol=1e-9)


@pytest.mark.parametrize("donors", [{}, {"n_donors": 4, "sd": 0.2}])
def test_intervals_hold_the_planted_interaction(donors: dict) -> None:
    held = []
    for seed in range(6):
        table = tl.interactions(study(seed, 60, **donors), "perturbation", donor_key="donor" if donors else None)
        held.append(((table["low"] <= truth()) & (truth() <= table["high"])).mean())
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_cells_of_differing_donors_are_no_replicates() -> None:
    """Intervals of cells ignore differences between replicates, intervals of donors do not."""
    cells = study(3, 100, n_donors=4, sd=0.4)
    of_cells, of_donors = (tl.interactions(cells, "perturbation", donor_key=key) for key in (None, "donor"))
    held = [((x["low"] <= truth()) & (truth() <= x["high"])).mean() for x in (of_cells, of_donors)]
    assert held[0] < 0.85 < 0.9 < held[1]


def test_few_cells_leave_verdicts_undecided_and_order_of_parts_is_irrelevant() -> None:
    cells = study(4, 12, library=300.0)
    table = tl.interactions(cells, "perturbation")
    assert (table["verdict"] == "undecided").mean() > 0.9
    cells.obs["perturbation"] = cells.obs["perturbation"].replace("A+B", "B+A")
    pd.testing.assert_frame_equal(table, tl.interactions(cells, "perturbation"))
    few = np.asarray(cells.X.sum(0)).ravel() < 10
    assert few.any() and (table["interaction"].isna() == few).all() and (table["verdict"][few] == "undecided").all()


def test_depth_is_no_interaction() -> None:
    cells = study(5)
    rows = (cells.obs["perturbation"] == "A+B").to_numpy()
    counts = cells.X.tolil()
    counts[rows] = np.random.default_rng(0).binomial(cells.X[rows].toarray().astype(int), 0.4)
    cells.X = counts.tocsr()
    table = tl.interactions(cells, "perturbation")
    assert abs(table["interaction"][KINDS == "unchanged"].mean()) < 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control": "ctrl"}, "`control`: 'ctrl' is not a label of at least 10 cells .*'A'"),
        ({"margin": 0}, "`margin` is 0: pass a positive log2 fold change"),
        ({"alpha": 2}, r"`alpha` is 2: pass a share in \[0, 1\)"),
        ({"donor_key": "donor"}, r"`donor_key` is 'donor': 1 donor with 10 cells of each arm of 'A\+B', and 3 are"),
        ({"perturbation_key": "donor", "control": "donor_0"}, r"obs\['donor'\] has no combination, such as 'A\+B'"),
        ({"perturbation_key": "guide"}, r"`adata` has no obs column 'guide'"),
    ],
)
def test_errors_name_argument_value_and_way_out(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tl.interactions(study(0, 12), **{"perturbation_key": "perturbation"} | options)
