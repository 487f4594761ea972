"""Which parts of treatments are of the same kind, against SciPy's connected components and a search by hand."""

from collections.abc import Callable

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KNeighborsClassifier

from scdiffgen.data import Manager, condition_specs, field_state
from scdiffgen.data._perturbations import components_of_names

Register = Callable[..., Manager]
SLOTS = {"perturbation_key": ["gene", "drug_1", "drug_2"], "control": "ctrl"}


@pytest.fixture
def treated(cells: ad.AnnData) -> ad.AnnData:
    """Knock-outs in a column, drugs in two: drugB is in both."""
    cells.obs["gene"] = ["KLF1", "ctrl", "FOXO1", "ctrl"] * 6
    cells.obs["drug_1"] = ["drugA", "drugB", None, None] * 6
    cells.obs["drug_2"] = ["drugB", None, "drugC", "ctrl"] * 6
    return cells


def components(manager: Manager) -> dict[str, int]:
    (spec,) = [spec for spec in condition_specs(manager) if spec.kind == "set"]
    state = field_state(manager, "perturbation")
    assert state is not None
    return dict(zip(state["names"], spec.components, strict=True)) if spec.components else {}


def test_a_name_without_a_column_is_of_the_kind_of_its_nearest_neighbour() -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 3))
    names, known = [f"p{i}" for i in range(40)], {f"p{i}": i % 3 for i in range(0, 40, 2)}
    nearest = KNeighborsClassifier(1).fit(vectors[::2], list(known.values()))
    found = components_of_names(names, known, vectors)
    np.testing.assert_array_equal(found[::2], list(known.values()))
    np.testing.assert_array_equal(found[1::2], nearest.predict(vectors[1::2]))


def test_columns_tell_kinds_apart(treated: ad.AnnData, register: Register) -> None:
    assert components(register(treated, **SLOTS)) == {"FOXO1": 0, "KLF1": 0, "drugA": 1, "drugB": 1, "drugC": 1}


def test_parts_of_one_kind_have_no_components(treated: ad.AnnData, register: Register) -> None:
    assert components(register(treated, **{**SLOTS, "perturbation_key": ["drug_1", "drug_2"]})) == {}
    assert components(register(treated, perturbation_key="gene", control="ctrl")) == {}


def test_new_names_are_of_the_kind_of_their_column(treated: ad.AnnData, register: Register) -> None:
    manager = register(treated, **SLOTS)
    query = treated[:4].copy()
    query.obs["gene"] = ["ctrl", "AAA", "KLF1", "KLF1"]
    query.obs["drug_1"] = ["ctrl", "drugA", "drugD", "KLF1_inhibitor"]
    query.obs["drug_2"] = None
    extended = register(query, source=manager, extend=True, **SLOTS)
    assert components(extended) == {**components(manager), "AAA": 0, "KLF1_inhibitor": 1, "drugD": 1}


def test_names_with_a_vector_only_are_of_the_nearest_kind(treated: ad.AnnData, register: Register) -> None:
    treated.uns["features"] = pd.DataFrame(
        {"KLF1": [0.0, 1.0], "FOXO1": [0.0, 1.1], "drugA": [1.0, 0.0], "drugB": [1.2, 0.0], "drugC": [1.4, 0.0]}
        | {"drugZ": [9.0, 0.0], "SPI1": [0.0, 9.0]}
    ).T
    found = components(register(treated, **SLOTS, perturbation_features_key="features"))
    assert (found["SPI1"], found["drugZ"]) == (0, 1)
