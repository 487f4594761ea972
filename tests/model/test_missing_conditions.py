"""Missing conditions are as frequent in generated cells as in training cells like them."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData, read_h5ad
from small_cells import trained_model

from scdiffgen.model import NetworkOptions, TokenDiffusion

GENES = 12
TREATED = {"a": 0.8, "b": 0.3}
FAST: dict[str, Any] = {
    "n_epochs": 30,
    "batch_size": 64,
    "plan_kwargs": {"lr": 1e-2},
    "network": NetworkOptions(dropout=0.0),
}
QUICK = {"n_steps": 8, "seed": 0, "silent": True}


def cells(n_cells: int = 400) -> AnnData:
    """Two types; a treatment moves a third of the molecules of a cell to the last two genes, which others have not."""
    rng = np.random.default_rng(0)
    kind = np.where(np.arange(n_cells) % 2, "a", "b")
    treated = rng.random(n_cells) < pd.Series(kind).map(TREATED).to_numpy()
    shares = {name: np.append(rng.dirichlet(np.full(GENES - 2, 2.0)), [0, 0]) for name in TREATED}
    counts = [
        rng.multinomial(200, shares[k] * (2 / 3 if t else 1) + np.eye(GENES)[-2:].sum(0) * (1 / 6 if t else 0))
        for k, t in zip(kind, treated, strict=True)
    ]
    obs = pd.DataFrame({"cell_type": kind, "guide": np.where(treated, "A", "ctrl")}, index=map(str, range(n_cells)))
    return AnnData(np.array(counts, dtype=np.float32), obs=obs)


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    return trained_model(cells(), **FAST, labels_key="cell_type", perturbation_key="guide", control="ctrl")


def share_treated(made: AnnData) -> float:
    """Cells with more than a sixth of their molecules in the genes of the treatment."""
    counts = made.X.toarray()
    return float((counts[:, -2:].sum(1) > counts.sum(1) / 6).mean())


@pytest.mark.parametrize("kind", TREATED)
def test_of_a_type(model: TokenDiffusion, kind: str) -> None:
    of_type = model.adata.obs[model.adata.obs["cell_type"] == kind]
    made = model.generate({"cell_type": kind}, n_cells=400, **QUICK)
    assert share_treated(made) == pytest.approx((of_type["guide"] == "A").mean(), abs=0.08)
    assert (made.obs["drawn_conditions"] == "guide").all()
    assert share_treated(made[made.obs["guide"] == "A"]) > 0.9 > 0.1 > share_treated(made[made.obs["guide"] == "ctrl"])


def test_without_conditions_and_in_some_rows(model: TokenDiffusion) -> None:
    overall = (model.adata.obs["guide"] == "A").mean()
    assert share_treated(model.generate(n_cells=400, **QUICK)) == pytest.approx(overall, abs=0.08)
    table = pd.DataFrame({"cell_type": "a", "guide": ["ctrl", "A", None], "n_cells": [50, 50, 200]})
    made = model.generate(table, **QUICK)
    shares = [share_treated(made[rows]) for rows in (slice(50), slice(50, 100), slice(100, 300))]
    assert shares[0] < 0.1 and shares[1] > 0.9 and shares[2] == pytest.approx(TREATED["a"], abs=0.1)


def test_of_a_parent_in_a_hierarchy() -> None:
    """Leaves below a parent, and library sizes, are as in its training cells, also beside another condition."""
    adata = cells()
    treated = (adata.obs["guide"] == "A").to_numpy()
    adata.obs["depth"] = np.where(np.arange(adata.n_obs) % 4 < 2, "low", "high")
    adata.X[adata.obs["depth"] == "high"] *= 10
    model = trained_model(adata, **FAST, hierarchy_keys=["cell_type", "guide"], categorical_covariate_keys=["depth"])
    for kind, depth in product(TREATED, ("low", "high")):
        made = model.generate({"cell_type": kind, "depth": depth}, n_cells=300, **QUICK)
        alike = ((adata.obs["cell_type"] == kind) & (adata.obs["depth"] == depth)).to_numpy()
        assert share_treated(made) == pytest.approx(treated[alike].mean(), abs=0.1)
        assert np.asarray(made.X.sum(1)).mean() == pytest.approx(adata.X[alike].sum(1).mean(), rel=0.05)
        assert (made.obs["drawn_conditions"] == "guide").all()
        assert (made.obs["guide"] == "A").mean() == pytest.approx(treated[alike].mean(), abs=0.1)


def test_in_a_file(model: TokenDiffusion, tmp_path) -> None:
    path = model.generate_to(tmp_path / "b.h5ad", {"cell_type": "b"}, 300, n_steps=8, seed=0, silent=True)
    assert share_treated(read_h5ad(path)) == pytest.approx(TREATED["b"], abs=0.1)


def given_conditions(
    model: TokenDiffusion, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Category of every cell that the network is given, -1 for none, by condition."""
    seen: list[dict[str, np.ndarray]] = []

    def listen(conditions: dict[str, Any], library: torch.Tensor, **options: object) -> torch.Tensor:
        seen.append({name: np.where(c.given, c.ids[:, 0], -1) for name, c in conditions.items()})
        return torch.ones(len(library), model.module.n_vars)

    monkeypatch.setattr(model.module, "generate", listen)
    model.generate(asked, n_cells=500, seed=0, silent=True)
    return seen[0]


def test_missing_conditions_are_those_of_training_cells_with_the_given_ones(small: TokenDiffusion, monkeypatch) -> None:
    obs, found = small.adata.obs, given_conditions(small, monkeypatch, {"cell_type": "a"})
    assert (found["cell_type"] == 0).all() and set(found) == {"cell_type", "batch", "age"}
    share = (obs.loc[obs["cell_type"] == "a", "batch"] == "y").mean()
    assert found["batch"].mean() == pytest.approx(share, abs=3 * np.sqrt(share * (1 - share) / 500))


def test_beside_a_number_the_network_says_what_is_likely(small: TokenDiffusion, monkeypatch) -> None:
    assert set(given_conditions(small, monkeypatch, {"age": 40.0})) == {"age"}
