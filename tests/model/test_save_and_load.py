"""A saved model is the model: bit by bit, with or without cells, and it can be trained on."""

from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from mudata_cells import paired
from small_cells import QUIET, SMALL, simulated_cells, small_model

from scdiffgen.model import TokenDiffusion


@pytest.fixture
def saved(small: TokenDiffusion, tmp_path: Path) -> Path:
    small.save(tmp_path / "model")
    return tmp_path / "model"


def load(path: Path, adata: AnnData | bool | None) -> TokenDiffusion:
    return TokenDiffusion.load(path, adata=adata, accelerator="cpu")


def everything(model: TokenDiffusion, cells: AnnData) -> list[np.ndarray]:
    """All that a model can say of itself and of some cells."""
    table = pd.DataFrame({"cell_type": ["a", "b"], "age": [20.0, 60.0], "n_cells": [6, 7]})
    options = {"seed": 3, "n_steps": 4, "silent": True}
    return [
        model.generate(table, **options).X.toarray(),
        model.generate(table, **options, guidance_scale=2.0).X.toarray(),
        model.deepen(cells, 2.0, **options).X.toarray(),
        model.get_nll_bound(cells, seed=3, silent=True).to_numpy(),
        model.get_normalized_expression(cells, return_numpy=True, silent=True),
        model.get_latent_representation(cells, silent=True),
        model.get_token_activation(cells, silent=True).to_numpy(),
        model.get_token_loadings().to_numpy(),
    ]


def assert_same(one: TokenDiffusion, other: TokenDiffusion) -> None:
    cells = simulated_cells(15, seed=9)
    for expected, found in zip(everything(one, cells), everything(other, cells.copy()), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_model_is_as_large_where_there_are_fewer_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size that is chosen by the number of cells is stored."""
    cells = simulated_cells(30)
    TokenDiffusion.setup_anndata(cells)
    with monkeypatch.context() as larger:
        larger.setattr("scdiffgen.model._token_diffusion.MANY_CELLS", 30)
        model = TokenDiffusion(cells, n_layers=1)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model", adata=False).module.size == model.module.size
    assert model.module.size.n_tokens > TokenDiffusion(cells).module.size.n_tokens


def test_a_hub_model_generates_without_cells(small: TokenDiffusion, saved: Path, tmp_path: Path) -> None:
    url = (saved / "model.pt").as_uri()
    model = TokenDiffusion.load(tmp_path / "fetched", False, accelerator="cpu", backup_url=url)
    assert model.adata is None
    assert_same(small, model)


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.get_latent_representation(),
        lambda model: model.get_nll_bound(),
        lambda model: model.get_normalized_expression(),
        lambda model: model.get_token_activation(),
        lambda model: model.get_token_contributions(),
        lambda model: model.deepen(None, 2.0),
        lambda model: model.predict_perturbation(None, {"cell_type": "b"}),
        lambda model: model.transfer_batch(None, "x"),
        lambda model: model.write_back(None),
    ],
)
def test_what_needs_cells_says_that_there_are_none(ask, saved: Path) -> None:
    with pytest.raises(ValueError, match="The model has no cells: pass `adata`"):
        ask(load(saved, adata=False))


def test_an_evaluation_needs_the_training_cells_beside_others(saved: Path) -> None:
    with pytest.raises(ValueError, match=r"no cells, and `evaluate_held_out` needs its training cells, also beside"):
        load(saved, adata=False).evaluate_held_out(simulated_cells(20))


def test_a_model_without_cells_is_not_trained_on(saved: Path) -> None:
    with pytest.raises(ValueError, match="The model has no cells: create or load it .*`adata`.*`datamodule`"):
        load(saved, adata=False).train(max_epochs=1, **QUIET)


def test_nothing_lies_beside_scvi_tools_own_file(small: TokenDiffusion, saved: Path, tmp_path: Path) -> None:
    assert [path.name for path in saved.iterdir()] == ["model.pt"]
    with_cells = load(saved, simulated_cells(120))  # AnnData turns strings of the cells that it writes into categories
    with_cells.save(tmp_path / "with_cells", save_anndata=True)
    assert sorted(path.name for path in (tmp_path / "with_cells").iterdir()) == ["adata.h5ad", "model.pt"]
    assert_same(small, load(tmp_path / "with_cells", adata=None))


def test_what_was_learned_about_the_training_is_kept(small: TokenDiffusion, saved: Path) -> None:
    model = load(saved, simulated_cells(120))
    assert model.is_trained_ and not model.module.training
    np.testing.assert_array_equal(model.train_indices, small.train_indices)
    for name, values in small.history.items():
        np.testing.assert_array_equal(model.history[name].to_numpy(float), values.to_numpy(float))


def test_a_loaded_model_saves_and_trains_on(saved: Path, tmp_path: Path) -> None:
    model = load(saved, simulated_cells(120))
    n_epochs = len(model.history["train_loss"])
    model.train(max_epochs=2, batch_size=32, **QUIET)
    assert len(model.history["train_loss"]) == n_epochs + 2
    model.save(tmp_path / "again")
    assert_same(model, load(tmp_path / "again", simulated_cells(120)))


NOT_ITS_CELLS = r"`adata`: .*was not saved with the model\.pt beside it.*Pass `adata`, or `adata=False`"


def with_cells(n_cells: int, seed: int) -> TokenDiffusion:
    return small_model(simulated_cells(n_cells, seed=seed))


def test_a_model_is_not_loaded_with_the_cells_of_the_one_that_it_replaces(tmp_path: Path) -> None:
    with_cells(30, seed=1).save(tmp_path, overwrite=True, save_anndata=True)
    assert load(tmp_path, None).adata.n_obs == 30
    with_cells(40, seed=2).save(tmp_path, overwrite=True)
    with pytest.raises(ValueError, match=NOT_ITS_CELLS):
        load(tmp_path, None)
    assert load(tmp_path, False).adata is None
    assert load(tmp_path, simulated_cells(40, seed=2)).adata.n_obs == 40
    with_cells(50, seed=3).save(tmp_path, overwrite=True, save_anndata=True)
    assert load(tmp_path, None).adata.n_obs == 50


def test_after_a_kill_between_the_two_files_the_new_ones_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_cells(30, seed=1).save(tmp_path, overwrite=True, save_anndata=True)
    replace = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if self.name == "model.pt":
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", killed)
        with_cells(40, seed=2).save(tmp_path, overwrite=True, save_anndata=True)
    assert load(tmp_path, None).adata.n_obs == 40
    assert {path.name for path in tmp_path.iterdir()} == {"model.pt", "adata.h5ad"}


def test_one_changed_count_in_the_saved_cells_is_noticed(tmp_path: Path) -> None:
    with_cells(30, seed=1).save(tmp_path, overwrite=True, save_anndata=True, prefix="my_")
    with h5py.File(tmp_path / "my_adata.h5ad", "r+") as file:
        file["X"][3, 4] += 1
    with pytest.raises(ValueError, match=NOT_ITS_CELLS.replace("model", "my_model")):
        TokenDiffusion.load(tmp_path, prefix="my_", accelerator="cpu")


def test_damage_to_the_cells_of_a_mudata_is_noticed(tmp_path: Path) -> None:
    mdata = paired(20)
    TokenDiffusion.setup_mudata(mdata)
    TokenDiffusion(mdata, **SMALL).save(tmp_path, overwrite=True, save_anndata=True)
    assert load(tmp_path, None).adata.n_obs == 20
    content = bytearray((tmp_path / "mdata.h5mu").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "mdata.h5mu").write_bytes(content)
    with pytest.raises(ValueError, match=NOT_ITS_CELLS):
        load(tmp_path, None)


def test_options_of_the_file_of_the_cells_reach_anndata(tmp_path: Path) -> None:
    with_cells(30, seed=1).save(tmp_path, overwrite=True, save_anndata=True, compression="gzip")
    with h5py.File(tmp_path / "adata.h5ad") as file:
        assert file["X"].compression == "gzip"


def test_a_model_without_cells_saves_none(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`save_anndata` is True, but the model has no cells"):
        load(saved, False).save(tmp_path / "new", save_anndata=True)
    assert not (tmp_path / "new").exists()
