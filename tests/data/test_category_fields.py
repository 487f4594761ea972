"""Categories are coded as pandas codes them, and what is missing or unseen is named."""

import pickle
from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from scdiffgen.data import Manager, condition_specs
from scdiffgen.data._fields import CategoricalCovariatesField, StrictCategoricalObsField


def with_column(values: Any) -> ad.AnnData:
    obs = pd.DataFrame(index=[f"cell{i}" for i in range(len(values))])
    obs["kind"] = pd.Series(values, index=obs.index) if not isinstance(values, pd.Series) else values.to_numpy()
    if isinstance(values, pd.Series):
        obs["kind"] = pd.Series(values.array, index=obs.index)
    return ad.AnnData(np.ones((len(values), 1), dtype=np.float32), obs=obs)


def field() -> StrictCategoricalObsField:
    return StrictCategoricalObsField("labels", "kind", argument="labels_key")


COLUMNS = {
    "str": ["b", "a", "b", "a"],
    "unicode": ["Ψ细胞", "β-cell", "Ψ细胞", "β-cell"],
    "int": [3, 0, 3, 0],
    "bool": [True, False, True, False],
    "float": [1.5, 0.0, 1.5, 0.0],
    "empty string": ["", "x", "", "x"],
    "nullable string": pd.Series(["b", "a", "b", "a"], dtype="string"),
    "nullable int": pd.Series([3, 0, 3, 0], dtype="Int64"),
    "nullable bool": pd.Series([True, False, True, False], dtype="boolean"),
    "ordered": pd.Series(pd.Categorical(["lo", "hi", "lo", "hi"], categories=["lo", "hi"], ordered=True)),
    "unused": pd.Series(pd.Categorical(["b", "a", "b", "a"], categories=["zzz", "b", "a"])),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_codes_are_those_of_pandas(name: str) -> None:
    adata = with_column(COLUMNS[name])
    state = pickle.loads(pickle.dumps(field().register_field(adata)))
    oracle = adata.obs["kind"].astype("category").cat.remove_unused_categories()
    np.testing.assert_array_equal(adata.obs["_scvi_labels"], oracle.cat.codes)
    assert list(state["categorical_mapping"]) == list(oracle.cat.categories)
    assert field().get_summary_stats(state) == {"n_labels": 2}


@pytest.mark.parametrize("name", COLUMNS)
def test_transfer_keeps_the_codes_whatever_the_order_of_the_new_cells(name: str) -> None:
    adata = with_column(COLUMNS[name])
    state = field().register_field(adata)
    query = adata[[1, 0, 3]].copy()
    field().transfer_field(state, query)
    np.testing.assert_array_equal(query.obs["_scvi_labels"], adata.obs["_scvi_labels"].to_numpy()[[1, 0, 3]])


@pytest.mark.parametrize("unseen", [0, "", False, "NK cells", 2.5])
def test_an_unseen_category_of_any_type_is_named(unseen: object) -> None:
    state = field().register_field(with_column(["b", "a", "b", "a"]))
    query = with_column(pd.Series(["a", unseen, "b"], dtype=object))
    with pytest.raises(ValueError, match=rf"1 unseen category \({unseen!r}\); the registered ones are 'a', 'b'"):
        field().transfer_field(state, query)
    assert "_scvi_labels" not in query.obs


@pytest.mark.parametrize(
    ("registered", "same_spelling", "new"),
    [
        ([0, 1], "0", "2"),
        ([0, 1], "0.0", "2.0"),
        (["0", "1"], 0, 2),
        (["0", "1"], 1.0, 2.5),
        ([0.5, 1.5], " 0.5", "2.5"),
        ([True, False], "True", "unknown"),
        ([True, False], 1, 2),
        (["True", "False"], False, 2),
        (["a", "b"], b"a", b"c"),
    ],
)
def test_a_category_of_another_type_is_new_unless_spelled_alike(
    registered: list, same_spelling: object, new: object
) -> None:
    state = field().register_field(with_column(registered * 2))
    query = with_column(pd.Series([same_spelling] * 2, dtype=object))
    for extend in (False, True):
        with pytest.raises(ValueError, match=r"`labels_key.*Did you mean|unseen category"):
            field().transfer_field(state, query, extend_categories=extend)
        assert "_scvi_labels" not in query.obs
    extended = field().transfer_field(state, with_column(pd.Series([new] * 2, dtype=object)), extend_categories=True)
    assert list(extended["categorical_mapping"]) == [*state["categorical_mapping"], new]


def test_text_that_differs_is_new_however_similar() -> None:
    state = field().register_field(with_column(["1", "a"] * 2))
    query = with_column(["01", "A"])
    assert list(field().transfer_field(state, query, extend_categories=True)["categorical_mapping"])[2:] == ["01", "A"]


def test_extended_categories_are_appended() -> None:
    state = field().register_field(with_column(["b", "a", "b", "a"]))
    query = with_column(["c", "A", "a", "c", "b"])
    extended = field().transfer_field(state, query, extend_categories=True)
    assert list(extended["categorical_mapping"]) == ["a", "b", "A", "c"]
    assert query.obs["_scvi_labels"].tolist() == [3, 2, 0, 3, 1]
    assert list(state["categorical_mapping"]) == ["a", "b"]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_labels_are_counted_and_the_first_cell_named(missing: object) -> None:
    adata = with_column(pd.Series(["a", missing, "b", missing], dtype=object))
    with pytest.raises(ValueError, match=r"`labels_key='kind'`: 2 cells of 4 have no value \(first: cell 'cell1'\)"):
        field().register_field(adata)
    state = field().register_field(with_column(["a", "b", "a", "b"]))
    with pytest.raises(ValueError, match="have no value"):
        field().transfer_field(state, adata)


def test_a_category_with_one_cell_is_allowed_with_a_warning() -> None:
    adata = with_column(["a", "a", "rare", "b", "b"])
    with pytest.warns(UserWarning, match=r"1 category with a single cell \('rare'\)"):
        assert field().register_field(adata)["categorical_mapping"].tolist() == ["a", "b", "rare"]


def test_without_a_column_all_cells_are_one_category_and_no_condition() -> None:
    adata = with_column(["a", "b"])
    manager = Manager(fields=[StrictCategoricalObsField("labels", None, argument="labels_key")])
    manager.register_fields(adata)
    assert adata.obs["_scvi_labels"].tolist() == [0, 0]
    assert manager.summary_stats.n_labels == 1
    assert condition_specs(manager) == []
    assert manager.transfer_fields(with_column(["z", "z", "z"])).summary_stats.n_labels == 1


def test_covariates_are_coded_column_by_column(cells: ad.AnnData) -> None:
    covariates = CategoricalCovariatesField("extra_categorical_covs", ["sex", "donor"])
    state = pickle.loads(pickle.dumps(covariates.register_field(cells)))
    for column, key in enumerate(["sex", "donor"]):
        oracle = cells.obs[key].astype("category")
        np.testing.assert_array_equal(cells.obsm["_scvi_extra_categorical_covs"][:, column], oracle.cat.codes)
        assert list(state["mappings"][column]) == list(oracle.cat.categories)
    query = cells[:4].copy()
    query.obs["donor"] = [0, 3, 7, 3]
    with pytest.raises(ValueError, match=r"`categorical_covariate_keys='donor'`: 1 unseen category \(0\)"):
        covariates.transfer_field(state, query)
    extended = covariates.transfer_field(state, query, extend_categories=True)
    assert query.obsm["_scvi_extra_categorical_covs"][:, 1].tolist() == [2, 0, 1, 0]
    assert extended["n_cats_per_key"] == [2, 3]
    assert state["n_cats_per_key"] == [2, 2]


def test_batches_of_covariates_are_integers(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells, categorical_covariate_keys=["sex", "donor"])
    batch = manager.create_torch_dataset()[[0, 1]]
    assert batch["extra_categorical_covs"].dtype == np.int64
    assert batch["extra_categorical_covs"].tolist() == [[1, 1], [0, 1]]


@pytest.mark.parametrize("extend", [False, True])
def test_leaving_out_a_registered_column_is_named(
    cells: ad.AnnData, register: Callable[..., Manager], extend: bool
) -> None:
    manager = register(cells, labels_key="cell_type")
    query = cells[:4].copy()
    message = r"`labels_key=None`, but categories are registered.*'B cells', 'T cells'.*`labels_key='cell_type'`"
    with pytest.raises(ValueError, match=message):
        register(query, source=manager, extend=extend)
    register(query, source=manager, extend=extend, labels_key="cell_type")
