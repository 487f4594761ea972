"""Pseudobulks against pandas; which cells are pooled, and that no array holds a sum over few cells."""

from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from scdiffgen.conditions import Code, GroupTable
from scdiffgen.responses import MIN_CELLS, Pseudobulks, PseudobulkSums
from scdiffgen.responses._pseudobulks import pool

N_GENES = 15
NONE, DRUG, OTHER = int(Code.ABSENT), 0, 1
SIZES = {  # cells of each type, batch and drug
    (0, 0, NONE): 40,
    (0, 0, DRUG): 25,
    (0, 1, NONE): 30,
    (0, 1, DRUG): 12,
    (1, 0, NONE): 30,
    (1, 0, DRUG): 11,
    (1, 1, NONE): 21,
    (1, 1, DRUG): 9,
    (2, 0, NONE): 20,
    (2, 1, OTHER): 19,
}


def shuffled(rng: np.random.Generator) -> tuple[sparse.csr_matrix, pd.DataFrame]:
    labels = [key for key, n_cells in SIZES.items() for _ in range(n_cells)]
    obs = pd.DataFrame(labels, columns=["type", "batch", "drug"]).sample(frac=1, random_state=rng)
    return sparse.csr_matrix(rng.poisson(2.0, (len(obs), N_GENES)), dtype=np.float32), obs.reset_index(drop=True)


def conditions(obs: pd.DataFrame) -> GroupTable:
    drug = obs[["drug"]].to_numpy()
    return GroupTable(obs[["type", "batch"]].to_numpy(), drug, (drug >= 0).astype(float))


def pseudobulks(counts: sparse.csr_matrix, obs: pd.DataFrame, minibatch: int = 1000, **options) -> Pseudobulks:
    sums = PseudobulkSums(conditions(obs), [1], counts.shape[1])
    for start in range(0, len(obs), minibatch):
        sums.add(counts[start : start + minibatch])
    return sums.finish(**options)


@pytest.fixture(scope="module")
def cells() -> tuple[sparse.csr_matrix, pd.DataFrame]:
    return shuffled(np.random.default_rng(0))


@pytest.fixture(scope="module")
def bulks(cells: tuple) -> Pseudobulks:
    return pseudobulks(*cells)


def test_moments_are_those_of_pandas(cells: tuple, bulks: Pseudobulks) -> None:
    counts, obs = cells
    dense = counts.toarray().astype(float)
    library = dense.sum(1, keepdims=True)
    of_groups = [obs[name].to_numpy() for name in obs]
    log = pd.DataFrame(np.log1p(1e4 * dense / library)).groupby(of_groups)
    shares = pd.DataFrame(dense / library).groupby(of_groups).mean()
    sizes = pd.DataFrame(np.log(library)).groupby(of_groups).mean()
    found = 0
    for row in range(len(bulks.n_cells)):
        key = (*bulks.cell_context[row], bulks.interventions[row, 0])
        if Code.MISSING in key[:2]:
            continue
        assert bulks.n_cells[row] == SIZES[key] >= MIN_CELLS
        if key[2] == NONE:  # means of treated cells are at the depth of untreated ones
            np.testing.assert_allclose(bulks.log_mean[row], log.mean().loc[key], rtol=1e-5)
        np.testing.assert_allclose(bulks.log_variance[row], log.var(ddof=0).loc[key], rtol=1e-3)
        np.testing.assert_allclose(bulks.share[row], shares.loc[key], rtol=1e-5)
        np.testing.assert_allclose(bulks.log_library[row], sizes.loc[key], rtol=1e-5)
        found += 1
    assert found == sum(n_cells >= MIN_CELLS for n_cells in SIZES.values())


def test_neither_minibatches_nor_the_order_of_cells_matter(cells: tuple, bulks: Pseudobulks) -> None:
    counts, obs = cells
    order = np.random.default_rng(1).permutation(len(obs))
    others = [pseudobulks(counts, obs, minibatch=minibatch) for minibatch in (1, 7, 64)]
    others.append(pseudobulks(counts[order], obs.iloc[order].reset_index(drop=True)))
    for other in others:
        for part in fields(Pseudobulks):
            if not part.name.startswith("state"):
                one, two = getattr(bulks, part.name), getattr(other, part.name)
                np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5, err_msg=part.name)


def test_cells_of_small_groups_are_pooled_and_else_left_out(cells: tuple, bulks: Pseudobulks) -> None:
    """Treated cells of type 1 over batches; those of type 0 and batch 1 are few, and so are those of the other drug."""
    groups = {
        (*row, drug): n for row, (drug,), n in zip(bulks.cell_context, bulks.interventions, bulks.n_cells, strict=True)
    }
    pooled = [(key, n_cells) for key, n_cells in groups.items() if Code.MISSING in key]
    assert ((1, Code.MISSING, DRUG), 20) in pooled
    assert not any(key[2] == OTHER for key in groups) and sum(groups.values()) == sum(SIZES.values()) - 19 - 12
    mean = np.log1p(1e4 * cells[0].toarray() / cells[0].toarray().sum(1, keepdims=True))
    rows = (cells[1]["type"] == 1) & (cells[1]["drug"] == DRUG)
    at = [*groups].index((1, Code.MISSING, DRUG))
    np.testing.assert_allclose(bulks.log_mean[at], mean[rows].mean(0), atol=0.2)  # at the depth of untreated cells


def test_no_array_holds_a_sum_over_few_cells(cells: tuple, bulks: Pseudobulks) -> None:
    """Neither a cell, nor a small group, nor the difference of two means, is that of fewer than 20 cells."""
    counts, obs = cells
    dense = counts.toarray().astype(float)
    log = np.log1p(1e4 * dense / dense.sum(1, keepdims=True))
    assert bulks.n_cells.min() >= MIN_CELLS
    small = [log[group.index].sum(0) for _, group in obs.groupby([*obs]) if len(group) < MIN_CELLS]
    totals = np.vstack([bulks.log_mean * bulks.n_cells[:, None], bulks.curves.reshape(-1, N_GENES)])
    apart = (totals[:, None] - totals[None]).reshape(-1, N_GENES)
    for hidden in (*small, *log):
        assert not np.isclose(np.vstack([totals, apart]), hidden, atol=1e-3).all(1).any()


@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(0, 40), n_columns=st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_pools_have_20_cells_of_one_treatment_and_agree_in_what_is_kept(seed: int, n_rows: int, n_columns: int) -> None:
    rng = np.random.default_rng(seed)
    cell_context, interventions = rng.integers(0, 3, (n_rows, n_columns)), rng.choice([NONE, DRUG], (n_rows, 1))
    doses, n_cells = np.where(interventions == NONE, 0.0, 1.0), rng.choice([1, 5, 19, 20, 50], n_rows)
    cells = GroupTable(cell_context, interventions, doses)
    groups, group_of = pool(cells, n_cells, [n_columns - 1])
    inside = group_of >= 0
    assert np.array_equal(np.unique(group_of[inside]), np.arange(len(groups.doses)))
    assert (np.bincount(group_of[inside], n_cells[inside]) >= MIN_CELLS).all()
    np.testing.assert_array_equal(groups.interventions[group_of[inside]], interventions[inside])
    np.testing.assert_array_equal(groups.doses[group_of[inside]], doses[inside])
    of_group, own = groups.cell_context[group_of[inside]], cell_context[inside]
    assert ((of_group == own) | (of_group < 0)).all()
    assert not (of_group[:, :-1] == Code.ABSENT).any()


def test_groups_do_not_depend_on_the_order_of_interventions() -> None:
    codes = np.array([[5, 6], [6, 5], [6, 5], [NONE, 5], [5, NONE]])
    doses = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [0.0, 3.0], [3.0, 0.0]])
    groups, _, group_of = GroupTable.of(np.zeros((5, 1), int), codes, doses).distinct()
    assert groups.n_rows == 3 and group_of[0] == group_of[1] != group_of[2] and group_of[3] == group_of[4]
    assert groups.treatment(group_of[2]) == {6: 1.0, 5: 2.0} and groups.treatment(group_of[3]) == {5: 3.0}


def test_plain_arrays_are_single_precision_and_come_back(bulks: Pseudobulks) -> None:
    plain = bulks.to_plain()
    again = Pseudobulks(**plain)
    for part in fields(Pseudobulks):
        assert isinstance(plain[part.name], np.ndarray)
        assert part.name == "doses" or plain[part.name].dtype != np.float64
        np.testing.assert_array_equal(getattr(again, part.name), getattr(bulks, part.name))
    assert bulks.doses.dtype == np.float64  # doses are compared


def test_groups_of_a_reference_follow(cells: tuple, bulks: Pseudobulks) -> None:
    """With more slots of interventions and the states of the reference; none if genes differ."""
    counts, obs = cells
    new = obs.assign(type=obs["type"] + 3)
    wide = conditions(new)
    wide = GroupTable(
        wide.cell_context,
        np.hstack([wide.interventions, np.full((len(new), 1), NONE)]),
        np.hstack([wide.doses, np.zeros((len(new), 1))]),
    )
    sums = PseudobulkSums(wide, [1], N_GENES)
    sums.add(counts)
    loadings = np.linalg.qr(np.random.default_rng(2).normal(size=(N_GENES, 2)))[0].astype(np.float32)
    n_groups = len(bulks.n_cells)
    moments = {"state_mean": (2,), "state_square": (2, 2), "state_product": (2, N_GENES)}
    empty = {name: np.zeros((n_groups, *shape), np.float32) for name, shape in moments.items()}
    both = sums.finish(replace(bulks, state_loadings=loadings, **empty))
    np.testing.assert_array_equal(both.n_cells, np.tile(bulks.n_cells, 2))
    np.testing.assert_allclose(both.log_mean, np.tile(bulks.log_mean, (2, 1)), rtol=1e-5)
    np.testing.assert_array_equal(both.interventions[n_groups:, 0], bulks.interventions[:, 0])
    assert (both.interventions[:, 1] == NONE).all() and not both.doses[:, 1].any()
    np.testing.assert_array_equal(both.state_loadings, loadings)
    assert len(both.curves) == 2 * len(bulks.curves)
    np.testing.assert_allclose(both.state_mean[0], bulks.log_mean[0] @ loadings, rtol=1e-3)
    fewer = pseudobulks(counts[:, :-1], obs)
    assert fewer.concatenate(bulks) is fewer and fewer.concatenate(None) is fewer
