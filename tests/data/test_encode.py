"""Arguments of `setup_anndata` become conditions; a table is encoded as a minibatch of cells with the same entries."""

import pickle
from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import torch
from scvi.dataloaders import AnnDataLoader

from scdiffgen.conditions import Condition, conditions_from_batch, request_table
from scdiffgen.data import (
    Manager,
    SetupArguments,
    condition_specs,
    encode_conditions,
    read_registry,
    registered_conditions,
    write_conditions,
)
from scdiffgen.data._registered import condition_columns
from scdiffgen.model import TokenDiffusion

EVERYTHING: dict[str, Any] = {
    "labels_key": "cell_type",
    "batch_key": "donor",
    "perturbation_key": "guide",
    "control": "ctrl",
    "dose_key": "dose",
    "dose_unit": "uM",
    "hierarchy_keys": ["tissue", "state"],
    "categorical_covariate_keys": ["stage", "sex"],
    "continuous_covariate_keys": ["hours", "age.years"],
    "text_key": "note",
}


@pytest.fixture
def manager(cells: ad.AnnData, register: Callable[..., Manager]) -> Manager:
    return register(cells, **EVERYTHING)


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
    assert [spec.role for spec in specs] == ["context"] * 8 + ["intervention"]
    assert condition_specs(register(cells, **EVERYTHING).registry) == specs


def test_nothing_requested_is_no_condition(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells)
    assert condition_specs(manager) == []
    assert set(manager.data_registry) == {"X", "labels", "batch"}


def test_a_list_of_one_column_is_that_column(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells, perturbation_key=["guide"], dose_key=["dose"], control=("ctrl",))
    assert condition_specs(manager)[0].name == "guide"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dose_key": "dose"}, r"`dose_key=\['dose'\]` needs `perturbation_key`"),
        ({"perturbation_features_key": "genes"}, "`perturbation_features_key='genes'` needs `perturbation_key`"),
        ({"perturbation_key": "guide", "dose_unit": "uM"}, "`dose_unit='uM'` needs `dose_key`"),
        ({"perturbation_key": ["a", "b"], "dose_key": "dose"}, "`dose_key` names 1 column .*`perturbation_key` 2"),
        ({"labels_key": "a", "batch_key": "a"}, "'a' would name more than one condition"),
        ({"labels_key": "a", "hierarchy_keys": ["b", "a"]}, "'a' would name more than one condition"),
        ({"labels_key": "hierarchy", "hierarchy_keys": ["a", "b"]}, "'hierarchy' would name"),
        ({"labels_key": "perturbation", "perturbation_key": ["a", "b"]}, "'perturbation' would name"),
        ({"labels_key": "dose", "perturbation_key": "a", "dose_key": "uM"}, "'dose' would name"),
        ({"continuous_covariate_keys": ["n_cells"]}, "'n_cells' would name"),
        ({"perturbation_key": "a", "control": []}, "`control` names nothing"),
        ({"perturbation_key": "a", "perturbation_sep": ""}, "`perturbation_sep` must be a visible character"),
    ],
)
def test_contradictions_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SetupArguments(**arguments).fields()


def seen_by_a_network(parts: Condition) -> list[tuple[Any, ...]]:
    """What is given of each cell, without what must not be looked at."""
    return [
        tuple((int(i), np.float32(v)) for i, v, m in zip(ids, values, mask, strict=True) if m) if given else ()
        for ids, values, mask, given in zip(*(np.asarray(each) for each in parts), strict=True)
    ]


def test_a_table_of_the_registered_cells_gives_their_codes(cells: ad.AnnData, manager: Manager) -> None:
    columns = ["cell_type", "donor", "guide", "dose", "tissue", "state", "sex", "stage", "hours", "age.years", "note"]
    requested = encode_conditions(pickle.loads(pickle.dumps(manager.registry)), cells.obs[columns])
    (batch,) = AnnDataLoader(manager, batch_size=64, shuffle=False)
    specs = condition_specs(manager)
    trained = conditions_from_batch(batch, specs)
    registered = registered_conditions(manager)
    assert requested.keys() == trained.keys() == {spec.name for spec in specs}
    for spec in specs:
        assert seen_by_a_network(requested[spec.name]) == seen_by_a_network(trained[spec.name])
        np.testing.assert_array_equal(requested[spec.name].given, trained[spec.name].given.numpy())
        assert seen_by_a_network(registered[spec.name]) == seen_by_a_network(trained[spec.name])


def test_types_shapes_and_padding(cells: ad.AnnData, manager: Manager) -> None:
    (batch,) = AnnDataLoader(manager, batch_size=64, shuffle=False)
    for spec in condition_specs(manager):
        tensors = conditions_from_batch(batch, [spec])[spec.name]
        arrays = encode_conditions(manager, pd.DataFrame(index=range(5)))[spec.name]
        assert (tensors.ids.dtype, tensors.values.dtype) == (torch.int64, torch.float32)
        assert (tensors.mask.dtype, tensors.given.dtype) == (torch.bool, torch.bool)
        assert (arrays.ids.dtype, arrays.values.dtype) == (np.int64, np.float32)
        assert (arrays.mask.dtype, arrays.given.dtype) == (np.bool_, np.bool_)
        assert tensors.ids.shape == tensors.values.shape == tensors.mask.shape == (24, spec.n_slots)
        assert arrays.ids.shape == arrays.values.shape == arrays.mask.shape == (5, spec.n_slots)
        assert tensors.given.shape == (24,)
        assert (tensors.ids[~tensors.mask] == 0).all()
        assert (tensors.values[~tensors.mask] == 0).all()
        assert ((tensors.ids >= 0) & (tensors.ids < max(1, spec.n_categories))).all()


def test_what_is_missing_is_not_given_and_a_control_is_given(manager: Manager) -> None:
    table = pd.DataFrame({"guide": ["ctrl", None, "KLF1"], "dose": [None, None, 1.0], "age.years": [30.0, np.nan, 50]})
    parts = encode_conditions(manager, table)
    assert parts["guide"].given.tolist() == [True, False, True]
    assert parts["guide"].mask.any(axis=1).tolist() == [False, False, True]
    assert parts["age.years"].given.tolist() == [True, False, True]
    for name in ("cell_type", "donor", "hierarchy", "sex", "note"):
        assert not parts[name].given.any()


DOSES = ["0.5+2", {"KLF1": 0.5, "BAK1": 2.0}, {"BAK1": 2, "KLF1": 0.5, "ctrl": 0}]


@pytest.mark.parametrize("dose", DOSES)
@pytest.mark.parametrize("guide", ["KLF1+BAK1", " KLF1 + BAK1 "])
def test_doses_stay_with_their_perturbation(manager: Manager, guide: str, dose: object) -> None:
    parts = encode_conditions(manager, request_table({"guide": guide, "dose": dose}, n_cells=3))["guide"]
    assert parts.ids.tolist() == [[0, 1]]
    assert parts.values.tolist() == [[2.0, 0.5]]


def test_larger_combinations_than_registered_get_slots(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    cells.obs["guide"] = ["A", "B", "C", "ctrl"] * 6
    manager = register(cells, perturbation_key="guide", control="ctrl")
    assert condition_specs(manager)[0].n_slots == 1
    parts = encode_conditions(manager, pd.DataFrame({"guide": ["C+A", "A+B+C", "B"]}))["guide"]
    assert parts.ids.shape == (3, 3)
    assert [row[mask].tolist() for row, mask in zip(parts.ids, parts.mask, strict=True)] == [[0, 2], [0, 1, 2], [1]]


def test_slot_columns_can_be_requested_by_slot_or_by_text(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    cells.obs["drug_1"] = ["ctrl", "A", "B"] * 8
    cells.obs["drug_2"] = [None, "B", "ctrl"] * 8
    cells.obs["uM_1"] = [0.0, 1.0, 2.0] * 8
    cells.obs["uM_2"] = [None, 3.0, 0.0] * 8
    manager = register(
        cells, perturbation_key=["drug_1", "drug_2"], dose_key=["uM_1", "uM_2"], control="ctrl", dose_unit="uM"
    )
    slots = pd.DataFrame({"drug_1": ["B", "ctrl"], "drug_2": ["A", None], "uM_1": [4.0, None], "uM_2": [5.0, None]})
    expected = encode_conditions(manager, slots)["perturbation"]
    assert expected.values.tolist() == [[5.0, 4.0], [0.0, 0.0]]
    for table in (
        pd.DataFrame({"perturbation": ["B+A", "ctrl"], "dose": ["4+5", None]}),
        pd.DataFrame({"perturbation": ["B+A", "ctrl"], "uM_1": [4.0, None], "uM_2": [5.0, None]}),
        pd.DataFrame({"drug_1": ["B", None], "drug_2": ["A", "ctrl"], "dose": [{"A": 5, "B": 4}, 0.0]}),
    ):
        for found, target in zip(encode_conditions(manager, table)["perturbation"], expected, strict=True):
            np.testing.assert_array_equal(found, target)
    with pytest.raises(ValueError, match="perturbation is given twice"):
        encode_conditions(manager, slots.assign(perturbation="A"))
    with pytest.raises(ValueError, match="dose is given twice"):
        encode_conditions(manager, slots.assign(dose=1.0))


def test_a_place_may_be_given_by_its_leaf_if_that_is_clear(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    cells.obs["tissue"] = ["blood", "lung", "lung"] * 8
    cells.obs["state"] = ["naive", "naive", "memory"] * 8
    manager = register(cells, hierarchy_keys=["tissue", "state"])
    table = pd.DataFrame({"tissue": ["lung", None, "blood"], "state": [None, "memory", "naive"]})
    parts = encode_conditions(manager, table)["hierarchy"]
    lung, blood = 1, 0
    assert parts.mask.tolist() == [[True, False], [True, True], [True, True]]
    assert parts.ids[:, 0].tolist() == [lung, lung, blood]
    with pytest.raises(ValueError, match=r"row 0: state='naive' is at several nodes: \('blood', 'naive'\)"):
        encode_conditions(manager, pd.DataFrame({"state": ["naive"]}))
    with pytest.raises(ValueError, match=r"no node tissue='blood', state='memry'.*Did you mean 'memory'"):
        encode_conditions(manager, pd.DataFrame({"tissue": ["blood"], "state": ["memry"]}))
    with pytest.raises(ValueError, match=r"node tissue='blood', state='memory'; 'memory' is registered under .*lung"):
        encode_conditions(manager, pd.DataFrame({"tissue": ["blood"], "state": ["memory"]}))


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"cel_type": "B cells"}, "'cel_type' is not a registered condition.*Did you mean 'cell_type'"),
        ({"cell_type": "B cell"}, r"Condition 'cell_type': 'B cell' was not registered.*Did you mean 'B cells'"),
        ({"donor": "7"}, r"Condition 'donor': '7' was not registered.*are 3, 7\. Did you mean 7"),
        ({"sex": "x"}, "are 'f', 'm'"),
        ({"guide": "FOXO1", "dose": 1}, "'FOXO1' was not registered.*`perturbation_features_key`"),
        ({"guide": "KLF1"}, "'KLF1' has no dose.*the registered doses of KLF1 are 0.5 to 1 uM"),
        ({"guide": "KLF1+BAK1", "dose": {"KLF1": 1}}, "'BAK1' has no dose"),
        ({"dose": 1.0}, "dose 1.0 has no perturbation"),
        ({"guide": "KLF1+KLF1", "dose": "1+1"}, "'KLF1' occurs twice"),
    ],
)
def test_what_cannot_be_encoded_is_named(manager: Manager, requested: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_conditions(manager, request_table(requested))


def test_a_dose_without_registered_doses_is_no_condition(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells, perturbation_key="guide", control="ctrl")
    with pytest.raises(ValueError, match="'dose' is not a registered condition"):
        encode_conditions(manager, request_table({"guide": "KLF1", "dose": 1.0}))


def test_features_let_unseen_perturbations_be_requested(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    cells.uns["genes"] = {"KLF1": [1.0], "BAK1": [2.0], "FOXO1": [3.0]}
    manager = register(
        cells, perturbation_key="guide", control="ctrl", dose_key="dose", perturbation_features_key="genes"
    )
    assert encode_conditions(manager, request_table({"guide": "FOXO1", "dose": 2}))["guide"].ids[0, 0] == 1
    with pytest.raises(ValueError, match="registered doses of the perturbations are 0.5 to 4"):
        encode_conditions(manager, request_table({"guide": "FOXO1"}))
    with pytest.raises(ValueError, match="Only perturbations with a feature vector"):
        encode_conditions(manager, request_table({"guide": "SPI1", "dose": 1}))


def test_what_is_written_stands_in_the_registered_columns_and_means_the_same(
    cells: ad.AnnData, register: Callable[..., Manager]
) -> None:
    cells.obs = cells.obs.rename(columns={"dose": "dose_uM"})
    manager = register(cells, perturbation_key="guide", control="ctrl", dose_key="dose_uM")
    requested = pd.DataFrame({"guide": ["KLF1+BAK1", "KLF1", "ctrl"], "dose": [{"BAK1": 2.0, "KLF1": 0.5}, 1.0, {}]})
    written = write_conditions(manager, requested)
    assert written["dose_uM"].tolist() == ["0.5+2.0", 1.0, 0.0] and "dose" not in written
    assert isinstance(requested["dose"][0], dict)
    for one, other in zip(*(encode_conditions(manager, table)["guide"] for table in (requested, written)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_error_for_value_counts_says_how_to_name_numbers_of_cells(manager: Manager, cells: ad.AnnData) -> None:
    table = cells.obs["cell_type"].value_counts().reset_index()
    with pytest.raises(ValueError, match="'count' is not a registered condition .* in a column 'n_cells'"):
        encode_conditions(manager, table)


def test_columns_that_tell_each_condition(manager: Manager) -> None:
    columns = {spec.name: condition_columns(manager, spec) for spec in condition_specs(manager)}
    assert columns["guide"] == ["guide", "dose"]
    assert columns["hierarchy"] == ["tissue", "state"]
    assert columns["cell_type"] == ["cell_type"]


def test_registries_of_scvi_data_modules_are_read() -> None:
    """Their covariates have a dict of mappings, and columns without transforms."""
    states = {
        "X": {"n_vars": 2, "column_names": ["g1", "g2"]},
        "batch": {"categorical_mapping": np.array(["b1", "b2"]), "original_key": "batch"},
        "extra_categorical_covs": {"mappings": {"sex": ["f", "m"]}, "field_keys": ["sex"], "n_cats_per_key": [2]},
        "extra_continuous_covs": {"columns": np.array(["age"])},
    }
    fields = {key: {"data_registry": {}, "state_registry": state, "summary_stats": {}} for key, state in states.items()}
    setup = {"setup_method_name": "setup_datamodule", "setup_args": {"batch_key": "batch", "labels_key": None}}
    registry = read_registry({**setup, "field_registries": fields}, TokenDiffusion)
    assert [spec.name for spec in condition_specs(registry)] == ["sex", "age", "batch"]
    parts = encode_conditions(registry, pd.DataFrame({"sex": ["m"], "batch": ["b2"], "age": [3.0]}))
    assert (parts["sex"].ids[0, 0], parts["batch"].ids[0, 0], parts["age"].values[0, 0]) == (1, 1, 3.0)
    assert condition_specs(registry)[1].transform(3.0) == 3.0
