"""Treatments of generated cells are spelled as those of the registered cells, with their doses in the same order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from scdiffgen.data import Manager, write_conditions

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
        ("C + B", "0.5+2", ("C + B", "0.5+2")),  # as most cells have it
        ("B + C", "2+0.5", ("C + B", "0.5+2.0")),
        (" B+C", {"B": 2.0, "C": 0.5}, ("C + B", "0.5+2.0")),
        ("B+A", "1+3", ("A+B", "3.0+1.0")),  # no cell has it: sorted
        ("A+B", "3+1", ("A+B", "3+1")),
        ("D", 7.0, ("D+ctrl", 7.0)),
        ("D+ctrl", "7+0", ("D+ctrl", "7+0")),
        (" A", 1.0, ("A", 1.0)),
        ("A+ctrl", "1+0", ("A", 1.0)),
        (" ctrl ", None, ("ctrl", None)),
        (None, None, (None, None)),
    ],
)
def test_a_treatment_is_spelled_as_most_cells_have_it_or_sorted(dosed: Manager, guide, dose, expected) -> None:
    table = pd.DataFrame({"guide": pd.Series([guide], dtype=object), "dose": pd.Series([dose], dtype=object)})
    written = write_conditions(dosed, table).astype(object)
    assert written.where(written.notna(), None).iloc[0].tolist() == list(expected)


def test_rows_are_spelled_one_by_one_and_categories_may_be_new(register: Callable[..., Manager]) -> None:
    manager = register(cells_of(guide=["ctrl", "B+A", "A", "B", "C"]), perturbation_key="guide", control="ctrl")
    asked = pd.DataFrame({"guide": pd.Categorical(["A+B", "C", "A+B", "ctrl", "C+B+A"])})
    assert write_conditions(manager, asked)["guide"].tolist() == ["B+A", "C", "B+A", "ctrl", "A+B+C"]


def test_parts_move_with_their_doses_to_the_columns_of_the_cells(
    register: Callable[..., Manager],
) -> None:
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


def test_a_setup_of_an_earlier_version_has_no_spellings(dosed: Manager) -> None:
    fields = dict(dosed.registry["field_registries"])
    state = dict(fields["perturbation"]["state_registry"])
    del state["spellings"]
    fields["perturbation"] = {**fields["perturbation"], "state_registry": state}
    written = write_conditions({"field_registries": fields}, pd.DataFrame({"guide": ["C+B"], "dose": ["1+2"]}))
    assert written.iloc[0].tolist() == ["B+C", "2.0+1.0"]
