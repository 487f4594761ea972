"""The comparison of processes: every contender under both budgets, at the same evaluations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks import processes
from benchmarks._data import LABEL, split
from benchmarks.processes import NETWORKS, PROCESSES, Settings, measure, steps_of
from scipy import sparse

from scdiffgen.model import TokenDiffusion

SMALL = {"n_tokens": 2, "token_dim": 8, "n_layers": 1}


def cells() -> AnnData:
    labels = np.repeat(["a", "b"], 60)
    rates = np.where(labels[:, None] == "a", np.arange(12), np.arange(12)[::-1])
    counts = sparse.csr_matrix(np.random.default_rng(0).poisson(rates + 1), dtype=np.float32)
    return AnnData(counts, obs=pd.DataFrame({LABEL: pd.Categorical(labels)}, index=[f"cell{i}" for i in range(120)]))


def test_every_contender_is_measured_under_both_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    contenders = {name: {**PROCESSES[name], **SMALL} for name in ("thinning", "gaussian, flow matching", "latent")}
    trained = []
    fit = processes.fit

    def timed(split, options, max_epochs):
        model, _ = fit(split, options, max_epochs)
        trained.append((model.module.process, model.trainer.max_epochs))
        return model, {"thinning": 4.0, "gaussian": 2.0, "latent": 1.0}[model.module.process]

    monkeypatch.setattr(processes, "fit", timed)
    records = list(
        measure(split(cells(), "synthetic", seed=0), contenders, Settings(steps=(4,), max_epochs=2, n_trees=5))
    )
    assert trained == [("thinning", 2), ("gaussian", 2), ("gaussian", 4), ("latent", 2), ("latent", 8)]
    rows = [record for kind, record in records if kind == "rows"]
    assert [(row["method"], row["budget"]) for row in rows] == [(n, b) for n in contenders for b in ("steps", "time")]
    assert all(np.isfinite(list(row["scores"].values())).all() for row in rows)
    assert {record["method"] for kind, record in records if kind == "likelihood"} == {"thinning"}


def test_heuns_two_evaluations_a_step_are_counted() -> None:
    adata = cells()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    made = {name: TokenDiffusion(adata, **PROCESSES[name], **SMALL) for name in ("thinning", "gaussian, flow matching")}
    assert steps_of(made["thinning"], [8, 16]) == [8, 16]
    assert steps_of(made["gaussian, flow matching"], [8, 16]) == [4, 8]


@pytest.mark.parametrize("options", [*PROCESSES.values(), *NETWORKS.values()], ids=str)
def test_every_contender_is_a_model(options: dict) -> None:
    adata = cells()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    assert TokenDiffusion(adata, **{**SMALL, **options}).module is not None
