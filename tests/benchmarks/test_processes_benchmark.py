"""The comparison of processes: every contender under both budgets, at the same evaluations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks import processes, render
from benchmarks._data import LABEL, split
from benchmarks._record import read_result
from benchmarks.processes import DDPM, NETWORKS, PROCESSES, Settings, run
from scipy import sparse

from scdiffgen.model import TokenDiffusion

SMALL = {"n_tokens": 2, "token_dim": 8, "n_layers": 1}


def cells() -> AnnData:
    labels = np.repeat(["a", "b"], 60)
    rates = np.where(labels[:, None] == "a", np.arange(12), np.arange(12)[::-1])
    counts = sparse.csr_matrix(np.random.default_rng(0).poisson(rates + 1), dtype=np.float32)
    return AnnData(counts, obs=pd.DataFrame({LABEL: pd.Categorical(labels)}, index=[f"cell{i}" for i in range(120)]))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Small contenders whose trainings take known times, on synthetic cells; what is trained, and how long."""
    trained = []
    fit = processes.Contest.fit

    def timed(contest, options, max_epochs):
        model, training = fit(contest, {**options, **SMALL}, max_epochs)
        trained.append((model.module.process_name, model.trainer.max_epochs))
        return model, training | {
            "seconds": {"thinning": 4.0, "gaussian": 2.0, "latent": 1.0}[model.module.process_name]
        }

    monkeypatch.setattr(processes.Contest, "fit", timed)
    monkeypatch.setattr(processes, "load_split", lambda name, seed: split(cells(), name, seed))
    monkeypatch.setattr(processes, "ANCESTRAL_EVALUATIONS", 12)
    return trained


SETTINGS = Settings((0,), (4,), 1, max_epochs=2, n_cells=16, n_ancestral=10, n_trees=5)


def chosen(*names: str) -> dict:
    return {name: PROCESSES[name] for name in names}


def test_every_contender_is_measured_under_both_budgets_and_shown(trained: list, tmp_path: Path) -> None:
    result = run("pbmc68k", "processes", chosen("thinning", DDPM, "latent"), SETTINGS, tmp_path)
    assert trained == [("thinning", 2), ("gaussian", 2), ("gaussian", 4), ("latent", 2), ("latent", 8)]
    parts = {(part["method"], part["budget"]): part for part in result["parts"]}
    assert list(parts) == [
        ("other real cells", "both"),
        ("thinning", "both"),
        *((name, budget) for name in (DDPM, "latent") for budget in ("steps", "time")),
    ]
    assert {name for (name, _), part in parts.items() if part["nll"] is not None} == {"thinning"}
    drawn = [(row["evaluations"], row["n_cells"]) for row in parts[DDPM, "time"]["rows"]]
    assert drawn == [(4, 16), (12, 10)]
    assert all(np.isfinite(row["scores"]["mmd_x1000"]) for part in parts.values() for row in part["rows"])
    written = read_result(tmp_path / "processes-pbmc68k.json")["parts"]
    assert [(part["method"], part["budget"]) for part in written] == list(parts)
    page = render.render(tmp_path, tmp_path)["processes.md"].read_text()
    assert "| thinning |" in page and f"| {DDPM} |" in page
    assert (tmp_path / "benchmarks/pages/figures/processes-pbmc68k.png").stat().st_size > 10_000


def test_a_run_goes_on_where_it_stopped_and_settings_are_not_mixed(trained: list, tmp_path: Path) -> None:
    run("pbmc68k", "processes", chosen("thinning", DDPM), replace(SETTINGS, equal_time=False), tmp_path)
    assert trained == [("thinning", 2), ("gaussian", 2)]
    trained.clear()
    result = run("pbmc68k", "processes", chosen("thinning", DDPM, "latent"), SETTINGS, tmp_path)
    assert trained == [("gaussian", 4), ("latent", 2), ("latent", 8)]
    assert len(result["parts"]) == 6
    trained.clear()
    other = run("pbmc68k", "processes", chosen("thinning"), replace(SETTINGS, max_epochs=3), tmp_path)
    assert trained == [("thinning", 3)] and len(other["parts"]) == 2


@pytest.mark.parametrize("options", [*PROCESSES.values(), *NETWORKS.values()], ids=str)
def test_every_contender_is_a_model(options: dict) -> None:
    adata = cells()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    assert TokenDiffusion(adata, **{**SMALL, **options}).module is not None
