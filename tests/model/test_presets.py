"""The size of the network that is chosen where none is named: by the number of cells, and not by the machine."""

from typing import Any

import numpy as np
import pytest
import torch
from anndata import AnnData
from mudata import MuData
from scipy import sparse

from scdiffgen.model import NetworkOptions, TokenDiffusion


def cells(n_cells: int) -> AnnData:
    adata = AnnData(sparse.csr_matrix(np.ones((n_cells, 3), dtype=np.float32)))
    TokenDiffusion.setup_anndata(adata)
    return adata


@pytest.mark.parametrize("has_gpu", [False, True])
@pytest.mark.parametrize(
    ("n_cells", "n_tokens", "n_layers", "name"), [(24_999, 8, 2, "small"), (25_000, 16, 3, "medium")]
)
def test_the_default_follows_the_number_of_cells(
    n_cells: int, n_tokens: int, n_layers: int, name: str, has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    model = TokenDiffusion(cells(n_cells))
    assert (model.module.size.n_tokens, model.module.size.n_layers) == (n_tokens, n_layers)
    assert f"{n_tokens} tokens of 64, {n_layers} layers (the default {name!r} for these cells)" in repr(model)


def test_a_named_preset_is_taken_and_a_registry_has_the_number_of_cells() -> None:
    model = TokenDiffusion(cells(25_000), preset="small")
    assert model.module.size.n_tokens == 8 and "for these cells" not in repr(model)
    assert TokenDiffusion(registry=model.registry).module.size.n_tokens == 16


def test_several_modalities_stay_small_and_perturbations_do_not() -> None:
    adata = cells(25_000)
    adata.obs["drug"] = np.where(np.arange(25_000) % 2, "control", "a")
    TokenDiffusion.setup_anndata(adata, perturbation_key="drug")
    assert TokenDiffusion(adata).module.size.n_tokens == 16
    mdata = MuData({"rna": cells(25_000), "protein": cells(25_000)})
    TokenDiffusion.setup_mudata(mdata)
    assert TokenDiffusion(mdata).module.size.n_tokens == 8


def readout_of(cells: AnnData | MuData, **arguments: Any) -> tuple[int, float | None]:
    """Units of the read-out, and the weight of its penalty of orthogonality."""
    size = TokenDiffusion(cells, **arguments).module.size
    return size.readout_units, size.options.orthogonality


def test_units_and_penalty_of_the_readout_are_there_where_they_were_measured() -> None:
    labelled = cells(300)
    assert readout_of(labelled) == (8, 0.3)
    assert readout_of(labelled, process="gaussian") == (0, None)
    assert readout_of(labelled, network=NetworkOptions(readout_units=3)) == (3, 0.3)
    without = NetworkOptions(orthogonality=0.0)
    assert readout_of(labelled, network=without) == (8, 0.0)
    mdata = MuData({"rna": cells(300), "protein": cells(300)})
    TokenDiffusion.setup_mudata(mdata)
    assert readout_of(mdata) == (0, None)
    labelled.obs["drug"] = np.where(np.arange(300) % 2, "control", "a")
    TokenDiffusion.setup_anndata(labelled, perturbation_key="drug")
    assert readout_of(labelled) == (8, 0.3)


def test_a_readout_with_units_is_trained_for_fewer_steps() -> None:
    """A minibatch of 270 training cells is the whole of them, so an epoch is a step."""
    lengths = []
    for n_units in (8, 0):
        model = TokenDiffusion(cells(300), network=NetworkOptions(readout_units=n_units))
        plan = {"drawn_share": 0}
        model.train(batch_size=270, max_steps=1, enable_progress_bar=False, plan_kwargs=plan)
        lengths.append(model.trainer.max_epochs)
    assert lengths == [500, 1000]
