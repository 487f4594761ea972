"""Perturbations added by their feature vectors, against registering them in the first place."""

from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from scdiffgen.conditions import request_table
from scdiffgen.data import Manager, add_perturbations, condition_specs, encode_conditions, field_state

Register = Callable[..., Manager]
VECTORS = {"KLF1": [1.0, 0.0], "BAK1": [0.0, 1.0]}
FEATURED: dict[str, Any] = {
    "perturbation_key": "guide",
    "control": "ctrl",
    "dose_key": "dose",
    "perturbation_features_key": "genes",
}


@pytest.fixture
def manager(cells: ad.AnnData, register: Register) -> Manager:
    cells.uns["genes"] = VECTORS
    return register(cells, **FEATURED)


@pytest.mark.parametrize("as_frame", [False, True])
def test_as_if_registered_from_start(cells: ad.AnnData, manager: Manager, register: Register, as_frame: bool) -> None:
    new = {"ZEB1": [3.0, 4.0], "AAA": [5, 6]}
    given = pd.DataFrame(new, index=["a", "b"]).T if as_frame else new
    added = field_state(add_perturbations(manager.registry, given), "perturbation")
    cells.uns["genes"] = {**VECTORS, **new}
    registered = field_state(register(cells.copy(), **FEATURED), "perturbation")
    assert added is not None and registered is not None
    assert list(added["names"]) == ["BAK1", "KLF1", "ZEB1", "AAA"]  # ids of the known ones stay
    order = [list(added["names"]).index(name) for name in registered["names"]]
    for key in ("names", "features", "dose_min", "dose_max", "components"):
        np.testing.assert_array_equal(np.asarray(added[key])[order], registered[key])
        assert np.asarray(added[key]).dtype == np.asarray(registered[key]).dtype
    unchanged = field_state(manager, "perturbation")
    assert unchanged is not None
    assert list(unchanged["names"]) == ["BAK1", "KLF1"]


def test_it_can_be_requested_afterwards(manager: Manager) -> None:
    requested = request_table({"guide": "ZEB1+KLF1", "dose": "2+1"})
    with pytest.raises(ValueError, match="'ZEB1' was not registered"):
        encode_conditions(manager, requested)
    registry = add_perturbations(manager.registry, {"ZEB1": [3.0, 4.0]})
    parts = encode_conditions(registry, requested)["guide"]
    assert (parts.ids.tolist(), parts.values.tolist()) == ([[1, 2]], [[1.0, 2.0]])
    assert condition_specs(registry)[0].n_categories == 3


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({"KLF1": [1.0, 2.0]}, "`vectors`: 'KLF1' are already registered"),
        ({"ZEB1": [1.0, 2.0, 3.0]}, "`vectors`: vectors have length 3; pass vectors of length 2"),
        ({"ZEB1": [1.0, np.nan]}, "`vectors`: the vector of 'ZEB1' holds nan"),
        ({"ZEB1+KLF1": [1.0, 2.0]}, "`vectors` holds vectors of combinations"),
        ({"ctrl": [1.0, 2.0]}, "`vectors` holds no vector of a perturbation"),
        ([1.0, 2.0], "pass a mapping from names"),
    ],
)
def test_vectors_that_cannot_be_added_are_named(manager: Manager, vectors: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        add_perturbations(manager.registry, vectors)


def test_without_registered_features_the_way_out_is_named(cells: ad.AnnData, register: Register) -> None:
    for arguments in ({"labels_key": "cell_type"}, {"perturbation_key": "guide", "control": "ctrl"}):
        with pytest.raises(ValueError, match="pass `perturbation_key` and `perturbation_features_key`"):
            add_perturbations(register(cells.copy(), **arguments).registry, {"ZEB1": [1.0, 2.0]})
