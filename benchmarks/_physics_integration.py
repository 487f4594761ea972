"""Wells of both protocols together, scored before and after their integration as published by Tian et al. (2019)."""

from collections.abc import Iterator
from typing import Any

import anndata
import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score

from benchmarks._data import FOLDER, MissingData
from benchmarks._physics_data import IMPUTATIONS, WELLS, load_wells
from benchmarks._physics_scores import NORMALISATIONS, Matrix

BOTH, PROTOCOL, TARGET = "both protocols", "protocol", "SORT-seq"
INTEGRATION, NO_IMPUTATION = "tian2019_integration.csv", "no_imputation"
INTEGRATIONS = {  # clearer than published names
    **{"no_int": "no integration", "MNNs": "MNN", "scanorama": "Scanorama", "zinbwave": "ZINB-WaVE"},
    **{
        "scMerge_us": "scMerge",
        "scMerge_s": "scMerge, given the mixtures",
        "mixOmics_mint": "MINT, given the mixtures",
    },
}


def load_protocols() -> AnnData:
    """Load the wells of both protocols with the genes that the published choice keeps in each."""
    return anndata.concat({name: load_wells(name) for name in WELLS}, label=PROTOCOL, merge="same")


def published_integration() -> pd.DataFrame:
    """Read the published scores: a row per imputation, integration and normalisation, a column per score."""
    if not (FOLDER / INTEGRATION).exists():
        raise MissingData(f"{INTEGRATION} is not in ../shared/data: put it there.")
    index = ["imputation", "integration", "normalisation"]
    return pd.read_csv(FOLDER / INTEGRATION).pivot_table("value", index, "metric")


def best_integrations() -> list[dict[str, Any]]:
    """Scores of each published integration, without imputation and with the best one, at the highest silhouette."""
    table, rows = published_integration()[["silhouette_dr", "silhouette_dr_batch"]], []
    is_imputed = table.index.get_level_values("imputation") != NO_IMPUTATION
    for part, after in ((table[~is_imputed], ""), (table[is_imputed], " after ")):
        best = part.loc[part["silhouette_dr"].groupby("integration").idxmax()].reset_index()
        imputation = best["imputation"].replace({**IMPUTATIONS, NO_IMPUTATION: ""})
        best["method"] = best["integration"].replace(INTEGRATIONS) + after + imputation
        rows += best.drop(columns=["imputation", "integration"]).to_dict("records")
    return rows


def normalised(counts: Matrix, protocols: NDArray[np.str_]) -> Iterator[tuple[str, Matrix]]:
    """Normalise the wells of each protocol by themselves, as published."""
    for name, normalise in NORMALISATIONS.items():
        values = np.empty_like(counts)
        for protocol in np.unique(protocols):
            values[protocols == protocol] = normalise(counts[protocols == protocol])
        yield name, values


def integration_scores(scores: Matrix, wells: pd.DataFrame) -> dict[str, float]:
    """Silhouettes of the mixtures and of the protocols on two principal components of an embedding of wells."""
    scores = PCA(2, svd_solver="full").fit_transform(scores) if scores.shape[1] > 2 else scores
    names = {"silhouette_dr": "mix", "silhouette_dr_batch": PROTOCOL}
    return {key: float(silhouette_score(scores, wells[column])) for key, column in names.items()}
