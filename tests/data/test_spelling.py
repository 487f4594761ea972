"""Treatments of generated cells are spelled as those of the registered cells, with their doses in the same order."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from scdiffgen.data import Manager, encode_conditions, write_conditions

GUIDES = ["ctrl", "A", "C + B", "C + B", "B + C", "D+ctrl", "B"]
DOSES = ["0", "1", "0.5+2", "3+4", "2+0.5", "7+0", "1"]


def cells_of(**obs: list) -> AnnData:
    table = pd.DataFrame(obs)
    return AnnData(np.ones((len(table), 3), dtype=np.float32), obs=table.set_index(table.index.map("cell{}".format)))


@pytest.fixture
def dosed(register: Callable[..., Manager]) -> Manager:
    cells = cells_of(guide=GUIDES, dose=DOSES)
    return register(cells, perturbation_key="guide", control="ctrl", dose_key="dose")


@pytest.mark.parametrize(
    ("guide", "dose", "expected"),
    [
        ("C + B", "0.5+2", ("C + B", "0.5+2")),  # as the first cell has it
        ("B + C", "2+0.5", ("C + B", "0.5+2.0")),
        (" B+C", {"B": 2.0, "C": 0.5}, ("C + B", "0.5+2.0")),
        ("C + B", "1e0+２", ("C + B", "1.0+2.0")),
        ("C + B", "-0+2", ("C + B", "0.0+2.0")),
        ("B+A", "1+3", ("A+B", "3.0+1.0")),  # no cell has it: sorted
        ("D", "7", ("D+ctrl", 7.0)),
        ("D+ctrl", "7+0", ("D+ctrl", 7.0)),
        ("A+ctrl", "1+0", ("A", 1.0)),
        (" A", " 1e0 ", ("A", 1.0)),
        ("A", {"A": "3"}, ("A", 3.0)),
        ("A", "-0", ("A", 0.0)),
        (" ctrl ", None, ("ctrl", 0.0)),
        ("ctrl", "", ("ctrl", 0.0)),
        (None, None, (None, None)),
    ],
)
def test_a_treatment_is_spelled_as_the_first_cell_has_it_or_sorted(dosed: Manager, guide, dose, expected) -> None:
    table = pd.DataFrame({"guide": pd.Series([guide], dtype=object), "dose": pd.Series([dose], dtype=object)})
    written = write_conditions(dosed, table)
    (entries,) = written.astype(object).where(written.notna(), None).to_numpy().tolist()
    assert entries == list(expected) and type(entries[1]) is type(expected[1])
    assert not isinstance(entries[1], float) or np.copysign(1, entries[1]) == 1
    assert written["dose"].dtype.kind == "f" or not isinstance(expected[1], float)
    before, again = (encode_conditions(dosed, each)["guide"] for each in (table, written))
    for one, other in zip(before, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_are_spelled_one_by_one_and_categories_may_be_new(register: Callable[..., Manager]) -> None:
    manager = register(cells_of(guide=["ctrl", "B+A", "A", "B", "C"]), perturbation_key="guide", control="ctrl")
    asked = pd.DataFrame({"guide": pd.Categorical(["A+B", "C", "A+B", "ctrl", "C+B+A"])})
    assert write_conditions(manager, asked)["guide"].tolist() == ["B+A", "C", "B+A", "ctrl", "A+B+C"]


def test_parts_move_with_their_doses_to_the_columns_of_the_cells(register: Callable[..., Manager]) -> None:
    drugs = {"one": ["no", "B", "A", "C", "C"], "two": ["no", "A", "no", "no", "no"]}
    doses = {"one_dose": [0.0, 5, 2, 3, 3], "two_dose": [0.0, 2, 0, 0, 0]}
    keys = {"perturbation_key": ["one", "two"], "dose_key": ["one_dose", "two_dose"], "control": "no"}
    manager = register(cells_of(**drugs, **doses), **keys)
    asked = pd.DataFrame(
        {"one": ["A", "no", "A"], "one_dose": [2.0, 0.0, 1.0], "two": ["B", "C", "C"], "two_dose": [5.0, 3.0, 4.0]}
    )
    written = write_conditions(manager, asked)
    assert written["one"].tolist() == ["B", "C", "A"] and written["two"].tolist() == ["A", "no", "C"]
    assert written["one_dose"].tolist() == [5.0, 3.0, 1.0] and written["two_dose"].tolist() == [2.0, 0.0, 4.0]


def test_doses_in_columns_of_their_own_come_back_as_numbers(register: Callable[..., Manager]) -> None:
    drugs = {"one": ["no", "B", "A"], "two": ["no", "A", "no"]}
    keys = {"perturbation_key": ["one", "two"], "dose_key": ["one_dose", "two_dose"], "control": "no"}
    manager = register(cells_of(**drugs, one_dose=[0.0, 5, 2], two_dose=[0.0, 2, 0]), **keys)
    asked = pd.DataFrame({"one": ["B"], "one_dose": ["1e1"], "two": ["A"], "two_dose": ["-0"]})
    written = write_conditions(manager, asked)
    assert written[["one_dose", "two_dose"]].to_numpy().tolist() == [[10.0, 0.0]]
    assert np.copysign(1, written["two_dose"][0]) == 1 and set(written.dtypes[["one_dose", "two_dose"]]) == {
        np.dtype(float)
    }


def test_numbers_written_as_text_come_back_without_a_sign_of_zero(register: Callable[..., Manager]) -> None:
    manager = register(cells_of(age=[1.0, 2.0, 3.0]), continuous_covariate_keys=["age"])
    written = write_conditions(manager, pd.DataFrame({"age": ["-0", "1e1"]}))["age"]
    assert written.tolist() == [0.0, 10.0] and np.copysign(1, written[0]) == 1


LEVELS = pd.CategoricalDtype(["low", "never", "mid", "high"], ordered=True)
UNORDERED = pd.CategoricalDtype(["z", "a", "m"])
KEYS = {
    "stage": {"labels_key": "stage"},
    "batch": {"batch_key": "stage"},
    "covariate": {"categorical_covariate_keys": ["other", "stage"]},
    "level": {"hierarchy_keys": ["other", "stage"]},
    "guide": {"perturbation_key": "stage", "control": "low"},
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("dtype", "asked"), [(LEVELS, "high"), (UNORDERED, "m"), (pd.CategoricalDtype([7, 3]), 3)])
def test_categories_come_back_as_registered(
    register: Callable[..., Manager], key: str, dtype: pd.CategoricalDtype, asked: object
) -> None:
    used = [category for category in dtype.categories if category != "never"]
    setup = {**KEYS[key], **({"control": str(used[0])} if key == "guide" else {})}
    stage = pd.Categorical(np.resize(used, 12), dtype=dtype)
    cells = cells_of(other=["x", "y"] * 6, stage=stage)
    manager = register(cells, **setup)
    written = write_conditions(manager, pd.DataFrame({"stage": [asked]}))["stage"]
    assert written.dtype == pd.CategoricalDtype(used, ordered=dtype.ordered) and written.tolist() == [asked]
    assert write_conditions(manager, pd.DataFrame({"stage": [asked, None]}))["stage"].isna().tolist() == [False, True]
    if key != "guide":
        expected = cells.obs["stage"].cat.remove_unused_categories().cat.codes[cells.obs["stage"] == asked].iloc[0]
        assert written.cat.codes.tolist() == [expected]


def test_new_categories_follow_those_in_order(register: Callable[..., Manager]) -> None:
    manager = register(
        cells_of(stage=pd.Categorical(["low", "mid", "high"] * 4, LEVELS.categories, True)), labels_key="stage"
    )
    query = cells_of(stage=["best", "mid", "best", "mid"])
    extended = register(query, source=manager, extend=True, labels_key="stage")
    written = write_conditions(extended, pd.DataFrame({"stage": ["best", "low"]}))["stage"]
    assert written.cat.categories.tolist() == ["low", "mid", "high", "best"] and written.cat.ordered
    assert write_conditions(extended, pd.DataFrame({"stage": ["low"]}))["stage"].cat.ordered


def test_a_column_of_text_comes_back_as_text(register: Callable[..., Manager]) -> None:
    manager = register(cells_of(stage=["b", "a"] * 6), labels_key="stage")
    assert write_conditions(manager, pd.DataFrame({"stage": ["b"]}))["stage"].tolist() == ["b"]
