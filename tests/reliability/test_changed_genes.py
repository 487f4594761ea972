"""Own cells whose genes are changed in place: methods that read cells refuse, the others are unaffected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
from anndata import AnnData
from mudata_cells import paired
from small_cells import QUIET, SMALL, trained_model
from treated_cells import SETUP, treated_cells

from scdiffgen.model import TokenDiffusion

FAST = {"n_steps": 2, "silent": True}


def filtered(adata: AnnData) -> None:
    sc.pp.filter_genes(adata, min_counts=int(np.sort(np.asarray(adata.X.sum(0)).ravel())[3]))


def reordered(adata: AnnData) -> None:
    adata._inplace_subset_var(adata.var_names[::-1])


def renamed(adata: AnnData) -> None:
    adata.var_names = [f"ENSG{i}" for i in range(adata.n_vars)]


CHANGES: dict[str, tuple[Callable[[AnnData], None], str]] = {
    "filtered": (filtered, "3 genes missing"),
    "reordered": (reordered, "another order"),
    "renamed": (renamed, r"12 genes missing \('gene0', .*, 12 genes not registered \('ENSG0', "),
}
READING: dict[str, Callable[[TokenDiffusion, Path], Any]] = {
    "train": lambda model, _: model.train(max_epochs=1, **QUIET),
    "save_anndata": lambda model, folder: model.save(folder / "saved", save_anndata=True),
    "latents": lambda model, _: model.get_latent_representation(silent=True),
    "likelihood": lambda model, _: model.get_nll_bound(n_draws=1, silent=True),
    "expression": lambda model, _: model.get_normalized_expression(silent=True),
    "deepen": lambda model, _: model.deepen(**FAST),
    "write_back": lambda model, _: model.write_back(**FAST),
    "activation": lambda model, _: model.get_token_activation(silent=True),
    "gradient": lambda model, _: model.get_token_loadings(method="gradient"),
    "token_adata": lambda model, _: model.get_token_adata(silent=True),
    "counterfactual": lambda model, _: model.predict_perturbation(None, {"guide": "A", "dose": 0.5}, **FAST),
    "evaluate_held_out": lambda model, _: model.evaluate_held_out(n_steps=2, silent=True),
    "differences": lambda model, _: model.differential_expression(groupby="cell_type", silent=True),
    "own cells as argument": lambda model, _: model.get_latent_representation(model.adata, silent=True),
}


@pytest.fixture(params=list(CHANGES))
def changed(request: pytest.FixtureRequest, tiny: TokenDiffusion, tmp_path: Path) -> tuple[TokenDiffusion, str]:
    """A trained model whose own cells were changed, and what the error says of the change."""
    change, said = CHANGES[request.param]
    tiny.save(tmp_path / "model")
    adata = treated_cells()
    model = TokenDiffusion.load(tmp_path / "model", adata, accelerator="cpu")
    change(adata)
    return model, said


@pytest.mark.parametrize("method", list(READING))
def test_methods_that_read_cells_name_changes(method: str, changed: tuple[TokenDiffusion, str], tmp_path: Path) -> None:
    model, said = changed
    with pytest.raises(ValueError, match=rf"`adata.var_names` changed after .*: {said}.*`adata.copy\(\)`"):
        READING[method](model, tmp_path)
    assert not (tmp_path / "saved").exists()
    assert not set(model.adata.obsm) & {"X_generated", "X_tokens"}


def test_methods_without_cells_keep_the_registered_genes(
    changed: tuple[TokenDiffusion, str], tiny: TokenDiffusion, tmp_path: Path
) -> None:
    """Counts, names and loadings are those of the model with its cells as they were."""
    model, _ = changed
    table = {"cell_type": "a", "guide": "A", "dose": 0.5}
    for generated in (
        lambda m, name: m.generate(table, 4, **FAST),
        lambda m, name: ad.read_h5ad(m.generate_to(tmp_path / f"{name}.h5ad", table, 4, **FAST)),
    ):
        one, other = generated(model, "changed"), generated(tiny, "whole")
        np.testing.assert_array_equal(one.X.toarray(), other.X.toarray())
        assert one.var_names.tolist() == other.var_names.tolist() == [f"gene{i}" for i in range(12)]
    assert model.get_token_loadings().equals(tiny.get_token_loadings())
    model.save(tmp_path / "saved")
    again = TokenDiffusion.load(tmp_path / "saved", treated_cells(), accelerator="cpu")
    np.testing.assert_array_equal(
        again.get_latent_representation(silent=True), tiny.get_latent_representation(silent=True)
    )


@pytest.mark.parametrize("change", list(CHANGES))
def test_genes_changed_before_training_are_named(change: str) -> None:
    spoil, said = CHANGES[change]
    before, after = treated_cells(), treated_cells()
    for adata in (before, after):
        TokenDiffusion.setup_anndata(adata, **SETUP)
    model = TokenDiffusion(after, **SMALL)
    spoil(before)
    spoil(after)
    with pytest.raises(ValueError, match=f"{said}.*register the cells again with `setup_anndata`"):
        TokenDiffusion(before, **SMALL)
    with pytest.raises(ValueError, match=said):
        model.train(max_epochs=1, **QUIET)
    TokenDiffusion.setup_anndata(before, **SETUP)  # the way out
    assert TokenDiffusion(before, **SMALL).get_var_names().tolist() == before.var_names.tolist()


def test_other_cells_changed_after_they_were_read_are_named(tiny: TokenDiffusion, cells: AnnData) -> None:
    tiny.get_latent_representation(cells, silent=True)
    reordered(cells)
    with pytest.raises(ValueError, match="changed after .*another order"):
        tiny.get_latent_representation(cells, silent=True)


def test_of_a_modality() -> None:
    mdata = paired(40)
    model = trained_model(mdata)
    names = {name: part.tolist() for name, part in model.get_var_names().items()}
    first = next(iter(names))
    reordered(mdata[first])
    with pytest.raises(ValueError, match=rf"`adata\['{first}'\].var_names` changed after .*: another order"):
        model.get_latent_representation(silent=True)
    made = model.generate(n_cells=2, **FAST)
    assert {name: part.var_names.tolist() for name, part in made.mod.items()} == names
