"""Perturbations of cells become ids and doses that can be read back as they were written."""

import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from scdiffgen.data import Manager, condition_specs, encode_conditions, field_state

Register = Callable[..., Manager]
GUIDES = {"perturbation_key": "guide", "control": "ctrl"}
DOSED = {**GUIDES, "dose_key": "dose", "dose_unit": "uM"}


def read_back(adata: ad.AnnData, manager: Manager) -> list[dict[str, float]]:
    """Treatments from the codes, by the documented layout alone."""
    names = field_state(manager, "perturbation")["names"]
    codes = adata.obsm["_scvi_perturbation"]
    ids, doses = np.split(codes, 2, axis=1)
    assert codes.dtype == np.float32
    assert (doses[ids < 0] == 0).all()
    return [
        {names[int(i)]: float(dose) for i, dose in zip(*row, strict=True) if i >= 0}
        for row in zip(ids, doses, strict=True)
    ]


def test_codes_hold_sorted_names_with_their_doses(cells: ad.AnnData, register: Register) -> None:
    manager = register(cells, **DOSED)
    cycle = [{}, {"BAK1": 2.0, "KLF1": 0.5}, {"BAK1": 4.0}, {"KLF1": 1.0}, {}, {"BAK1": 1.0}]
    assert read_back(cells, manager) == cycle * 4
    assert manager.summary_stats.n_perturbation == 2
    (spec,) = condition_specs(manager)
    assert (spec.name, spec.kind, spec.role) == ("guide", "set", "intervention")
    assert (spec.n_categories, spec.n_slots, spec.has_values, spec.n_features) == (2, 2, True, 0)


def test_the_transform_of_doses_is_relative_to_their_median(cells: ad.AnnData, register: Register) -> None:
    cells.obs["guide"] = ["A", "A", "A", "B", "ctrl", "A"] * 4
    cells.obs["dose"] = [1.0, 1.0, 1.0, 10.0, 0.0, 100.0] * 4
    transform = condition_specs(register(cells, **DOSED))[0].transform
    assert (transform.kind, transform.unit) == ("log1p", "uM")
    treated = cells.obs["dose"][cells.obs["dose"] > 0]
    assert transform.scale == treated.median() != treated.drop_duplicates().median()


def test_without_doses_values_are_unused(cells: ad.AnnData, register: Register) -> None:
    manager = register(cells, **GUIDES)
    assert not condition_specs(manager)[0].has_values
    assert (cells.obsm["_scvi_perturbation"][:, 2:] == 0).all()
    assert field_state(manager, "perturbation")["dose_transform"] is None


def test_slot_columns_and_text_give_the_same_codes(cells: ad.AnnData, register: Register) -> None:
    register(cells, **DOSED)
    expected = cells.obsm["_scvi_perturbation"].copy()
    cells.obs["drug_1"] = pd.Categorical(["ctrl", "KLF1", None, "KLF1", "ctrl", "BAK1"] * 4)
    cells.obs["drug_2"] = [None, "BAK1", "BAK1", None, "ctrl", "ctrl"] * 4
    cells.obs["dose_1"] = [0.0, 0.5, np.nan, 1.0, np.nan, 1.0] * 4
    cells.obs["dose_2"] = [np.nan, 2.0, 4.0, 0.0, 0.0, 0.0] * 4
    manager = register(
        cells, perturbation_key=["drug_1", "drug_2"], dose_key=["dose_1", "dose_2"], dose_unit="uM", control="ctrl"
    )
    np.testing.assert_array_equal(cells.obsm["_scvi_perturbation"], expected)
    assert condition_specs(manager)[0].name == "perturbation"


def test_several_controls(cells: ad.AnnData, register: Register) -> None:
    cells.obs["guide"] = ["ctrl", "NT", "A", "A+NT", "control", "B"] * 4
    manager = register(cells, perturbation_key="guide", control=["ctrl", "NT", "control"])
    assert [sorted(t) for t in read_back(cells, manager)[:6]] == [[], [], ["A"], ["A"], [], ["B"]]


@pytest.mark.parametrize(
    ("column", "entry", "message"),
    [
        ("guide", None, r"`perturbation_key='guide'`: 1 cell of 24 has no value.*cell3.*write 'ctrl' there"),
        ("guide", "A++B", r"'A\+\+B' at dose '1\.0' in cell 'cell3': a part is empty"),
        ("dose", "-1", r"'KLF1' at dose '-1' in cell 'cell3': dose -1 of 'KLF1'"),
        ("dose", None, r"'KLF1' at dose None in cell 'cell3': 'KLF1' has no dose. If .*, pass `control='KLF1'`; other"),
        ("dose", "1+2", "2 doses for 1 perturbation"),
    ],
)
def test_an_unreadable_entry_is_named_with_its_cell(
    cells: ad.AnnData, register: Register, column: str, entry: str | None, message: str
) -> None:
    cells.obs.loc["cell3", column] = entry
    with pytest.raises(ValueError, match=message):
        register(cells, **DOSED)
    assert not [key for key in cells.obsm if key.startswith("_scvi")]


def test_a_cell_with_nothing_in_any_slot_is_refused(cells: ad.AnnData, register: Register) -> None:
    cells.obs["drug_1"], cells.obs["drug_2"] = ["A", None, "ctrl"] * 8, ["B", None, None] * 8
    with pytest.raises(ValueError, match=r"`perturbation_key=\['drug_1', 'drug_2'\]`: 8 cells of 24 have no value"):
        register(cells, perturbation_key=["drug_1", "drug_2"], control="ctrl")


def test_transfer_keeps_ids_and_width_and_refuses_the_unseen(cells: ad.AnnData, register: Register) -> None:
    manager = register(cells, **DOSED)
    registry = pickle.loads(pickle.dumps(manager.registry))
    query = cells[[3, 2, 0]].copy()
    again = Manager(fields=manager.fields)
    again.register_fields(query, registry)
    np.testing.assert_array_equal(query.obsm["_scvi_perturbation"], cells.obsm["_scvi_perturbation"][[3, 2, 0]])

    query.obs["guide"] = ["KLF2", "BAK1", "ctrl"]
    with pytest.raises(ValueError, match=r"1 unseen perturbation \('KLF2'\).*Did you mean 'KLF1'"):
        register(query, source=manager, **DOSED)


def test_extension_appends_names_and_slots(cells: ad.AnnData, register: Register) -> None:
    manager = register(cells, **DOSED)
    query = cells[:4].copy()
    query.obs["guide"] = ["AAA+KLF1+BAK1", "KLF1", "ctrl", "ZZZ"]
    query.obs["dose"] = ["7+8+9", "1", "0", "2"]
    extended = register(query, source=manager, extend=True, **DOSED)
    assert read_back(query, extended)[0] == {"AAA": 7.0, "BAK1": 9.0, "KLF1": 8.0}
    state = field_state(extended, "perturbation")
    assert state is not None
    assert list(state["names"]) == ["BAK1", "KLF1", "AAA", "ZZZ"]
    np.testing.assert_array_equal(state["dose_min"], [1.0, 0.5, 7.0, 2.0])
    assert condition_specs(extended)[0].n_slots == 3
    assert condition_specs(extended)[0].transform == condition_specs(manager)[0].transform


VECTORS = {"KLF1": [1.0, 0.0, 2.0], "BAK1": [0.0, 1.0, 3.0], "FOXO1": [5.0, 5.0, 5.0], "ctrl": [0.0, 0.0, 0.0]}
FEATURED = {**GUIDES, "perturbation_features_key": "genes"}


@pytest.mark.parametrize("as_frame", [False, True])
@pytest.mark.parametrize("through_file", [False, True])
def test_names_with_a_vector_are_registered_even_if_no_cell_has_them(
    cells: ad.AnnData, register: Register, tmp_path: Path, as_frame: bool, through_file: bool
) -> None:
    cells.uns["genes"] = pd.DataFrame(VECTORS, index=["a", "b", "c"]).T if as_frame else VECTORS
    if through_file:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cells.write_h5ad(tmp_path / "cells.h5ad")
        cells = ad.read_h5ad(tmp_path / "cells.h5ad")
    state = field_state(register(cells, **FEATURED), "perturbation")
    assert state is not None
    assert list(state["names"]) == ["BAK1", "FOXO1", "KLF1"]
    np.testing.assert_array_equal(state["features"], [VECTORS[name] for name in state["names"]])
    assert state["features"].dtype == np.float32


def test_unseen_names_enter_by_their_vectors(cells: ad.AnnData, register: Register) -> None:
    cells.uns["genes"] = VECTORS
    manager = register(cells, **FEATURED)
    assert condition_specs(manager)[0].n_features == 3
    query = cells[:2].copy()
    query.obs["guide"] = ["FOXO1", "ctrl"]
    register(query, source=manager, **FEATURED)
    assert query.obsm["_scvi_perturbation"][0, 0] == 1

    query.obs["guide"] = ["SPI1", "ctrl"]
    with pytest.raises(ValueError, match="has no vector of 'SPI1'"):
        register(query, source=manager, extend=True, **FEATURED)
    query.uns["genes"] = {**VECTORS, "SPI1": [9.0, 9.0, 9.0]}
    state = field_state(register(query, source=manager, extend=True, **FEATURED), "perturbation")
    assert state is not None
    assert list(state["names"]) == ["BAK1", "FOXO1", "KLF1", "SPI1"]
    np.testing.assert_array_equal(state["features"][3], [9.0, 9.0, 9.0])
    query.uns["genes"] = {"SPI1": [9.0], "KLF1": [9.0]}
    with pytest.raises(ValueError, match="vectors have length 1; pass vectors of length 3"):
        register(query, source=manager, extend=True, **FEATURED)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({"KLF1": [1.0]}, r"has no vector of 'BAK1'"),
        ({"KLF1": [1.0], "BAK1": [1.0, 2.0]}, "'BAK1' has length 2, that of 'KLF1' has 1"),
        ({"KLF1": [1.0], "BAK1": [np.nan]}, "vector of 'BAK1' holds nan; features are finite"),
        ({"KLF1": ["x"], "BAK1": [1.0]}, "vector of 'KLF1' is not numeric"),
        ({"KLF1": [[1.0]], "BAK1": [1.0]}, "'KLF1' must have one dimension"),
        ({"KLF1": [], "BAK1": []}, "of at least 1"),
        ({"KLF1": [1.0], "BAK1": [1.0], "A+B": [1.0]}, r"vectors of combinations \('A\+B'\)"),
        ({"KLF1": [1.0], " KLF1": [1.0]}, "two vectors of 'KLF1'"),
        ({"ctrl": [1.0]}, "no vector of a perturbation"),
        ([1.0, 2.0], "is of type list"),
        (pd.DataFrame([[1.0], [2.0]], index=["KLF1", "KLF1"]), "holds two vectors of 'KLF1'"),
    ],
)
def test_unusable_vectors_are_named(cells: ad.AnnData, register: Register, vectors: Any, message: str) -> None:
    cells.uns["genes"] = vectors
    with pytest.raises(ValueError, match=message):
        register(cells, **FEATURED)


BRACKETS = ["(+)-JQ1", "atenolol-(+|-)", "CC[N+](C)C", "{+}x", "KLF1+(+)-JQ1", "(+)-JQ1+KLF1", "Fe(2+)", "[K+]+[Na+]"]


@pytest.mark.parametrize("name", BRACKETS)
def test_a_separator_in_brackets_asks_for_another_one_which_helps(
    cells: ad.AnnData, register: Register, name: str
) -> None:
    cells.obs["guide"] = ["ctrl", name, "KLF1"] * 8
    with pytest.raises(
        ValueError, match=r"in cell 'cell1' and 7 other cells: the part .* unbalanced.*`perturbation_sep="
    ) as raised:
        register(cells, **GUIDES)
    (offered,) = re.findall(r"`perturbation_sep='(.*?)'`", str(raised.value))
    manager = register(cells, **GUIDES, perturbation_sep=offered)
    assert list(field_state(manager, "perturbation")["names"]) == sorted([name, "KLF1"])


@pytest.mark.parametrize("names", [["A(1)+B[2]", "A(1)", "B[2]"], ["CCO+c1ccccc1", "CCO", "c1ccccc1"]])
def test_parts_with_balanced_brackets_are_parts(cells: ad.AnnData, register: Register, names: list[str]) -> None:
    cells.obs["guide"] = ["ctrl", *names] * 6
    assert list(field_state(register(cells, **GUIDES), "perturbation")["names"]) == sorted(names[1:])


@pytest.mark.parametrize(
    ("guides", "pieces"),
    [(["Ca2+ ionophore", "KLF1"], "'Ca2', 'ionophore'"), (["CD3+CD28", "CD3+IL2", "CD3+IL2+KLF1", "KLF1"], "'CD28'")],
)
def test_parts_that_may_be_pieces_of_a_name_are_warned_of(
    cells: ad.AnnData, register: Register, guides: list[str], pieces: str
) -> None:
    cells.obs["guide"] = np.resize(["ctrl", *guides], 24)
    with pytest.warns(
        UserWarning, match=rf"`perturbation_key='guide'`: parts that .* alone: {pieces} \(in .*`perturbation_sep='&'`"
    ):
        register(cells, **GUIDES)


@pytest.mark.parametrize(
    "guides",
    [["A+B", "A", "B"], ["A+B", "A"], ["A+B", "A+C", "B+C"], ["A+B+C"], ["A+ctrl"], ["A+B", "A+C", "B+D", "C+D"]],
)
def test_combinations_of_a_design_are_not_warned_of(cells: ad.AnnData, register: Register, guides: list[str]) -> None:
    cells.obs["guide"] = np.resize(["ctrl", *guides], 24)
    register(cells, **GUIDES)  # a warning of ours is an error


def test_pieces_in_columns_of_their_own_are_not_warned_of(cells: ad.AnnData, register: Register) -> None:
    cells.obs["one"], cells.obs["two"] = ["A", "ctrl"] * 12, ["B", "ctrl"] * 12
    register(cells, perturbation_key=["one", "two"], control="ctrl")


@pytest.mark.parametrize("missing", ["nan", "None", "NaN", "<NA>", "null"])
def test_a_missing_value_as_text_is_no_perturbation_but_may_be_a_control(
    cells: ad.AnnData, register: Register, missing: str
) -> None:
    cells.obs["guide"] = ["ctrl", "KLF1", missing, f"KLF1+{missing}"] * 6
    with pytest.raises(
        ValueError, match=rf"'guide'`: '{missing}' is a missing value.*`control=\['ctrl', '{missing}'\]`"
    ):
        register(cells, **GUIDES)
    assert not cells.obsm
    register(cells, perturbation_key="guide", control=["ctrl", missing])
    assert (cells.obsm["_scvi_perturbation"][:, 0].reshape(6, 4) == [-2, 0, -2, 0]).all()


def test_errors_that_the_separator_may_cause_name_it(cells: ad.AnnData, register: Register) -> None:
    cells.obs["guide"] = ["ctrl", "IL-2+ x", "IL-2", "x", "ctrl", "IL-2"] * 4
    cells.obs["dose"] = ["0", "1", "1", "1", "0", "1"] * 4
    with pytest.raises(ValueError, match="1 dose for 2 perturbations.*`perturbation_sep='&'`"):
        register(cells, **DOSED)
    cells.uns["genes"] = {"IL-2": [1.0]}
    with pytest.raises(ValueError, match="no vector of 'x'.*`perturbation_sep='&'`"):
        register(cells, **FEATURED)
    cells.uns["genes"] = {"IL-2+ x": [1.0]}
    with pytest.raises(ValueError, match="vectors of combinations.*`perturbation_sep='&'`"):
        register(cells, **FEATURED)
    manager = register(cells, **GUIDES)
    query = cells[:2].copy()
    query.obs["guide"] = ["IL-2", "Ca2+ y"]
    with pytest.raises(ValueError, match=r"2 unseen perturbations \('Ca2', 'y'\).*`perturbation_sep='&'`"):
        register(query, source=manager, **GUIDES)
    for asked in ("IL-2+ y", "(+)-JQ1", "x+", "x+x"):
        with pytest.raises(ValueError, match="Condition 'guide', row 0: .*`perturbation_sep='&'`"):
            encode_conditions(manager, pd.DataFrame({"guide": [asked]}))
    with pytest.raises(ValueError, match="'y' was not registered") as raised:
        encode_conditions(manager, pd.DataFrame({"guide": ["y"]}))
    assert "perturbation_sep" not in str(raised.value)


def test_pieces_are_looked_for_in_new_cells_too(cells: ad.AnnData, register: Register) -> None:
    manager = register(cells, **GUIDES)
    query = cells[:3].copy()
    query.obs["guide"] = ["ctrl", "Ca2+ ionophore", "KLF1"]
    with pytest.warns(UserWarning, match=r"neither occurs alone: 'Ca2', 'ionophore' \(in 'Ca2\+ionophore'\)"):
        register(query, source=manager, extend=True, **GUIDES)
    query.obs["guide"] = ["ctrl", "nan", "KLF1"]
    with pytest.raises(ValueError, match="'nan' is a missing value"):
        register(query, source=manager, extend=True, **GUIDES)
