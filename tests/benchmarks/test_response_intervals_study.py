"""The study of intervals, on cell types that respond alike and on one that responds otherwise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE, Fold, Target
from benchmarks.studies.response_intervals import coverage
from scipy import sparse

N_CELLS, N_GENES, TYPES = 150, 80, "abcdef"


def simulated_fold(last: float) -> Fold:
    """Cell types whose responses differ by 10 %; that of the held-out type is ``last`` times theirs."""
    rng, parts, obs = np.random.default_rng(0), [], []
    change, rates = np.where(np.arange(N_GENES) < 20, 1.0, 0.0), rng.gamma(4.0, size=N_GENES)
    for name in TYPES:
        own = rates * rng.lognormal(0, 0.1, N_GENES)
        strength = change * rng.normal(last if name == TYPES[-1] else 1, 0.1, N_GENES)
        for response in (CONTROL, "drug"):
            share = own * np.exp(strength * (response != CONTROL))
            parts.append(rng.poisson(3000 * share / share.sum(), (N_CELLS, N_GENES)))
            obs += [{RESPONSE: response, CONTEXT: name}] * N_CELLS
    frame = pd.DataFrame(obs, index=[f"cell{i}" for i in range(len(obs))])
    adata = AnnData(sparse.csr_matrix(np.vstack(parts), dtype=np.float32), obs=frame)
    out = ((frame[CONTEXT] == TYPES[-1]) & (frame[RESPONSE] == "drug")).to_numpy()
    target = Target("drug", TYPES[-1], {CONTEXT: TYPES[-1], RESPONSE: "drug"})
    setup = {"labels_key": CONTEXT, "perturbation_key": RESPONSE, "control": CONTROL}
    return Fold(TYPES[-1], adata[~out].copy(), adata[out].copy(), [target], setup)


def test_intervals_hold_a_response_like_others_and_not_another() -> None:
    (alike,), (larger,) = (list(coverage(simulated_fold(last))) for last in (1.0, 3.0))
    assert 0.65 < alike["covered"] < 0.95 and alike["covered, largest changes"] > 0.4
    assert larger["covered, largest changes"] == 0 and larger["covered"] < 0.5
    assert alike["expected Pearson"] == pytest.approx(alike["realised Pearson"], abs=0.05)
