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
from benchmarks._physics_data import WELLS, load_wells
from benchmarks._physics_scores import NORMALISATIONS, Matrix

BOTH, PROTOCOL, TARGET = "both protocols", "protocol", "SORT-seq"
INTEGRATION = "tian2019_integration.csv"
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
    """Read the published scores without imputation: a row per integration and normalisation, a column per score."""
    if not (FOLDER / INTEGRATION).exists():
        raise MissingData(f"{INTEGRATION} is not in ../shared/data: put it there.")
    table = pd.read_csv(FOLDER / INTEGRATION).query("imputation == 'no_imputation'")
    return table.pivot_table("value", ["integration", "normalisation"], "metric")


def best_integrations() -> list[dict[str, Any]]:
    """Scores of each published integration with the normalisation of its highest silhouette of mixtures."""
    table = published_integration()[["silhouette_dr", "silhouette_dr_batch"]]
    best = table.loc[table["silhouette_dr"].groupby("integration").idxmax()].reset_index()
    return best.replace({"integration": INTEGRATIONS}).rename(columns={"integration": "method"}).to_dict("records")


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
