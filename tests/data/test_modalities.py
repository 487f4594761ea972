"""A MuData is registered modality by modality, and its rows are those of the cells, whatever the modalities hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mudata
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from mudata import MuData
from mudata_cells import join, mosaic, paired
from scipy import sparse

from scdiffgen.data import Manager, counts_keys, feature_names, modality_fields
from scdiffgen.model import TokenDiffusion


def manager(mdata: MuData, **arguments: Any) -> Manager:
    TokenDiffusion.setup_mudata(mdata, **arguments)
    return TokenDiffusion._setup_adata_manager_store[mdata.uns["_scvi_uuid"]]


def dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


def of_cells(modality: AnnData, cells: pd.Index) -> np.ndarray:
    """Counts by name of the cell, zeros for a cell that is not there: with pandas alone."""
    frame = pd.DataFrame(dense(modality.X), index=modality.obs_names)
    return frame.reindex(cells, fill_value=0).to_numpy()


@pytest.mark.parametrize("make", [paired, mosaic])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csc_matrix], ids=["dense", "csr", "csc"])
def test_rows_are_those_of_the_cells(make: Callable[[], MuData], form: Callable[[np.ndarray], Any]) -> None:
    mdata = make()
    for modality in mdata.mod.values():
        modality.X = form(dense(modality.X))
    registered = manager(mdata)
    assert counts_keys(registered) == {"X": 12, "X_prot": 5}
    for key, name in {"X": "rna", "X_prot": "prot"}.items():
        found = dense(registered.get_from_registry(key))
        np.testing.assert_array_equal(found, of_cells(mdata[name], mdata.obs_names))


def test_rows_in_order_share_the_values_of_the_modality() -> None:
    whole = paired()
    mdata = join({"rna": whole["rna"].copy(), "prot": whole["prot"][20:50].copy()})
    registered = manager(mdata)
    assert np.shares_memory(registered.get_from_registry("X_prot").data, mdata["prot"].X.data)


def test_other_cells_may_lack_a_modality() -> None:
    mdata, other = paired(), join({"rna": paired(seed=3)["rna"].copy()})
    moved = manager(mdata).transfer_fields(other)
    assert moved.get_from_registry("X_prot").shape == (60, 5)
    assert moved.get_from_registry("X_prot").nnz == 0
    np.testing.assert_array_equal(dense(moved.get_from_registry("X")), dense(other["rna"].X))
    assert feature_names(moved)["prot"].tolist() == paired()["prot"].var_names.tolist()


def test_layers_and_modalities_are_chosen() -> None:
    mdata = paired()
    mdata["rna"].layers["counts"] = mdata["rna"].X.copy()
    mdata["rna"].X = np.log1p(dense(mdata["rna"].X))
    registered = manager(mdata, modalities=["prot", "rna"], layers={"rna": "counts"})
    assert counts_keys(registered) == {"X": 5, "X_rna": 12}
    np.testing.assert_array_equal(dense(registered.get_from_registry("X_rna")), dense(mdata["rna"].layers["counts"]))
    assert counts_keys(manager(mdata, modalities=["prot"])) == {"X": 5}


def test_the_first_modality_has_the_key_of_an_anndata() -> None:
    assert [field.registry_key for field in modality_fields(["a", "b"], {})] == ["X", "X_b"]


def without_rna(mdata: MuData) -> MuData:
    counts = dense(mdata["rna"].X).copy()
    counts[:3] = 0
    mdata["rna"].X = counts
    return mdata


def empty_cells(mdata: MuData) -> MuData:
    for modality in mdata.mod.values():
        counts = dense(modality.X).copy()
        counts[[1, 4]] = 0
        modality.X = counts
    return mdata


def fractional(mdata: MuData) -> MuData:
    mdata["prot"].X = dense(mdata["prot"].X) + 0.5
    return mdata


def own_column(mdata: MuData) -> MuData:
    mdata["rna"].obs["sort"] = "x"
    return mdata


def double_names(mdata: MuData) -> MuData:
    mdata["rna"].var_names = ["gene0", *mdata["rna"].var_names[:-1]]
    return mdata


def test_a_cell_may_be_empty_in_a_modality_if_it_is_not_in_all() -> None:
    manager(without_rna(paired()))
    with pytest.raises(ValueError, match=r"3 cells without a molecule \('cell0', 'cell1', 'cell2'\)"):
        manager(without_rna(paired()), modalities=["rna"])


def test_the_error_for_other_cells_says_how_to_copy_a_column_of_a_modality() -> None:
    known = paired()
    known.obs["sort"] = "x"
    registered = manager(known, labels_key="sort")
    with pytest.raises(KeyError, match=r"Write `mdata.obs\['sort'\] = mdata\['rna'\].obs\['sort'\]` first"):
        registered.transfer_fields(own_column(paired()))


@pytest.mark.parametrize(
    ("spoil", "arguments", "error", "message"),
    [
        (lambda m: m["rna"], {}, TypeError, r"`mdata` is of type AnnData: pass a MuData, such as `mudata.MuData"),
        (lambda m: m[:10], {}, ValueError, "`mdata` is a view of other cells"),
        (lambda m: m, {"modalities": "rna"}, TypeError, r"must be a list: write `modalities=\['rna'\]`"),
        (lambda m: m, {"modalities": ["rna", "protein"]}, ValueError, "'protein', but `mdata.mod` has 'rna', 'prot'"),
        (lambda m: m, {"modalities": ["rna", "rna"]}, ValueError, "name each modality once"),
        (lambda m: m, {"modalities": []}, ValueError, "name each modality once"),
        (lambda m: m, {"layers": "counts"}, TypeError, "pass a layer for each modality that has one"),
        (lambda m: m, {"layers": {"atac": "counts"}}, ValueError, "`layers` names 'atac'"),
        (lambda m: m, {"layers": {"prot": "counts"}}, KeyError, "Modality 'prot' .*`layer='counts'` is not in"),
        (lambda m: m, {"labels_key": "sort"}, KeyError, "`labels_key`: 'sort' is not a column"),
        (own_column, {"labels_key": "sort"}, KeyError, r"Write `mdata.obs\['sort'\] = mdata\['rna'\].obs\['sort'\]`"),
        (own_column, {"batch_key": "rna:sort"}, KeyError, r"column of the modality 'rna', and not of `mdata.obs`"),
        (fractional, {}, ValueError, "Modality 'prot' .*does not hold molecule counts"),
        (empty_cells, {}, ValueError, r"2 cells without a molecule of any modality .*: 'cell1', 'cell4'"),
        (double_names, {}, ValueError, "Modality 'rna' .*`adata.var_names` are not unique"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning:mudata")
def test_what_is_wrong_is_named_and_nothing_is_written(
    spoil: Callable[[MuData], Any], arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    mdata = spoil(paired())
    with pytest.raises(error, match=message):
        TokenDiffusion.setup_mudata(mdata, **arguments)
    assert not [column for column in mdata.obs if column.startswith("_scvi")]


def test_cells_of_other_genes_are_refused_by_modality() -> None:
    mdata, other = paired(), paired()
    reordered = join({"rna": other["rna"].copy(), "prot": other["prot"][:, ::-1].copy()})
    with pytest.raises(ValueError, match="Modality 'prot' .*in another order"):
        manager(mdata).transfer_fields(reordered)


@pytest.mark.filterwarnings("ignore::FutureWarning:mudata")
def test_modalities_in_a_file_are_read_into_memory_first(tmp_path: Path) -> None:
    paired().write(tmp_path / "cells.h5mu")
    mdata = mudata.read_h5mu(tmp_path / "cells.h5mu", backed="r")
    with pytest.raises(ValueError, match=r"modality 'rna' are on disk, .* `mudata.read_h5mu\(path\)`"):
        TokenDiffusion.setup_mudata(mdata)
    TokenDiffusion.setup_mudata(mdata, modalities=["rna"])  # one is read in blocks, as an AnnData is
