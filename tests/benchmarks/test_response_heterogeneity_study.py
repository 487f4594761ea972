"""The study of what a network adds to predicted responses, on cells whose strengths of response are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE, Fold, Target
from benchmarks.studies import response_heterogeneity
from benchmarks.studies.response_heterogeneity import fold_predictions, fold_scores
from scipy import sparse

N_CELLS, N_GENES, TYPES = 150, 60, ("a", "b", "c")


def simulated_fold() -> Fold:
    """Three types that respond alike on average, with strengths of standard deviation 0.3; the last is held out."""
    rng, parts, obs = np.random.default_rng(0), [], []
    change = np.where(np.arange(N_GENES) < 12, 1.0, 0.0)
    for name in TYPES:
        rates = rng.gamma(4.0, size=N_GENES)
        for response in (CONTROL, "drug"):
            strengths = rng.normal(1, 0.3, N_CELLS) * (response != CONTROL)
            share = rates * np.exp(strengths[:, None] * change)
            parts.append(rng.poisson(3000 * share / share.sum(1, keepdims=True)))
            obs += [{RESPONSE: response, CONTEXT: name}] * N_CELLS
    frame = pd.DataFrame(obs, index=[f"cell{i}" for i in range(len(obs))])
    var = pd.DataFrame(index=[f"gene{i}" for i in range(N_GENES)])
    adata = AnnData(sparse.csr_matrix(np.vstack(parts), dtype=np.float32), obs=frame, var=var)
    out = ((frame[CONTEXT] == "c") & (frame[RESPONSE] == "drug")).to_numpy()
    setup = {"labels_key": CONTEXT, "perturbation_key": RESPONSE, "control": CONTROL}
    target = Target("drug", "c", {CONTEXT: "c", RESPONSE: "drug"})
    return Fold("c", adata[~out].copy(), adata[out].copy(), [target], setup)


def test_drawn_strengths_spread_predicted_cells_as_real_ones(few_trees: Callable[..., None]) -> None:
    few_trees(response_heterogeneity)
    fold = simulated_fold()
    predictions = fold_predictions(fold, 0, 0)
    rows = fold_scores(fold, predictions, 0).set_index("prediction")
    spread = rows["response_spread"]
    assert spread["transferred, no network, all alike"] < 0.6 < 0.75 < spread["transferred, no network"] < 1.3
    assert rows["strength"].drop("no_change").dropna().to_numpy() == pytest.approx(1, abs=0.2)
    assert {"no_change", "similar_contexts", "real_half"} <= set(rows.index)
