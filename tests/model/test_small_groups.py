"""Groups of few cells are named, once: when cells are registered, and when more of them are generated."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen.model import TokenDiffusion

SETUP = {"labels_key": "cell_type", "perturbation_key": "guide", "dose_key": "dose", "batch_key": "batch"}
N_CELLS = {("a", "ctrl"): 40, ("a", "A"): 30, ("a", "A+B"): 7, ("b", "ctrl"): 19, ("b", "A"): 20, ("c", "ctrl"): 4}


def treated() -> AnnData:
    """Cells of each type and treatment; half of the combinations are written the other way round."""
    cells = simulated_cells(sum(N_CELLS.values()), n_genes=12)
    labels, guides = np.repeat(list(N_CELLS), list(N_CELLS.values()), axis=0).T
    combined = np.flatnonzero(guides == "A+B")
    guides[combined[::2]] = "B+A"
    cells.obs["cell_type"], cells.obs["guide"] = labels, guides
    cells.obs["dose"] = np.where(guides == "ctrl", 0, np.resize([0.5, 1.0], cells.n_obs)).astype(str)
    cells.obs.loc[[name in ("A+B", "B+A") for name in guides], "dose"] = "0.5+1"
    return cells[np.random.default_rng(0).permutation(cells.n_obs)].copy()


def few(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(w.message) for w in caught if "fewer than 20" in str(w.message)]


def test_registration_names_the_groups_that_are_small_and_how_small() -> None:
    cells = treated()
    with pytest.warns(UserWarning) as caught:
        TokenDiffusion.setup_anndata(cells, **SETUP, control="ctrl")
    (message,) = few(caught)
    parts = cells.obs["guide"].str.split("+").map(lambda names: "+".join(sorted(names)))
    sizes = pd.DataFrame({"label": cells.obs["cell_type"], "guide": parts}).value_counts()
    found = re.findall(r"cell_type '(\w)' with guide '([\w+]+)' \((\d+) cells\)", message)
    listed = {(label, "+".join(sorted(guide.split("+")))): int(n) for label, guide, n in found}
    assert listed == sizes[sizes < 20].to_dict()
    assert list(listed.values()) == sorted(listed.values())
    assert message.startswith("3 groups of fewer than 20 cells")


def test_of_many_small_groups_ten_are_listed() -> None:
    cells = simulated_cells(120)
    cells.obs["donor"] = np.resize([f"donor{i}" for i in range(30)], 120)
    with pytest.warns(UserWarning, match=r"30 groups of fewer than 20 .*\(4 cells\); \.\.\. \(30 in all\)\.") as caught:
        TokenDiffusion.setup_anndata(cells, labels_key="donor")
    assert len(caught) == 1 and str(caught[0].message).count("donor '") == 10


def test_large_groups_batches_and_cells_without_conditions_are_no_news() -> None:
    cells = simulated_cells(100)
    cells.obs["batch"] = np.resize([f"day{i}" for i in range(30)], 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        TokenDiffusion.setup_anndata(cells, labels_key="cell_type", batch_key="batch")
        TokenDiffusion.setup_anndata(cells[:5].copy())


def test_generation_names_the_groups_it_is_asked_for_that_are_small() -> None:
    cells = treated()
    TokenDiffusion.setup_anndata(cells, **SETUP, control="ctrl")
    model = TokenDiffusion(cells, **SMALL)
    model.train(max_epochs=1, train_size=1.0, **QUIET)
    table = pd.DataFrame([*N_CELLS, ("c", "A")], columns=["cell_type", "guide"])
    table["dose"] = table["guide"].map({"ctrl": None, "A": "1.0", "A+B": "0.5+1"})
    with pytest.warns(UserWarning) as caught:
        made = model.generate(table, n_steps=1, silent=True)
    (message,) = few(caught)
    found = re.findall(r"'(\w)' with guide '([\w+]+)' \((\d+) cells\)", message)
    assert {(label, guide): int(n) for label, guide, n in found} == {k: n for k, n in N_CELLS.items() if n < 20}
    assert made.obs["unseen_in_training"].tolist() == [False] * 6 + [True]
    with pytest.warns(UserWarning, match=r"1 group of fewer than 20 training cells: cell_type 'c' \(4 cells\)"):
        model.generate({"cell_type": "c"}, 2, n_steps=1, silent=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.generate({"cell_type": "a"}, 2, n_steps=1, silent=True)
        model.generate(None, 2, n_steps=1, silent=True)


def test_a_group_is_named_once_and_counted_over_batches() -> None:
    cells = simulated_cells(64)
    cells.obs["cell_type"], cells.obs["batch"] = np.repeat(["a", "b"], [60, 4]), np.resize(["x", "y"], 64)
    with pytest.warns(UserWarning, match="1 group"):
        TokenDiffusion.setup_anndata(cells, labels_key="cell_type", batch_key="batch")
    model = TokenDiffusion(cells, **SMALL)
    model.train(max_epochs=1, train_size=1.0, **QUIET)
    with pytest.warns(UserWarning) as caught:
        model.generate(cells.obs[["cell_type", "batch"]], n_steps=1, silent=True)
    (message,) = few(caught)
    assert "1 group of fewer than 20 training cells: cell_type 'b' (4 cells)." in message
    with pytest.warns(UserWarning, match=r"1 group of fewer than 20 cells are mostly noise: cell_type 'b' \(4 cells\)"):
        model.get_token_loadings(groupby="cell_type")
