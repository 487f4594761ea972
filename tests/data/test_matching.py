"""Training cells that match a request, against plain sets of the conditions of each cell."""

from collections.abc import Callable

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from scdiffgen.data import Manager, condition_specs, count_matching, encode_conditions, registered_conditions

TRAINED = pd.DataFrame(
    {
        "type": ["T", "T", "T", "B", "B", "NK"],
        "guide": ["ctrl", "A", "A+B", "ctrl", "B", "C"],
        "tissue": ["blood", "blood", "lung", "lung", "blood", "blood"],
        "state": ["naive", None, "naive", "memory", "memory", "naive"],
        "age": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    }
)
N_TRAINED = 5  # the NK cell with C is held out


@pytest.fixture
def trained() -> ad.AnnData:
    """Cells, which their manager does not keep."""
    obs = TRAINED.iloc[[*range(6)] * 2].set_axis([f"cell{i}" for i in range(12)])
    return ad.AnnData(np.ones((12, 2), dtype=np.float32), obs=obs)


@pytest.fixture
def manager(register: Callable[..., Manager], trained: ad.AnnData) -> Manager:
    return register(
        trained,
        labels_key="type",
        perturbation_key="guide",
        control="ctrl",
        hierarchy_keys=["tissue", "state"],
        continuous_covariate_keys=["age"],
    )


def fits(requested: dict[str, object], trained: dict[str, object]) -> bool:
    """Everything that is given agrees, for a set regardless of its order."""

    def canonical(entry: object) -> object:
        return frozenset(str(entry).split("+"))

    given = {name: entry for name, entry in requested.items() if not pd.isna(entry) and name != "age"}
    return all(canonical(entry) == canonical(trained[name]) for name, entry in given.items())


def test_combinations_agree_with_a_search_through_the_cells(manager: Manager) -> None:
    requested = pd.DataFrame(
        [
            (kind, guide, tissue, state, 99.0)
            for kind in ("T", "B", "NK", None)
            for guide in ("ctrl", "A", "B+A", "B", "C", "A+C", None)
            for tissue, state in ((None, None), ("blood", None), ("blood", "naive"), ("lung", "memory"))
        ],
        columns=["type", "guide", "tissue", "state", "age"],
    ).astype(object)
    indices = np.arange(N_TRAINED)
    n_cells = count_matching(
        condition_specs(manager), encode_conditions(manager, requested), registered_conditions(manager, indices)
    )
    training = TRAINED.iloc[:N_TRAINED].to_dict("records")
    expected = [sum(fits(row, cell) for cell in training) for row in requested.to_dict("records")]
    np.testing.assert_array_equal(n_cells, expected)
    assert 0 < sum(n_cells == 0) < len(expected)


def test_more_slots_than_any_training_cell_had(manager: Manager) -> None:
    requested = encode_conditions(manager, pd.DataFrame({"guide": ["A+B+C", "A+B", "A"]}))
    n_cells = count_matching(condition_specs(manager), requested, registered_conditions(manager))
    assert (n_cells == 0).tolist() == [True, False, False]


def test_the_order_of_the_slots_does_not_matter(manager: Manager) -> None:
    requested = encode_conditions(manager, pd.DataFrame({"guide": ["A+B", "A+C"]}))
    guide = requested["guide"]
    turned = type(guide)(guide.ids[:, ::-1], guide.values[:, ::-1], guide.mask[:, ::-1], guide.given)
    requested = requested.replace({"guide": turned})
    n_cells = count_matching(condition_specs(manager), requested, registered_conditions(manager))
    assert (n_cells == 0).tolist() == [False, True]


def test_without_conditions_nothing_is_new(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells, continuous_covariate_keys=["age.years"])
    requested = encode_conditions(manager, pd.DataFrame({"age.years": [1.0, 2.0]}))
    n_cells = count_matching(condition_specs(manager), requested, registered_conditions(manager))
    assert n_cells.tolist() == [24, 24]
