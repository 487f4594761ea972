"""Cells are in memory as long as a model or the user has them."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mudata_cells import paired
from small_cells import QUIET, SMALL, simulated_cells, small_model, trained_model

from scdiffgen.model import TokenDiffusion


def read(model: TokenDiffusion, cells: Any) -> None:
    model.get_latent_representation(cells, silent=True)


USES: dict[str, Callable[[TokenDiffusion, Any], Any]] = {
    "nothing": lambda model, cells: None,
    "training": lambda model, cells: model.train(1, **QUIET),
    "reading a copy": lambda model, cells: read(model, cells.copy()),
    "reading a view": lambda model, cells: read(model, cells[:20]),
    "generating": lambda model, cells: model.generate(n_cells=2, n_steps=2, silent=True),
    "a query": lambda model, cells: TokenDiffusion.load_query_data(cells.copy(), model),
}


@pytest.mark.parametrize("use", USES)
def test_cells_are_freed_with_their_model(use: str) -> None:
    cells = simulated_cells(40)
    model = small_model(cells) if use in ("nothing", "training") else trained_model(cells, labels_key="cell_type")
    freed = [weakref.ref(cells), weakref.ref(model)]
    USES[use](model, cells)
    del model, cells
    gc.collect()
    assert [reference() for reference in freed] == [None, None]


def test_cells_that_a_model_has_read_are_freed() -> None:
    model, others = trained_model(simulated_cells(40), labels_key="cell_type"), simulated_cells(20, seed=1)
    read(model, others)
    freed = weakref.ref(others)
    del others
    gc.collect()
    assert freed() is None
    assert model.adata.n_obs == 40 and model.get_latent_representation(silent=True).shape == (40, 16)


def test_cells_of_several_modalities_are_freed_with_their_model() -> None:
    cells = paired(40)
    TokenDiffusion.setup_mudata(cells)
    model, freed = TokenDiffusion(cells, **SMALL), weakref.ref(cells)
    del model, cells
    gc.collect()
    assert freed() is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_keeps_its_own_cells(how: Callable[[Any], Any]) -> None:
    model = trained_model(simulated_cells(40), labels_key="cell_type")
    expected = model.get_latent_representation(silent=True)
    copied = how(model)
    assert copied.adata is not model.adata
    del model
    gc.collect()
    assert copied.adata_manager.adata is copied.adata
    np.testing.assert_array_equal(copied.get_latent_representation(silent=True), expected)
    copied.train(1, **QUIET)
