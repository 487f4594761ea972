"""Strengths of responses: those of simulated cells are recovered, drawn as SciPy's gamma variables, and leave means."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from benchmarks.studies.responses import untrained_model
from scipy import sparse, stats

from scdiffgen._log_normalise import log_normalise
from scdiffgen.model import TokenDiffusion
from scdiffgen.responses._pseudobulks import Pseudobulks
from scdiffgen.responses._strengths import drawn_strengths, nodes

N_CELLS, N_GENES, LIBRARY = 300, 60, 3000
SETUP = {"labels_key": "type", "perturbation_key": "drug", "control": "none"}
QUIET = {"silent": True, "seed": 0}


def model_of(spread: float, size: float = 1.0, n_treated: int = N_CELLS) -> TokenDiffusion:
    """Types a and b were measured with a drug, c was not; strengths are gamma distributed, genes vary by themselves."""
    rng, parts, obs = np.random.default_rng(0), [], []
    rise = size * np.where(np.arange(N_GENES) < 10, 0.12, 0.0)
    fall = size * np.where(np.arange(N_GENES) // 5 == 2, 0.25, 0.0)
    base = rng.gamma(1.0, size=(3, N_GENES)) + 0.1
    for name, shares in zip("abc", base / base.sum(1, keepdims=True), strict=True):
        for drug, n_cells in (("none", N_CELLS), ("x", n_treated)):
            strengths = rng.gamma(1 / spread**2, spread**2, n_cells) if spread else np.ones(n_cells)
            strengths = strengths[:, None] * (drug == "x")
            root = rng.dirichlet(200 * shares, n_cells) ** 0.25
            share = (root * np.maximum(1 - strengths * fall, 0.1) + strengths * rise) ** 4
            parts.append(rng.poisson(LIBRARY * share / share.sum(1, keepdims=True)))
            obs += [{"type": name, "drug": drug}] * n_cells
    frame = pd.DataFrame(obs, index=[f"cell{i}" for i in range(len(obs))])
    adata = AnnData(sparse.csr_matrix(np.vstack(parts), dtype=np.float32), obs=frame)
    return untrained_model(adata[(adata.obs["type"] != "c") | (adata.obs["drug"] == "none")].copy(), SETUP)


def bulks_of(model: TokenDiffusion) -> dict[str, np.ndarray]:
    return model.training_summary_["pseudobulks"]


def learned(model: TokenDiffusion) -> float:
    """Standard deviation for the drug; untreated cells have none."""
    bulks = bulks_of(model)
    treated = (bulks["interventions"] >= 0).any(1)
    assert not bulks["strength_variance"][~treated].any() and np.ptp(bulks["strength_variance"][treated]) == 0
    return float(np.sqrt(bulks["strength_variance"][treated][0]))


def predicted(model: TokenDiffusion, **options) -> np.ndarray:
    rows = np.flatnonzero(model.adata.obs["type"] == "c")
    return model.predict_perturbation(None, {"drug": "x"}, **({"indices": rows} | options | QUIET)).X


@pytest.fixture(scope="module")
def varied() -> TokenDiffusion:
    return model_of(0.3)


@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_strengths_of_simulated_cells_are_recovered(spread: float) -> None:
    assert learned(model_of(spread)) == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize(
    ("spread", "size", "n_treated", "below"),
    [(0.0, 1.0, N_CELLS, 0.08), (0.0, 0.0, N_CELLS, 1e-9), (0.3, 1.0, 25, 1e-9)],
)
def test_cells_that_respond_alike_or_not_at_all_or_are_few_have_hardly_any(
    spread: float, size: float, n_treated: int, below: float
) -> None:
    assert learned(model_of(spread, size, n_treated)) < below


def test_strengths_are_drawn_from_a_gamma_distribution_with_mean_1() -> None:
    drawn = drawn_strengths(torch.full((20_000,), 0.16), torch.Generator().manual_seed(0)).numpy()
    assert stats.kstest(drawn, stats.gamma(1 / 0.16, scale=0.16).cdf).pvalue > 0.01
    assert nodes(0.16).mean() == pytest.approx(1) and nodes(0.16).std() == pytest.approx(0.4, rel=0.05)
    some = drawn_strengths(torch.tensor([0.0, 0.3, 0.0]), torch.Generator().manual_seed(0))
    assert (some[[0, 2]] == 1).all() and some[1] != 1


def test_the_mean_stays_and_cells_differ_more(varied: TokenDiffusion) -> None:
    rows = np.repeat(np.flatnonzero(varied.adata.obs["type"] == "c"), 3)
    bulks, found = bulks_of(varied), []
    known = bulks["strength_variance"]
    for bulks["strength_variance"] in (known, 0 * known):
        found.append(log_normalise(predicted(varied, indices=rows)).toarray())
    change = found[1].mean(0) - log_normalise(varied.adata.X[rows]).toarray().mean(0)
    bulks["strength_variance"] = known
    alike, drawn = (each @ change / (change @ change) for each in (found[1], found[0]))
    print(
        drawn.mean(),
        alike.mean(),
        drawn.var() - alike.var(),
        np.round(found[0].mean(0) - found[1].mean(0), 3),
        np.round(change, 2),
    )
    assert drawn.mean() == pytest.approx(alike.mean(), abs=0.02)
    np.testing.assert_allclose(found[0].mean(0), found[1].mean(0), atol=0.05 * np.abs(change).max())
    assert drawn.var() - alike.var() == pytest.approx(0.3**2, rel=0.4)


def test_the_order_in_which_cells_are_asked_for_does_not_matter(varied: TokenDiffusion) -> None:
    rows = np.flatnonzero(varied.adata.obs["type"] == "c")
    one, other = predicted(varied, indices=rows), predicted(varied, indices=rows[::-1])
    assert (one != other[::-1]).nnz == 0 and (one != predicted(varied)).nnz == 0


def test_models_saved_before_strengths_were_learned_have_none(varied: TokenDiffusion) -> None:
    plain = dict(bulks_of(varied))
    np.testing.assert_array_equal(Pseudobulks.from_plain(plain).strength_variance, plain["strength_variance"])
    del plain["strength_variance"]
    assert not Pseudobulks.from_plain(plain).strength_variance.any()
