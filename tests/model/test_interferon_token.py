"""On blood cells with and without interferon-beta, one token is the interferon response, and holding it weakens it."""

from pathlib import Path

import numpy as np
import pytest
import scanpy as sc
import scvi
from anndata import AnnData

import scdiffgen
from scdiffgen import tl
from scdiffgen.model import TokenDiffusion

KANG = Path("../shared/data/kang2018_pbmc_ifnb.h5ad")
RESPONSE = ["ISG15", "IFI6", "IFIT1", "IFIT2", "IFIT3", "MX1"]

pytestmark = pytest.mark.skipif(not KANG.exists(), reason=f"needs {KANG}")


@pytest.fixture(scope="module")
def trained() -> tuple[AnnData, TokenDiffusion]:
    adata = sc.read_h5ad(KANG)
    adata = adata[adata.obs["cell_type"] != "Erythrocytes"][::4].copy()
    mean = np.asarray(adata.X.mean(0)).ravel()
    spread = np.asarray(adata.X.power(2).mean(0)).ravel() - mean**2
    adata = adata[:, np.argsort(-spread / np.maximum(mean, 0.02))[:500]].copy()
    adata = adata[np.asarray(adata.X.sum(1)).ravel() > 0].copy()
    scdiffgen.model.setup_anndata(adata, labels_key="cell_type", categorical_covariate_keys=["condition"])
    scvi.settings.seed = 0
    model = TokenDiffusion(adata, n_tokens=6, token_dim=32, n_layers=1)
    model.train(max_epochs=10, accelerator="cpu", enable_progress_bar=False)
    model.write_back(adata, keys=["token_loadings", "X_token_activation"])
    return adata, model


@pytest.fixture(scope="module")
def token(trained: tuple[AnnData, TokenDiffusion]) -> str:
    """The token whose activation splits the conditions best."""
    table = tl.token_associations(trained[0], "condition")
    return table[table["statistic"] == "eta_squared"].nlargest(1, "value")["token"].item()


def test_one_token_is_the_interferon_response(trained: tuple, token: str) -> None:
    adata, model = trained
    loadings = model.get_token_loadings()[token]
    ranks = (loadings * np.sign(loadings["ISG15"])).rank(ascending=False)[RESPONSE]
    assert (ranks <= 20).all(), ranks  # of 500 genes
    auc = tl.token_associations(adata, "condition").query("level == 'stim' and token == @token")["value"].item()
    assert max(auc, 1 - auc) > 0.97


def test_its_gene_sets_are_those_of_defence_against_viruses(trained: tuple, token: str) -> None:
    pytest.importorskip("decoupler", reason="needs the extra `enrichment`")
    model = trained[1]
    sets = tl.enrich_tokens(model.get_token_loadings()[[token]], "GO_BP")
    sign = np.sign(model.get_token_loadings().loc["ISG15", token])
    best = sets[np.sign(sets["score"]) == sign].nsmallest(5, "fdr")
    assert (best["fdr"] < 1e-4).all()
    assert best["gene_set"].str.contains("Interferon|Vir|Symbiont").all(), best


def test_without_it_stimulated_monocytes_are_closer_to_controls(trained: tuple, token: str) -> None:
    adata, model = trained
    level = model.get_token_activation()[token][adata.obs["condition"] == "ctrl"].mean()
    monocytes = adata[adata.obs["cell_type"] == "CD14+ Monocytes"].copy()
    changed = tl.ablate_token(model, token, monocytes, "condition", level=level, n_steps=16)
    table = np.log2(changed.set_index(["group", "gene"])[["mean", "mean_without"]] + 0.1)
    control, stimulated = (table.loc[name].loc[RESPONSE] for name in ("ctrl", "stim"))
    response = (stimulated["mean"] - control["mean"]).mean()
    without = (stimulated["mean_without"] - control["mean"]).mean()
    assert response > 3 and without < 0.85 * response
