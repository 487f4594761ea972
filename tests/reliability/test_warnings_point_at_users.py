"""A warning of any public call names the line that the user wrote, and no file of the package."""

import warnings
from collections.abc import Callable, Iterator

import anndata
import numpy as np
import pytest
from anndata import AnnData
from scipy import sparse
from small_cells import simulated_cells, trained_model

from scdiffgen import metrics
from scdiffgen.model import TokenDiffusion


def cells(n_cells: int = 60, **obs: object) -> AnnData:
    adata = simulated_cells(n_cells)
    adata.obs = adata.obs.assign(**obs)
    return adata


@pytest.fixture(scope="module")
def model() -> Iterator[TokenDiffusion]:
    """A trained model with a group of 12 cells."""
    with warnings.catch_warnings(action="ignore"):
        adata = cells(cell_type=np.repeat(["a", "b", "c"], [24, 24, 12]))
        model = trained_model(adata, labels_key="cell_type")
    return model


def stored_by_columns(folder: str) -> AnnData:
    adata = simulated_cells(40)
    adata.X = sparse.csc_matrix(adata.X)
    adata.write_h5ad(f"{folder}/cells.h5ad")
    return anndata.read_h5ad(f"{folder}/cells.h5ad", backed="r")


def by_columns(model: TokenDiffusion, folder: str) -> None:
    TokenDiffusion.setup_anndata(stored_by_columns(folder))


def singleton(model: TokenDiffusion, folder: str) -> None:
    labels = np.repeat(["a", "b"], [59, 1])
    TokenDiffusion.setup_anndata(cells(cell_type=labels), labels_key="cell_type")


def no_control(model: TokenDiffusion, folder: str) -> None:
    TokenDiffusion.setup_anndata(cells(drug=np.repeat(["a", "b"], 30)), perturbation_key="drug")


def loaded(model: TokenDiffusion, folder: str) -> None:
    model.save(f"{folder}/model")
    TokenDiffusion.load(f"{folder}/model", stored_by_columns(folder))  # scvi-tools lies between


def in_groups(model: TokenDiffusion, folder: str) -> None:
    model.generate({"cell_type": "c"}, n_cells=2, n_steps=2)


def loadings(model: TokenDiffusion, folder: str) -> None:
    model.get_token_loadings(groupby="cell_type")


def evaluated(model: TokenDiffusion, folder: str) -> None:
    parts = [cells(cell_type=np.repeat(["a", "b"], [57, 3])) for _ in range(3)]
    metrics.evaluate(*parts, groupby="cell_type", metrics=["mmd"])


def copied(model: TokenDiffusion, folder: str) -> None:
    train, held_out = simulated_cells(60), simulated_cells(60, seed=1)
    metrics.evaluate(held_out, train.copy(), train, metrics=["novelty"])


def one_metric(model: TokenDiffusion, folder: str) -> None:
    metrics.mmd(np.zeros((1, 2)), np.zeros((5, 2)))


CALLS = {
    by_columns: "stored by columns",
    singleton: "single cell",
    no_control: "control",
    loaded: "stored by columns",
    in_groups: "fewer than 20",
    loadings: "mostly noise",
    evaluated: "NaN because of too few cells",
    copied: "closer to training cells",
    one_metric: "needs",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_warning_names_the_users_file(
    model: TokenDiffusion, call: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = str(tmp_path_factory.mktemp("cells"))
    with warnings.catch_warnings(record=True, action="always") as caught:
        call(model, folder)
    ours = [w for w in caught if CALLS[call] in str(w.message)]
    assert ours, [str(w.message) for w in caught]
    assert {w.filename for w in ours} == {__file__}
