"""Cells that a small model learns in no time: multinomials whose shares differ by label."""

from typing import Any

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from mudata import MuData

from scdiffgen.model import NetworkOptions, TokenDiffusion

SMALL: dict[str, Any] = {"n_tokens": 2, "token_dim": 8, "n_layers": 1}
QUIET: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False}


def simulated_shares(n_labels: int = 2, n_genes: int = 20, seed: int = 0) -> np.ndarray:
    """Shares of the genes ``(labels, genes)``."""
    return np.random.default_rng(seed).dirichlet(np.full(n_genes, 2.0), n_labels)


def simulated_cells(n_cells: int = 100, n_genes: int = 20, seed: int = 0, n_labels: int = 2) -> AnnData:
    """Cells of types ``a``, ``b`` and on, in batches ``x`` and ``y``, of different ages; dense float32 counts."""
    random, shares = np.random.default_rng(seed + 1), simulated_shares(n_labels, n_genes)
    label, batch = random.integers(0, n_labels, n_cells), random.integers(0, 2, n_cells)
    library = random.lognormal(4.5 + 0.5 * batch, 0.3).round() + 10
    counts = np.stack([random.multinomial(int(n), shares[k]) for n, k in zip(library, label, strict=True)])
    obs = pd.DataFrame(
        {
            "cell_type": np.array([*"abcdef"])[label],
            "batch": np.array(["x", "y"])[batch],
            "age": random.normal(40, 10, n_cells).round(),
        },
        index=[f"cell{i}" for i in range(n_cells)],
    )
    return AnnData(counts.astype(np.float32), obs=obs, var=pd.DataFrame(index=[f"gene{i}" for i in range(n_genes)]))


def small_model(adata: AnnData | None = None, **setup: str | list[str]) -> TokenDiffusion:
    """A model of some cells, registered by their type unless said otherwise; not trained yet."""
    adata = simulated_cells() if adata is None else adata
    TokenDiffusion.setup_anndata(adata, **(setup or {"labels_key": "cell_type"}))
    return TokenDiffusion(adata, **SMALL)


def trained_model(
    cells: AnnData | MuData,
    n_epochs: int = 1,
    batch_size: int = 32,
    *,
    network: NetworkOptions | None = None,
    process: Any = "thinning",
    plan_kwargs: dict[str, Any] | None = None,
    **setup: Any,
) -> TokenDiffusion:
    """A small model trained with seed 0 on cells, registered without conditions unless said otherwise."""
    register = TokenDiffusion.setup_mudata if isinstance(cells, MuData) else TokenDiffusion.setup_anndata
    register(cells, **setup)
    scvi.settings.seed = 0
    model = TokenDiffusion(cells, **SMALL, network=network, process=process)
    model.train(max_epochs=n_epochs, batch_size=batch_size, plan_kwargs=plan_kwargs, **QUIET)
    return model
