"""Same seed, same result, whatever was called before: every public method after every other one, to the last bit.

In each chain all methods are called once on one freshly loaded model: whatever a call leaves behind shows in a later
one. One chain is the other backwards, so that each method is called after each other one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import scvi
import torch
from anndata import AnnData
from carryover import digest
from mudata import MuData
from mudata_cells import paired
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen.model import NetworkOptions, TokenDiffusion

FAST = {"n_steps": 2, "seed": 0, "silent": True}
TREATMENT = {"guide": "B", "dose": 1.0}
Call = Callable[[TokenDiffusion, Path], Any]

# What each public method is asked, and what is compared. A test asks that none is left out.
CALLS: dict[str, Call] = {
    "generate": lambda model, _: model.generate({"cell_type": "b", **TREATMENT}, 6, **FAST),
    "deepen": lambda model, _: model.deepen(indices=range(6), **FAST),
    "predict_perturbation": lambda model, _: model.predict_perturbation(None, TREATMENT, indices=range(6), **FAST),
    "transfer_batch": lambda model, _: model.transfer_batch(None, "y", indices=range(4), **FAST),
    "get_nll_bound": lambda model, _: model.get_nll_bound(indices=range(10), n_draws=2, seed=0, silent=True),
    "get_normalized_expression": lambda model, _: model.get_normalized_expression(indices=range(40), silent=True),
    "get_latent_representation": lambda model, _: model.get_latent_representation(indices=range(40), silent=True),
    "posterior_predictive_sample": lambda model, _: sequenced_again(model),
    "get_token_activation": lambda model, _: model.get_token_activation(indices=range(40), silent=True),
    "get_token_loadings": lambda model, _: model.get_token_loadings(),
    "get_token_adata": lambda model, _: model.get_token_adata(n_neighbors=None, silent=True),
    "get_var_names": lambda model, _: model.get_var_names(),
    "hold_tokens": lambda model, _: model.hold_tokens(["token_1"]),
    "truncate_tokens": lambda model, _: model.truncate_tokens(1),
    "write_back": lambda model, _: written(model),
    "save": lambda model, folder: saved(model, folder),
}
OF_ONE_MODALITY: dict[str, Call] = {
    "draw_conditions": lambda model, _: model.draw_conditions({"cell_type": "b", **TREATMENT}, 6),
    "interpolate": lambda model, _: model.interpolate(None, {"cell_type": "b"}, [0.3], 4, **FAST),
    "generate_to": lambda model, folder: model.generate_to(
        folder / "cells.h5ad", {"cell_type": "b", **TREATMENT}, 6, chunk_size=4, **FAST
    ),
    "get_mean_response": lambda model, _: model.get_mean_response({"cell_type": "b", **TREATMENT}),
    "get_response_weights": lambda model, _: model.get_response_weights({"cell_type": "b", **TREATMENT}),
    "dose_response": lambda model, _: model.dose_response(None, "B", [1.0], indices=range(4), n_bootstrap=2, **FAST),
    "differential_expression": lambda model, _: model.differential_expression(
        groupby="cell_type", n_samples_overall=20, silent=True
    ),
    "get_token_contributions": lambda model, _: model.get_token_contributions(indices=range(4), silent=True),
    "evaluate_held_out": lambda model, _: evaluated_held_out(model),
    "load_query_data": lambda model, _: TokenDiffusion.load_query_data(model.adata.copy(), model, accelerator="cpu"),
}
OF_SEVERAL: dict[str, Call] = {
    "generate_modality": lambda model, _: model.generate_modality(None, "rna", indices=range(6), **FAST),
}
# these make or change a model, or register cells, and no trained model is asked
NOT_ASKED = {
    "add_perturbation_features",
    "cells_sha256_",
    "load",
    "load_registry",
    "prepare_query_anndata",
    "saved_with_",
    "setup_anndata",
    "setup_mudata",
    "train",
    "view_setup_args",
}
DRAWING = {"load_query_data"}  # weights of a new model, before they are replaced
NOT_ASKED |= {"training_summary_", "absent_genes_"}  # arrays and names, no methods
NOT_ASKED |= {"save_for_hub"}  # writes what `save` writes, and `evaluate_held_out` beside it


def sequenced_again(model: TokenDiffusion) -> list[np.ndarray]:
    """Dense, of all modalities."""
    found = model.posterior_predictive_sample(indices=range(4), n_steps=2, seed=0)
    return [part.todense() for part in (found.values() if isinstance(found, dict) else [found])]


def evaluated_held_out(model: TokenDiffusion) -> Any:
    """Without forests, which take long: their scores are missing."""
    with patch("scdiffgen.metrics._comparison.HEADLINES", ["mmd", "novelty"]):
        programs = {"one": ["gene0", "gene1"], "other": ["gene2"]}
        return model.evaluate_held_out(programs=programs, n_steps=2, max_cells=40, silent=True)


def written(model: TokenDiffusion) -> AnnData | MuData:
    """Into a copy of some cells: those of the model are its user's."""
    cells = model.adata[:40].copy()
    model.write_back(cells, **FAST)
    return cells


def saved(model: TokenDiffusion, folder: Path) -> list[np.ndarray]:
    """Weights on disk."""
    model.save(folder / "saved", overwrite=True)
    state = torch.load(folder / "saved/model.pt", weights_only=False)["model_state_dict"]
    return [weight.numpy() for weight in state.values() if torch.is_tensor(weight)]


def labelled(obs: pd.DataFrame) -> pd.DataFrame:
    """Types, batches and treatments; of type b, a few cells only were given B, so that others tell how it responds."""
    n_cells = len(obs)
    obs["cell_type"] = np.resize(["a", "b", "a"], n_cells)
    obs["batch"] = np.resize(["x"] * 3 + ["y"] * 3, n_cells)
    obs["guide"] = np.resize(["ctrl"] * 6 + ["B"] * 6, n_cells)
    of_both = np.flatnonzero((obs["cell_type"] == "b") & (obs["guide"] == "B"))
    obs.iloc[of_both[4:], obs.columns.get_loc("guide")] = "A"
    obs["dose"] = (obs["guide"] != "ctrl").astype(float)
    return obs


SETUP = {"labels_key": "cell_type", "batch_key": "batch", "perturbation_key": "guide", "dose_key": "dose"}


@dataclass
class Asked:
    """A model on disk, the methods that it is asked, and what each returns on its own."""

    cells: AnnData | MuData
    calls: Mapping[str, Call]
    folder: Path

    def fresh(self) -> TokenDiffusion:
        return TokenDiffusion.load(self.folder / "model", self.cells.copy(), accelerator="cpu")

    def result(self, name: str, model: TokenDiffusion) -> str:
        return digest(self.calls[name](model, self.folder))

    @cached_property
    def alone(self) -> dict[str, str]:
        return {name: self.result(name, self.fresh()) for name in self.calls}

    def culprits(self, name: str, before: list[str]) -> list[str]:
        """Those of earlier calls after which alone the result of a method is another."""
        found = []
        for other in before:
            model = self.fresh()
            self.result(other, model)
            found += [other] * (self.result(name, model) != self.alone[name])
        return found


def make(cells: AnnData | MuData, calls: Mapping[str, Call], folder: Path) -> Asked:
    setup = TokenDiffusion.setup_mudata if isinstance(cells, MuData) else TokenDiffusion.setup_anndata
    setup(cells, **SETUP, control="ctrl")
    scvi.settings.seed = 0
    model = TokenDiffusion(cells, **SMALL, network=NetworkOptions(nested_tokens=True))
    model.train(max_epochs=2, batch_size=32, train_size=0.8, **QUIET)
    model.save(folder / "model")
    return Asked(cells, calls, folder)


@pytest.fixture(scope="session")
def treated(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    cells = simulated_cells(180, n_genes=12)
    cells.obs = labelled(cells.obs)
    return make(cells, CALLS | OF_ONE_MODALITY, tmp_path_factory.mktemp("treated"))


@pytest.fixture(scope="session")
def joint(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    cells = paired(180)
    cells.obs = labelled(cells.obs)
    return make(cells, CALLS | OF_SEVERAL, tmp_path_factory.mktemp("joint"))


def both_ways(names: Mapping[str, Call]) -> list[list[str]]:
    """All names in their order, and backwards: each comes after each other one."""
    return [[*names], [*names][::-1]]


def check(asked: Asked, order: list[str]) -> None:
    alone, model = asked.alone, asked.fresh()
    for place, name in enumerate(order):
        state = repr((torch.get_rng_state().tolist(), np.random.get_state()))
        if asked.result(name, model) != alone[name]:
            culprits = asked.culprits(name, order[:place]) or f"the whole chain {order[:place]}"
            pytest.fail(f"`{name}` gives something else after {culprits} than on its own, at the same seed.")
        same = state == repr((torch.get_rng_state().tolist(), np.random.get_state()))
        assert same or name in DRAWING, f"`{name}` draws from the global sources of randomness"


def test_every_public_method_is_asked() -> None:
    of_ours = [base for base in TokenDiffusion.__mro__ if base.__module__.startswith("scdiffgen")]
    public = {name for base in of_ours for name in vars(base) if not name.startswith("_")}
    assert public - NOT_ASKED == {*CALLS, *OF_ONE_MODALITY, *OF_SEVERAL}


@pytest.mark.parametrize("order", both_ways(CALLS | OF_ONE_MODALITY), ids=lambda order: f"{order[0]} first")
def test_of_one_modality(order: list[str], treated: Asked) -> None:
    check(treated, order)


@pytest.mark.parametrize("order", both_ways(CALLS | OF_SEVERAL), ids=lambda order: f"{order[0]} first")
def test_of_several_modalities(order: list[str], joint: Asked) -> None:
    check(joint, order)
