"""Generated cells: how many, of what kind, how deep, and the same for the same seed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scvi
from anndata import AnnData
from scipy import sparse
from small_cells import simulated_cells, trained_model

from scdiffgen.model import TokenDiffusion

FAST = {"n_steps": 2, "silent": True}
Generate = Callable[..., AnnData]


@pytest.fixture
def generate(small: TokenDiffusion) -> Generate:
    def quickly(*arguments: Any, **options: Any) -> AnnData:
        return small.generate(*arguments, **{"n_steps": 4, "silent": True, "seed": 0, **options})

    return quickly


def library(cells: AnnData) -> np.ndarray:
    return np.asarray(cells.X.sum(1)).ravel()


def test_cells_are_counts_of_the_genes_that_were_trained_on(generate: Generate, small: TokenDiffusion) -> None:
    cells = generate({"cell_type": "a"}, n_cells=7)
    assert isinstance(cells.X, sparse.csr_matrix) and cells.X.dtype == np.int32
    assert cells.X.data.min() > 0
    assert cells.shape == (7, 20) and cells.var_names.equals(small.adata.var_names)
    assert cells.obs_names.is_unique


def test_a_mapping_gives_cells_of_one_kind(generate: Generate) -> None:
    obs = generate({"cell_type": "b", "age": 33}, n_cells=3).obs
    assert obs["cell_type"].tolist() == ["b"] * 3 and obs["age"].tolist() == [33] * 3
    assert isinstance(obs["cell_type"].dtype, pd.CategoricalDtype)
    assert obs.columns.tolist() == ["cell_type", "age", "batch", "unseen_in_training", "drawn_conditions"]


def test_a_table_gives_each_row_its_cells_in_order(generate: Generate) -> None:
    table = pd.DataFrame({"cell_type": ["b", "a"], "batch": [None, "y"], "n_cells": [2, 3]}, index=["one", "two"])
    before = table.copy()
    obs = generate(table).obs
    assert obs["cell_type"].tolist() == ["b"] * 2 + ["a"] * 3
    assert obs["batch"].tolist()[2:] == ["y"] * 3
    assert obs["drawn_conditions"].tolist() == ["age, batch"] * 2 + ["age"] * 3
    pd.testing.assert_frame_equal(table, before)
    twice = generate(table.drop(columns="n_cells"), n_cells=2).obs
    assert twice["cell_type"].tolist() == ["b", "b", "a", "a"]


@pytest.mark.parametrize("nothing", [None, {}])
def test_all_conditions_may_be_missing(nothing: dict | None, generate: Generate) -> None:
    cells = generate(nothing, n_cells=4)
    assert (cells.obs["drawn_conditions"] == "cell_type, age, batch").all()
    assert cells.obs.notna().all(axis=None) and not cells.obs["unseen_in_training"].any()
    assert (library(cells) > 0).all()


def test_conditions_are_followed(generate: Generate, small: TokenDiffusion) -> None:
    """Cells of a type resemble that type's cells more than the other's."""
    means = {label: small.adata.X[small.adata.obs["cell_type"] == label].sum(0) for label in "ab"}
    for label, other in ("ab", "ba"):
        made = np.asarray(generate({"cell_type": label}, n_cells=50).X.sum(0)).ravel()
        assert np.corrcoef(made, means[label])[0, 1] > np.corrcoef(made, means[other])[0, 1] + 0.1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (50, [50, 50, 50]),
        (50.4, [50, 50, 50]),
        ([10, 200, 1], [10, 200, 1]),
        (pd.Series([10, 200, 1]), [10, 200, 1]),
        (lambda table, rng: 100 + np.arange(len(table)), [100, 101, 102]),
        (lambda table, rng: np.where(table["age"] > 0, 30, 40), [30, 30, 30]),
    ],
)
def test_library_sizes_may_be_given(given: Any, expected: list[int], generate: Generate) -> None:
    assert library(generate({"age": 20}, n_cells=3, library_size=given)).tolist() == expected


def test_a_function_of_library_sizes_gets_the_seeded_source_of_randomness(generate: Generate) -> None:
    first, again, other = (
        library(generate(n_cells=5, seed=seed, library_size=lambda table, rng: rng.integers(5, 500, len(table))))
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_library_sizes_are_those_of_the_training_cells_under_the_same_conditions(
    generate: Generate, small: TokenDiffusion
) -> None:
    depth = small.adata.X.sum(1)
    for batch in "xy":
        real = np.log(depth[small.adata.obs["batch"] == batch])
        made = np.log(library(generate({"batch": batch}, n_cells=300, n_steps=1)))
        assert abs(made.mean() - real.mean()) < 4 * real.std() * np.sqrt(1 / len(made) + 1 / len(real))


def test_without_a_seed_scvi_tools_decides_and_nothing_global_is_seeded(generate: Generate) -> None:
    made = []
    for seed in (5, 5, 6):
        scvi.settings.seed = seed
        made.append([generate(n_cells=4, seed=None).X.toarray() for _ in range(2)])
    np.testing.assert_array_equal(made[0], made[1])
    assert (made[0][0] != made[0][1]).any()
    assert (made[0][0] != made[2][0]).any()


@pytest.mark.parametrize("batch_size", [1, 4, 10, 1_000])
def test_the_size_of_minibatches_changes_neither_order_nor_depth(batch_size: int, generate: Generate) -> None:
    table = pd.DataFrame({"cell_type": ["a", "b", "a"], "n_cells": [3, 4, 3]})
    cells = generate(table, library_size=np.arange(10, 20), batch_size=batch_size)
    assert cells.obs["cell_type"].tolist() == [*"aaabbbbaaa"]
    assert library(cells).tolist() == list(range(10, 20))


@pytest.mark.parametrize("scale", [0, 1.5, {"cell_type": 3.0}, {"cell_type": 2, "batch": 0.5}, {}, {"cell_type": 1.0}])
def test_guidance_by_one_number_or_by_condition(scale: Any, generate: Generate) -> None:
    asked = {"cell_type": "a", "batch": "x"}
    guided = generate(asked, n_cells=6, library_size=60, guidance_scale=scale).X.toarray()
    plain = generate(asked, n_cells=6, library_size=60).X.toarray()
    assert (guided.sum(1) == 60).all()
    assert (guided != plain).any() == (scale not in ({}, {"cell_type": 1.0}))


def test_guidance_of_0_forgets_the_conditions(generate: Generate) -> None:
    of_a, of_b = (generate({"cell_type": k}, n_cells=6, library_size=60, guidance_scale=0.0).X.toarray() for k in "ab")
    np.testing.assert_array_equal(of_a, of_b)


def test_more_steps_than_molecules_are_no_trouble(generate: Generate) -> None:
    assert library(generate(n_cells=3, library_size=[1, 2, 30], n_steps=100)).tolist() == [1, 2, 30]


def test_pairs_that_were_not_trained_on_are_marked() -> None:
    adata = simulated_cells(60)
    adata = adata[~((adata.obs["cell_type"] == "a") & (adata.obs["batch"] == "y"))].copy()
    model = trained_model(adata, labels_key="cell_type", batch_key="batch")
    table = pd.DataFrame({"cell_type": ["a", "a", "b", "a"], "batch": ["x", "y", "y", None]})
    obs = model.generate(table, n_steps=2, seed=0, silent=True).obs
    assert obs["unseen_in_training"].tolist() == [False, True, False, False]


def test_a_model_without_conditions_generates() -> None:
    cells = trained_model(simulated_cells(60)).generate(n_cells=3, n_steps=2, seed=0)
    assert cells.shape == (3, 20) and not cells.obs["unseen_in_training"].any()
    assert cells.obs["drawn_conditions"].tolist() == [""] * 3


@pytest.mark.parametrize("factor", [1, 1.5, 3.0])
def test_deeper_cells_keep_their_molecules_and_reach_the_factor(factor: float, small: TokenDiffusion) -> None:
    cells = small.deepen(factor=factor, indices=[5, 2, 9], n_steps=4, seed=0, silent=True)
    before = small.adata.X[[5, 2, 9]]
    assert (cells.X.toarray() >= before).all()
    np.testing.assert_array_equal(library(cells), (before.sum(1) * factor).round())
    assert cells.obs_names.tolist() == ["cell5", "cell2", "cell9"]
    pd.testing.assert_frame_equal(cells.obs, simulated_cells(120).obs.loc[cells.obs_names])


def test_summaries_of_the_counts_before_do_not_stay(small: TokenDiffusion, other_cells: AnnData) -> None:
    sc.pp.calculate_qc_metrics(other_cells, inplace=True, percent_top=[5])
    other_cells.obs["n_counts"], other_cells.obs["n_genes_of_interest"] = 1.0, 2
    for made in (
        small.deepen(other_cells, 2.0, **FAST),
        small.predict_perturbation(other_cells, {"cell_type": "a"}, **FAST),
        small.transfer_batch(other_cells, "x", **FAST),
    ):
        assert made.obs.columns.intersection(other_cells.obs.columns).tolist() == [
            *["cell_type", "batch", "age", "n_genes_of_interest"]
        ]
    assert "total_counts" in other_cells.obs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 10}, "`generate` has no argument 'n'. It is called `n_cells`"),
        ({"cell_type": "B"}, r"no argument 'cell_type'. Conditions .* one mapping, `generate\({'cell_type': ...}\)`"),
    ],
)
def test_misplaced_arguments_are_answered_with_the_call(options: dict, message: str, small: TokenDiffusion) -> None:
    with pytest.raises(TypeError, match=message):
        small.generate(**options)
