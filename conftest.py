"""What every test and every example in a docstring needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

os.environ["TQDM_DISABLE"] = "1"  # no progress bars in what examples print; tqdm reads it when it is imported

import hypothesis
import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

if TYPE_CHECKING:
    from anndata import AnnData
    from mudata import MuData

    from scdiffgen.model import TokenDiffusion

hypothesis.settings.register_profile("untimed", deadline=None)  # no test depends on time
hypothesis.settings.load_profile("untimed")
matplotlib.use("Agg")  # figures open no window
torch.set_num_threads(1)  # test processes share the cores


@pytest.fixture(scope="session")
def example() -> tuple[AnnData, TokenDiffusion]:
    """The cells and the tiny model that stand in the examples of the model's methods as ``adata`` and ``model``."""
    import scdiffgen

    adata = scdiffgen.datasets.pbmc68k()
    scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    model = scdiffgen.model.TokenDiffusion(adata, n_tokens=4, token_dim=16, n_layers=1)
    model.train(max_epochs=1, accelerator="cpu", enable_progress_bar=False)
    return adata, model


@pytest.fixture(scope="session")
def joint_example() -> tuple[MuData, TokenDiffusion]:
    """The same of two modalities: ``mdata`` and ``joint_model``."""
    import scdiffgen

    mdata = scdiffgen.datasets.simulate_cite(n_cells=100)
    scdiffgen.model.setup_mudata(mdata, labels_key="cell_type")
    model = scdiffgen.model.TokenDiffusion(mdata, n_tokens=4, token_dim=16, n_layers=1)
    model.train(max_epochs=1, accelerator="cpu", enable_progress_bar=False)
    return mdata, model


@pytest.fixture(scope="session")
def screen_example() -> tuple[AnnData, TokenDiffusion]:
    """The same of treated cells in batches: ``screen`` and ``screen_model``."""
    import scdiffgen

    screen = scdiffgen.datasets.simulate(n_cells=100)
    keys = {"batch_key": "batch", "perturbation_key": "perturbation", "dose_key": "dose"}
    scdiffgen.model.setup_anndata(screen, layer="counts", **keys)
    model = scdiffgen.model.TokenDiffusion(screen, n_tokens=4, token_dim=16, n_layers=1)
    model.train(max_epochs=1, accelerator="cpu", enable_progress_bar=False)
    return screen, model


@pytest.fixture(autouse=True, scope="session")
def _quick_match() -> None:
    """Of few cells, training takes longest for the cells that it draws to match genes: tests draw fewer."""
    from quick_match import draw_few_cells

    draw_few_cells()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Numba, by which UMAP and decoupler compute, gives PyTorch as many threads as itself; they wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_figure_stays_open() -> Iterator[None]:
    """What a test or an example draws is closed after it."""
    yield
    plt.close("all")


@pytest.fixture(autouse=True)
def _example_names(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """In the examples of `tl` and `pl`, the cells of ``adata`` have stored tokens."""
    package = request.node.name.split(".")[1] if isinstance(request.node, pytest.DoctestItem) else ""
    if package in ("model", "tl", "pl"):
        adata, model = request.getfixturevalue("example")
        if package != "model":
            adata = adata.copy()
            model.write_back(adata, keys=["token_loadings", "X_token_activation"])
        doctest_namespace["adata"], doctest_namespace["model"] = adata, model
        if "generate_modality" in request.node.name or "_mudata" in request.node.name:
            doctest_namespace["mdata"], doctest_namespace["joint_model"] = request.getfixturevalue("joint_example")
        if any(name in request.node.name for name in ("transfer_batch", "dose_response", "get_response_weights")):
            doctest_namespace["screen"], doctest_namespace["screen_model"] = request.getfixturevalue("screen_example")
