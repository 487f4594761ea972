"""Conditions of some cells: rows, names, codes and missing ones, against plain lists; dropped at the rate asked for."""

import pickle
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor

from scdiffgen.conditions import Code, Condition, Conditions, ConditionSpec, NumberTransform, conditions_from_batch

CELL_TYPE = ConditionSpec("cell_type", "category", registry_key="labels", n_categories=4)
AGE = ConditionSpec("age", "number", registry_key="numbers", column=1)
DRUGS = ConditionSpec("drugs", "set", "intervention", registry_key="drugs", n_categories=6, n_slots=2, has_values=True)
PLACE = ConditionSpec("place", "hierarchy", registry_key="place", n_categories=9, n_slots=3)
SPECS = [CELL_TYPE, AGE, DRUGS, PLACE]

Cell = tuple[tuple[int, float], ...] | None  # ids and values of the parts; None where the condition is missing


def condition_of(cells: list[Cell], n_slots: int) -> Condition[np.ndarray]:
    ids, values = np.zeros((len(cells), n_slots), dtype=np.int64), np.zeros((len(cells), n_slots), dtype=np.float32)
    mask = np.zeros((len(cells), n_slots), dtype=bool)
    for row, cell in enumerate(cells):
        for slot, (code, value) in enumerate(cell or ()):
            ids[row, slot], values[row, slot], mask[row, slot] = code, value, True
    return Condition(ids, values, mask, np.array([cell is not None for cell in cells]))


def cells_of(condition: Condition) -> list[Cell]:
    """The parts of each cell as plain values, without what must not be looked at."""
    return [
        tuple((int(i), float(v)) for i, v, m in zip(ids, values, mask, strict=True) if m) if given else None
        for ids, values, mask, given in zip(*(np.asarray(array) for array in condition), strict=True)
    ]


PLAIN: dict[str, list[Cell]] = {
    "cell_type": [((2, 0.0),), None, ((0, 0.0),), ((3, 0.0),)],
    "age": [((0, 30.0),), ((0, 0.0),), None, None],
    "drugs": [(), ((1, 0.5), (4, 2.0)), ((5, 1.0),), None],
    "place": [((0, 0.0), (3, 0.0)), ((0, 0.0), (4, 0.0), (8, 0.0)), None, ((1, 0.0),)],
}


@pytest.fixture
def conditions() -> Conditions[np.ndarray]:
    n_slots = {spec.name: spec.n_slots for spec in SPECS}
    return Conditions({name: condition_of(cells, n_slots[name]) for name, cells in PLAIN.items()}, 4)


def plain(conditions: Mapping[str, Condition]) -> dict[str, list[Cell]]:
    return {name: cells_of(condition) for name, condition in conditions.items()}


@pytest.mark.parametrize("rows", [[2, 0, 0], [], [3, 2, 1, 0]])
def test_rows_are_taken_in_any_order(conditions: Conditions[np.ndarray], rows: list[int]) -> None:
    taken = conditions.take(np.array(rows, dtype=int))
    assert plain(taken) == {name: [cells[row] for row in rows] for name, cells in PLAIN.items()}
    assert taken.n_cells == len(rows)


def test_below_each_other_they_are_the_cells_of_both(conditions: Conditions[np.ndarray]) -> None:
    both = Conditions.concatenate([conditions, conditions.take(np.array([3, 1]))])
    assert plain(both) == {name: [*cells, cells[3], cells[1]] for name, cells in PLAIN.items()}
    assert both.n_cells == 6


def test_names_are_chosen(conditions: Conditions[np.ndarray]) -> None:
    assert list(conditions.only(["drugs", "age", "unknown"])) == ["age", "drugs"]
    assert list(conditions.without(["drugs", "unknown"])) == ["cell_type", "age", "place"]
    assert list(conditions.take(np.array([2, 3])).given_only()) == ["cell_type", "drugs", "place"]
    assert len(conditions) == 4 and repr(conditions).startswith("Conditions of 4 cells: cell_type, age")


def test_they_come_back_from_tensors_and_from_plain_data(conditions: Conditions[np.ndarray]) -> None:
    moved = conditions.to(torch.device("cpu"))
    assert all(isinstance(array, Tensor) for condition in moved.values() for array in condition)
    saved = pickle.loads(pickle.dumps(conditions.to_plain()))
    for again in (moved.numpy(), Conditions.from_plain(saved, 4)):
        assert again.n_cells == 4 and list(again) == list(conditions)
        for name, condition in conditions.items():
            for one, other in zip(again[name], condition, strict=True):
                np.testing.assert_array_equal(one, other)
                assert one.dtype == other.dtype


def test_nothing_changes_what_is_there(conditions: Conditions[np.ndarray]) -> None:
    by_name = dict(conditions)
    same = Conditions(by_name, 4)
    by_name.clear()
    replaced = same.replace({"age": condition_of([None] * 4, 1), "batch": condition_of([((1, 0.0),)] * 4, 1)})
    assert plain(same) == PLAIN  # neither by the mapping that it was made of, nor by what is replaced
    assert plain(replaced) == {**PLAIN, "age": [None] * 4, "batch": [((1, 0.0),)] * 4}
    same.to(torch.device("cpu")).drop(1.0)
    same.complete_from(same, np.zeros(4, dtype=int), {"age": np.ones(4, dtype=bool)})
    assert plain(same) == PLAIN
    with pytest.raises(TypeError):
        same["age"] = condition_of([None] * 4, 1)


def test_codes_distinguish_missing_from_absent_and_interventions_come_last(conditions: Conditions[np.ndarray]) -> None:
    missing, absent = Code.MISSING, Code.ABSENT
    expected = [
        [2, 0, 3, absent, absent, absent],
        [missing, 0, 4, 8, 1, 4],
        [0, *[missing] * 3, 5, absent],
        [3, 1, absent, absent, missing, missing],
    ]
    np.testing.assert_array_equal(conditions.codes(SPECS), expected)
    contexts, interventions, _ = conditions.groups(SPECS)
    np.testing.assert_array_equal(contexts, np.array(expected)[:, :4])
    np.testing.assert_array_equal(interventions, -np.sort(-np.array(expected)[:, 4:], axis=1))
    assert interventions.shape == (4, 2) and conditions.groups([AGE]).interventions.shape == (4, 0)
    others = conditions.without(["drugs"]).codes(SPECS)
    assert (others[:, 4:] == missing).all()
    np.testing.assert_array_equal(others[:, :4], contexts)


def test_numbers_are_covariates_and_doses_on_their_scales(conditions: Conditions[np.ndarray]) -> None:
    nan, doses = np.nan, NumberTransform("log1p", scale=0.5)
    specs = [
        replace(SPECS[1], transform=NumberTransform("standardise", mean=10, scale=5)),
        replace(DRUGS, transform=doses),
    ]
    expected = [[4, nan], [-2, np.log(2) + np.log(5)], [nan, np.log(3)], [nan, nan]]
    np.testing.assert_allclose(conditions.numbers([CELL_TYPE, *specs]), expected, rtol=1e-6)
    np.testing.assert_allclose(conditions.without(["age"]).numbers(specs)[:, 0], nan)
    assert conditions.numbers([CELL_TYPE, PLACE]).shape == (4, 0)


def test_what_is_missing_is_taken_from_others(conditions: Conditions[np.ndarray]) -> None:
    wider = condition_of([((0, 1.0), (1, 2.0), (2, 3.0)), None], 3)
    others = Conditions({"drugs": wider, "age": condition_of([((0, 7.0),), ((0, 8.0),)], 1)}, 2)
    rows, all_cells = np.array([1, 0, 1, 0]), np.ones(4, dtype=bool)
    completed = conditions.complete_from(others, rows, {"drugs": all_cells, "age": np.array([True, True, True, False])})
    assert cells_of(completed["drugs"]) == [*PLAIN["drugs"][:3], ((0, 1.0), (1, 2.0), (2, 3.0))]
    assert cells_of(completed["age"]) == [*PLAIN["age"][:2], ((0, 8.0),), None]
    assert plain(completed.only(["cell_type", "place"])) == {name: PLAIN[name] for name in ("cell_type", "place")}
    unknown = conditions.complete_from(others, np.ones(4, dtype=int), {"drugs": all_cells})
    assert plain(unknown) == PLAIN  # missing there as well


def test_a_minibatch_is_read_by_its_codes(conditions: Conditions[np.ndarray]) -> None:
    tensors = {
        "labels": torch.tensor([[2], [Code.MISSING], [0], [3]]),
        "numbers": torch.tensor([[9.0, 30.0], [9.0, 0.0], [9.0, np.nan], [9.0, np.nan]]),
        "drugs": torch.tensor([[-2, -2, 0, 0], [1, 4, 0.5, 2], [5, -2, 1, 0], [-1, -1, 0, 0]]),
        "place": torch.tensor([[0, 3, -1], [0, 4, 8], [-1, -1, -1], [1, -1, -1]]).float(),
    }
    arrays = {key: codes.numpy() for key, codes in tensors.items()}
    for read in (conditions_from_batch(tensors, SPECS), conditions_from_batch(arrays, SPECS)):
        assert plain(read) == PLAIN and read.n_cells == 4
        for condition in read.values():
            assert (condition.ids[~condition.mask] == 0).all()
            assert (condition.values[~condition.mask] == 0).all()


def everything(n_cells: int) -> Conditions[Tensor]:
    by_name = {
        "cell_type": condition_of([((i % 4, 0.0),) for i in range(n_cells)], 1),
        "age": condition_of([((0, 10.0 * i),) for i in range(n_cells)], 1),
        "drugs": condition_of([((i % 6, 1.0), ((i + 1) % 6, 0.5))[: i % 3] for i in range(n_cells)], 2),
        "genes": condition_of([((i % 6, 0.0), ((i + 2) % 6, 0.0))[: i % 3] for i in range(n_cells)], 2),
        "place": condition_of([((0, 0.0), (3, 0.0), (6, 0.0))[: 1 + i % 3] for i in range(n_cells)], 3),
    }
    return Conditions(by_name, n_cells).to(torch.device("cpu"))


def dropped(
    conditions: Conditions[Tensor], rate: float, seed: int, together: Collection[str] = ()
) -> dict[str, Tensor]:
    remaining = conditions.drop(rate, torch.Generator().manual_seed(seed), together=together)
    return {name: condition.given for name, condition in remaining.items()}


def test_conditions_are_dropped_independently_at_the_given_rate() -> None:
    given = everything(4000)
    kept = given.drop(0.3, torch.Generator().manual_seed(0))
    still_given = np.stack([one.given.numpy() for one in kept.values()])
    for condition in still_given:
        assert binomtest(int(condition.sum()), 4000, 0.7).pvalue > 1e-4
    correlations = np.corrcoef(still_given)[np.triu_indices(5, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(4000)
    assert all(one.given.all() for one in given.values())  # what was given stays
    for name in given:
        for one, other in zip(kept[name][:3], given[name][:3], strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_conditions_are_dropped_jointly_often_enough_for_guidance(rate: float) -> None:
    n_cells, joint = 20_000, ["cell_type", "age", "place"]
    missing = {name: ~given.numpy() for name, given in dropped(everything(n_cells), rate, 0, joint).items()}
    for cells in missing.values():
        assert binomtest(int(cells.sum()), n_cells, rate).pvalue > 1e-4  # each as often as requested
    alone = (rate / 2) / (1 - rate / 2)
    all_at_once = np.logical_and.reduce([missing[name] for name in joint])
    assert binomtest(int(all_at_once.sum()), n_cells, rate / 2 + (1 - rate / 2) * alone**3).pvalue > 1e-4
    for name in ("drugs", "genes"):  # the others do not know of it
        assert binomtest(int((all_at_once & missing[name]).sum()), int(all_at_once.sum()), rate).pvalue > 1e-4


def test_one_condition_is_not_dropped_together_with_itself() -> None:
    given = everything(50).only(["age"])
    assert dropped(given, 0.5, 3)["age"].equal(dropped(given, 0.5, 3, ["age", "place"])["age"])
    assert not everything(9).drop(1.0, together=["age", "place"])["age"].given.any()


def test_dropping_never_gives_what_was_missing_and_is_repeatable() -> None:
    given = Conditions({"age": condition_of([None] * 25 + [((0, 1.0),)] * 25, 1)}, 50).to(torch.device("cpu"))
    kept, again = (dropped(given, 0.5, 7)["age"] for _ in range(2))
    assert not kept[:25].any()
    assert kept.equal(again)
    assert given.drop(0.0)["age"].given.equal(given["age"].given)
    assert not given.drop(1.0)["age"].given.any()
    with pytest.raises(ValueError, match="`rate` is 1.5"):
        given.drop(1.5)
