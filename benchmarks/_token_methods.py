"""Read-outs to compare, and other methods whose factors are read as gene programs."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import scanpy as sc
import scvi
from anndata import AnnData
from sklearn.decomposition import NMF, PCA

from benchmarks._data import LABEL, Split
from scdiffgen.model import NetworkOptions, TokenDiffusion

VARIANTS: Mapping[str, dict[str, Any]] = {
    "default": {},  # 8 tokens, read-out width 8, 8 hidden units each, orthogonality 0.3
    "no units": {"network": NetworkOptions(readout_units=0)},
    **{f"read-out width {width}": {"network": NetworkOptions(readout_dim=width)} for width in (1, 4, 16, 32)},
    **{f"{n_tokens} tokens": {"n_tokens": n_tokens} for n_tokens in (16, 32, 64)},
    **{f"orthogonality {weight:g}": {"network": NetworkOptions(orthogonality=weight)} for weight in (0, 1, 3)},
}


def fit_variant(split: Split, variant: str, max_epochs: int | None) -> TokenDiffusion:
    """Train with one departure from the defaults."""
    adata = split.train.copy()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model = TokenDiffusion(adata, preset="small", **VARIANTS[variant])
    model.train(max_epochs=max_epochs, enable_progress_bar=False)
    return model


def pca_loadings(split: Split, seed: int, n_programs: int, max_epochs: int | None) -> pd.DataFrame:
    """Principal components of log-normalised expression."""
    fit = PCA(n_programs, svd_solver="randomized", random_state=seed).fit(_log_normalised(split.train))
    return _table(fit.components_, split)


def nmf_loadings(split: Split, seed: int, n_programs: int, max_epochs: int | None) -> pd.DataFrame:
    """Non-negative factors of log-normalised expression; the seed is that of the start."""
    fit = NMF(n_programs, init="random", random_state=seed, max_iter=500).fit(_log_normalised(split.train))
    return _table(fit.components_, split)


def ldvae_loadings(split: Split, seed: int, n_programs: int, max_epochs: int | None) -> pd.DataFrame:
    """Weights of scVI's linear decoder; scvi-tools holds the seed."""
    adata = split.train.copy()
    scvi.model.LinearSCVI.setup_anndata(adata)
    model = scvi.model.LinearSCVI(adata, n_latent=n_programs)
    model.train(max_epochs=max_epochs, enable_progress_bar=False)
    return _table(model.get_loadings().to_numpy().T, split)


def drvi_loadings(split: Split, seed: int, n_programs: int, max_epochs: int | None) -> pd.DataFrame:
    """Effects of DRVI's splits on the genes; scvi-tools 1.5 has the model and holds the seed."""
    adata = split.train.copy()
    scvi.external.DRVI.setup_anndata(adata)
    model = scvi.external.DRVI(adata, n_latent=n_programs)
    model.train(max_epochs=max_epochs, enable_progress_bar=False)
    embedded = AnnData(model.get_latent_representation(), obs=adata.obs)
    model.set_latent_dimension_stats(embedded)
    model.calculate_interpretability_scores(embedded)
    effects = model.get_interpretability_scores(embedded, adata, hide_vanished=False)
    return effects.set_axis([f"program_{i + 1}" for i in range(effects.shape[1])], axis=1)


BASELINES: Mapping[str, Callable[[Split, int, int, int | None], pd.DataFrame]] = {
    "PCA": pca_loadings,
    "NMF": nmf_loadings,
    "LDVAE": ldvae_loadings,
    "DRVI": drvi_loadings,
}


def available_baselines() -> list[str]:
    """Other methods that can be run: DRVI where the installed scvi-tools has it."""
    return [name for name in BASELINES if name != "DRVI" or hasattr(scvi.external, "DRVI")]


def _log_normalised(adata: AnnData) -> np.ndarray:
    normalised = adata.copy()
    sc.pp.normalize_total(normalised, target_sum=1e4)
    sc.pp.log1p(normalised)
    return normalised.X.toarray()


def _table(components: np.ndarray, split: Split) -> pd.DataFrame:
    """Loadings ``(genes, programs)`` of components ``(programs, genes)``."""
    names = [f"program_{i + 1}" for i in range(len(components))]
    return pd.DataFrame(np.asarray(components).T, index=split.train.var_names, columns=names)
