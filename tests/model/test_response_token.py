"""On simulated cells with a known response, one token is that response, and holding it weakens it.

What `test_interferon_token.py` asks on blood cells, on data that every clone has, against the true effects.
"""

import numpy as np
import pytest
import scvi
from anndata import AnnData
from scipy import stats

from scdiffgen import tl
from scdiffgen.datasets import simulate
from scdiffgen.model import TokenDiffusion

N_TOKENS, SURE = 6, 1e-6  # a chance result is less likely than this


@pytest.fixture(scope="module")
def trained() -> tuple[AnnData, TokenDiffusion]:
    """Three types, with and without a saturating dose; the treatment is a covariate, so that tokens have to hold it."""
    adata = simulate(n_cells=1200, n_genes=150, n_types=3, n_batches=1, doses=[10.0], seed=0)
    adata = adata[adata.obs["perturbation"].isin(["control", "A"])].copy()
    adata.obs["condition"] = adata.obs["perturbation"].astype(str)
    TokenDiffusion.setup_anndata(
        adata, layer="counts", labels_key="cell_type", categorical_covariate_keys=["condition"]
    )
    scvi.settings.seed = 0
    model = TokenDiffusion(adata, n_tokens=N_TOKENS, token_dim=32, n_layers=1)
    model.train(max_epochs=10, batch_size=64, accelerator="cpu", enable_progress_bar=False)
    model.write_back(adata, keys=["token_loadings", "X_token_activation"])
    return adata, model


@pytest.fixture(scope="module")
def token(trained: tuple[AnnData, TokenDiffusion]) -> str:
    """The token that contributes most to the difference of the conditions; others may know of it and do little."""
    parts, treated = trained[1].get_token_contributions(), (trained[0].obs["condition"] == "A").to_numpy()
    tokens = {name: parts.layers[name] for name in trained[1].get_token_loadings()}
    changes = {name: layer[treated].mean(0) - layer[~treated].mean(0) for name, layer in tokens.items()}
    return max(changes, key=lambda name: np.linalg.norm(changes[name]))


def true_effect(adata: AnnData) -> np.ndarray:
    return adata.varm["perturbation_effect"]["A"].to_numpy()


def test_its_loadings_are_the_true_effect_and_no_other(trained: tuple, token: str) -> None:
    """Of loadings in any order, the correlation is normal with variance ``1 / (genes - 1)``; any token may be it."""
    adata, model = trained
    loadings = model.get_token_loadings(method="readout")[token]
    by_chance = stats.norm.isf(SURE / (2 * N_TOKENS)) / np.sqrt(adata.n_vars - 1)
    found = abs(np.corrcoef(loadings, true_effect(adata))[0, 1])
    others = np.column_stack([adata.varm["cell_type_effect"], adata.var["time_effect"]])
    of_others = np.abs(np.corrcoef(loadings, others, rowvar=False)[0, 1:])
    assert found > by_chance and found > of_others.max() + 2 / np.sqrt(adata.n_vars - 1)


def test_it_tells_treated_cells_from_controls(trained: tuple, token: str) -> None:
    """Of a token that does not know, the AUC has the standard deviation of Mann and Whitney's statistic."""
    adata = trained[0]
    n_treated = (adata.obs["condition"] == "A").sum()
    n_control = adata.n_obs - n_treated
    spread = np.sqrt((adata.n_obs + 1) / (12 * n_treated * n_control))
    auc = tl.token_associations(adata, "condition").query("level == 'A' and token == @token")["value"].item()
    assert max(auc, 1 - auc) > 0.5 + stats.norm.isf(SURE / (2 * N_TOKENS)) * spread
    assert max(auc, 1 - auc) > 0.9


def test_without_it_treated_cells_are_closer_to_controls(trained: tuple, token: str) -> None:
    """Log-expression along the true effect, of generated cells; differences in standard errors of their means."""
    adata, model = trained
    level = model.get_token_activation()[token][adata.obs["condition"] == "control"].mean()
    held, direction = model.hold_tokens({token: level}), true_effect(adata)

    def along_the_effect(model: TokenDiffusion, condition: str) -> np.ndarray:
        made = model.generate({"condition": condition}, n_cells=300, n_steps=16, seed=0, silent=True).X.toarray()
        return np.log1p(1e3 * made / made.sum(1, keepdims=True)) @ direction / np.square(direction).sum()

    control, treated = (along_the_effect(model, condition) for condition in ("control", "A"))
    without = along_the_effect(held, "A")
    response, left = treated.mean() - control.mean(), without.mean() - control.mean()
    error = np.sqrt(treated.var() + without.var()) / np.sqrt(len(treated))
    assert response - left > stats.norm.isf(SURE) * error
    assert left < 0.85 * response  # six tokens share it
