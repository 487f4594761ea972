"""The arguments of `setup_anndata` become fields, and contradictions among them are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anndata as ad
import pytest

from scdiffgen.data import Manager, SetupArguments, condition_specs

EVERYTHING: dict[str, Any] = {
    "labels_key": "cell_type",
    "batch_key": "donor",
    "perturbation_key": "guide",
    "control": "ctrl",
    "dose_key": "dose",
    "hierarchy_keys": ["tissue", "state"],
    "categorical_covariate_keys": ["stage", "sex"],
    "continuous_covariate_keys": ["hours", "age.years"],
    "text_key": "note",
}


def test_conditions_come_in_one_order(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    specs = condition_specs(register(cells, **EVERYTHING))
    assert [spec.name for spec in specs] == [
        "cell_type",
        "hierarchy",
        "stage",
        "sex",
        "hours",
        "age.years",
        "note",
        "donor",
        "guide",
    ]
    assert [spec.role for spec in specs] == ["identity"] * 8 + ["intervention"]
    assert condition_specs(register(cells, **EVERYTHING).registry) == specs


def test_nothing_requested_is_no_condition(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells)
    assert condition_specs(manager) == []
    assert set(manager.data_registry) == {"X", "labels", "batch"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dose_key": "dose"}, r"`dose_key=\['dose'\]` needs `perturbation_key`"),
        ({"perturbation_features_key": "genes"}, "`perturbation_features_key='genes'` needs `perturbation_key`"),
        ({"perturbation_key": "guide", "dose_unit": "uM"}, "`dose_unit='uM'` needs `dose_key`"),
        ({"perturbation_key": ["a", "b"], "dose_key": "dose"}, "`dose_key` names 1 column .*`perturbation_key` 2"),
        ({"labels_key": "a", "batch_key": "a"}, "'a' would stand for more than one condition"),
        ({"labels_key": "a", "hierarchy_keys": ["b", "a"]}, "'a' would stand for more than one condition"),
        ({"labels_key": "hierarchy", "hierarchy_keys": ["a", "b"]}, "'hierarchy' would stand"),
        ({"labels_key": "perturbation", "perturbation_key": ["a", "b"]}, "'perturbation' would stand"),
        ({"labels_key": "dose", "perturbation_key": "a", "dose_key": "uM"}, "'dose' would stand"),
        ({"continuous_covariate_keys": ["n_cells"]}, "'n_cells' would stand"),
        ({"perturbation_key": "a", "control": []}, "`control` names nothing"),
        ({"perturbation_key": "a", "perturbation_sep": ""}, "`perturbation_sep` must be a visible character"),
    ],
)
def test_contradictions_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SetupArguments(**arguments).fields()


def test_a_list_of_one_column_is_that_column(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells, perturbation_key=["guide"], dose_key=["dose"], control=("ctrl",))
    assert condition_specs(manager)[0].name == "guide"
