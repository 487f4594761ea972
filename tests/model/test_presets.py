"""The size of the network that is chosen where none is named: by the number of cells, and not by the machine."""

from __future__ import annotations

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


def test_effects_and_several_modalities_stay_small() -> None:
    adata = AnnData(sparse.csr_matrix(np.ones((25_000, 3), dtype=np.float32)))
    adata.obs["drug"] = np.where(np.arange(25_000) % 2, "control", "a")
    TokenDiffusion.setup_anndata(adata, perturbation_key="drug")
    assert TokenDiffusion(adata).module.size.n_tokens == 8
    as_labels = TokenDiffusion(adata, network=NetworkOptions(intervention="embedding"))
    assert as_labels.module.size.n_tokens == 16
    mdata = MuData({"rna": cells(25_000), "protein": cells(25_000)})
    TokenDiffusion.setup_mudata(mdata)
    assert TokenDiffusion(mdata).module.size.n_tokens == 8


def test_what_was_chosen_is_stored() -> None:
    """So a file is read alike with other cells."""
    assert TokenDiffusion(cells(25_000)).init_params_["non_kwargs"]["preset"] == "medium"
