"""Registration is all or nothing, survives a transfer, and a copy is data of its own."""

from collections.abc import Callable

import anndata as ad
import mudata
import numpy as np
import pytest
from scipy import sparse
from scvi.data.fields import BaseAnnDataField, MuDataWrapper

from scdiffgen.data import CountsField, Manager, condition_specs, forget_copied_setup, registered_conditions
from scdiffgen.data._fields import CategoricalCovariatesField, HierarchyField, StrictCategoricalObsField


def everything_in(adata: ad.AnnData) -> dict[str, object]:
    return {
        "obs": list(adata.obs.columns),
        "obsm": sorted(adata.obsm.keys()),
        "uns": sorted(adata.uns.keys()),
        "X": type(adata.X),
    }


def test_an_error_leaves_the_data_as_they_were(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    cells.X = sparse.csc_matrix(cells.X)
    cells.obs.loc["cell3", "donor"] = np.nan
    before = everything_in(cells)
    matrix = cells.X
    with pytest.raises(ValueError, match="donor"):
        register(cells, labels_key="cell_type", categorical_covariate_keys=["sex", "donor"])
    assert everything_in(cells) == before
    assert cells.X is matrix


def test_an_error_leaves_an_earlier_registration_valid(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells, labels_key="cell_type", categorical_covariate_keys=["sex"])
    codes = cells.obs["_scvi_labels"].copy()
    cells.obs["gap"] = [None, *"ab"] * 8
    with pytest.raises(ValueError, match="gap"):
        register(cells, labels_key="sex", categorical_covariate_keys=["gap"])
    np.testing.assert_array_equal(cells.obs["_scvi_labels"], codes)
    np.testing.assert_array_equal(manager.get_from_registry("labels").ravel(), codes)


def test_transfer_of_all_fields_gives_the_same_codes(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    arguments = {
        "labels_key": "cell_type",
        "batch_key": "donor",
        "categorical_covariate_keys": ["sex", "tissue"],
        "continuous_covariate_keys": ["age.years"],
        "text_key": "note",
    }
    manager = register(cells, **arguments)
    rows = np.array([5, 2, 17, 8])
    expected = manager.create_torch_dataset()[rows]
    query = cells[rows].copy()
    transferred = manager.transfer_fields(query.copy()).registry
    for key in ("model_name", "setup_method_name", "setup_args"):
        assert transferred[key] == manager.registry[key]
    moved = register(query, source=manager, **arguments).create_torch_dataset()[[0, 1, 2, 3]]
    assert moved.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_array_equal(moved[key], values)


def test_a_copy_is_data_of_its_own(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    store: dict[str, Manager] = {}
    for adata in (cells, cells.copy(), cells):
        forget_copied_setup(adata, store)
        manager = register(adata, labels_key="cell_type")
        store[manager.adata_uuid] = manager
    copied = cells.copy()
    forget_copied_setup(copied, store)
    manager = register(copied, labels_key="cell_type")
    store[manager.adata_uuid] = manager
    identifier = cells.uns["_scvi_uuid"]
    forget_copied_setup(cells, store)
    assert cells.uns["_scvi_uuid"] == identifier
    assert store[identifier].adata is cells
    assert store[copied.uns["_scvi_uuid"]].adata is copied


def test_the_registry_can_be_shown(
    cells: ad.AnnData, register: Callable[..., Manager], capsys: pytest.CaptureFixture[str]
) -> None:
    import rich.pretty  # noqa: F401  scvi-tools 1.4 uses it without importing it

    cells.obs["state"] = cells.obs["state"].replace("memory", "C[/C@H]")
    keys = {"labels_key": "cell_type", "categorical_covariate_keys": ["sex"], "hierarchy_keys": ["tissue", "state"]}
    dosed = {"perturbation_key": "guide", "dose_key": "dose", "control": "ctrl"}
    register(cells, **keys, **dosed, continuous_covariate_keys=["age.years"]).view_registry()
    shown = capsys.readouterr().out
    names = ("cell_type", "sex", "age.years", "means", "scales", "KLF1", "dose_max", "4.0")
    for text in (*names, "('blut', 'naive')", "C[/C@H]"):
        assert text in shown


@pytest.mark.filterwarnings("ignore::FutureWarning:mudata")
def test_fields_work_in_a_modality_and_are_restored_there(cells: ad.AnnData) -> None:
    def fields(donor: str) -> list[BaseAnnDataField]:
        return [
            MuDataWrapper(CountsField)("X", layer=None, mod_key="rna", mod_required=True),
            MuDataWrapper(StrictCategoricalObsField)("labels", "cell_type", argument="labels_key", mod_key="rna"),
            MuDataWrapper(HierarchyField)("hierarchy", ["tissue", "state"], mod_key="rna"),
            MuDataWrapper(CategoricalCovariatesField)("extra_categorical_covs", [donor], mod_key="rna"),
        ]

    alone = cells.copy()
    HierarchyField("hierarchy", ["tissue", "state"]).register_field(alone)
    mdata = mudata.MuData({"rna": cells})
    with pytest.raises(KeyError, match="'nowhere'"):
        Manager(fields=fields("nowhere")).register_fields(mdata)
    assert not [key for key in [*mdata["rna"].obs, *mdata["rna"].obsm] if key.startswith("_scvi")]

    manager = Manager(fields=fields("donor"))
    manager.register_fields(mdata)
    assert [spec.name for spec in condition_specs(manager)] == ["cell_type", "hierarchy", "donor"]
    hierarchy = registered_conditions(manager)["hierarchy"]
    np.testing.assert_array_equal(np.where(hierarchy.mask, hierarchy.ids, -1), alone.obsm["_scvi_hierarchy"])
