"""Conditions that change after registration, and library sizes with an index, give no silent other results."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from small_cells import trained_model

import scdiffgen
from scdiffgen.model import TokenDiffusion

KEYS = {"labels_key": "kind", "batch_key": "batch", "continuous_covariate_keys": ["age"], "perturbation_key": "drug"}


def cells() -> AnnData:
    rng = np.random.default_rng(0)
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(rng.choice(["b", "t"], 60), ["t", "b"], ordered=True),
            "batch": rng.choice(["1", "2"], 60),
            "age": rng.normal(size=60),
            "drug": rng.choice(["control", "x", "x+y", "y"], 60),
        },
        index=[f"cell {i}" for i in range(60)],
    )
    return AnnData(rng.poisson(2.0, (60, 12)).astype(np.float32), obs=obs)


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    adata = cells()
    model = trained_model(adata, **KEYS)
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("column", ["kind", "batch", "age", "drug"])
@pytest.mark.parametrize("call", [TokenDiffusion.get_nll_bound, TokenDiffusion.write_back, TokenDiffusion.train])
def test_changed_conditions_are_named(model: TokenDiffusion, column: str, call: Callable) -> None:
    before = model.adata.obs[column].copy()
    model.adata.obs[column] = before.to_numpy()[::-1].copy()
    try:
        with pytest.raises(ValueError, match=rf"'{column}' of `adata.obs` changed after"):
            call(model)
        assert len(model.generate(n_cells=3, n_steps=2, silent=True)) == 3  # reads no cells
    finally:
        model.adata.obs[column] = before
    assert np.isfinite(model.get_nll_bound(silent=True)["nll"]).all()


def test_other_columns_and_row_names_may_change(model: TokenDiffusion) -> None:
    expected = model.get_nll_bound(silent=True, seed=0)["nll"].to_numpy()
    model.adata.obs["new"] = 1
    model.adata.obs["kind"] = model.adata.obs["kind"].astype(str)  # the same values in another type
    np.testing.assert_array_equal(model.get_nll_bound(silent=True, seed=0)["nll"].to_numpy(), expected)


def test_a_series_of_library_sizes_is_taken_in_the_order_of_rows_alone(model: TokenDiffusion) -> None:
    table = pd.DataFrame({"kind": ["b", "t"]}, index=["x", "y"])
    sizes = pd.Series({"y": 1000, "x": 10})
    with pytest.raises(ValueError, match=r"`library_size` is a Series whose index"):
        model.generate(table, library_size=sizes, n_steps=2)
    made = model.generate(table, library_size=sizes[table.index].to_numpy(), n_steps=2)
    assert made.X.toarray().sum(axis=1).tolist() == [10, 1000]
    made = model.generate(table, library_size=pd.Series([10, 20]), n_steps=2)
    assert made.X.toarray().sum(axis=1).tolist() == [10, 20]


def test_numbers_outside_of_the_training_cells_are_warned_of(model: TokenDiffusion) -> None:
    with pytest.warns(UserWarning, match=r"`conditions`: values of 'age' lie outside the range of the training cells"):
        model.generate({"age": 50.0}, n_cells=2, n_steps=2)
    model.generate({"age": 0.1}, n_cells=2, n_steps=2)  # a warning would be an error


def test_a_transferred_batch_keeps_the_type_of_its_column() -> None:
    screen = scdiffgen.datasets.simulate(n_cells=60)
    screen.obs["batch"] = pd.Categorical(screen.obs["batch"].astype(str), ordered=True)
    model = trained_model(screen, layer="counts", batch_key="batch")
    to = screen.obs["batch"].cat.categories[0]
    column = model.transfer_batch(None, to=to, indices=[0, 1, 2], n_steps=2, silent=True).obs["batch"]
    assert column.tolist() == [to] * 3 and column.cat.ordered
    assert column.cat.categories.tolist() == screen.obs["batch"].cat.categories.tolist()
