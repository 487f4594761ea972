"""The study of power measures the variation of donors that was simulated, and draws subsamples of both arms."""

from __future__ import annotations

import numpy as np
import pytest
from anndata import AnnData
from benchmarks.studies.power import DIGITS, MONOCYTES, VARIATION, fold_changes, subsample, table, variation
from known_generator import KnownGenerator

from scdiffgen import tl


def simulated(share_sd: float = 0.4) -> AnnData:
    """Sixteen paired donors, of whom a third of the genes rise twofold."""
    types = KnownGenerator(dict.fromkeys([MONOCYTES, "B", "T"], np.full(300, 1 / 300)), 3000)
    return tl.simulate_experiment(
        types,
        {f"gene{i}": 1.0 for i in range(100)},
        n_donors=16,
        n_cells=150,
        paired=True,
        label_key="cell_type",
        shares={MONOCYTES: 0.5, "B": 0.25, "T": 0.25},
        donor_sd=0.3,
        sample_sd=0.15,
        share_sd=share_sd,
    )


def test_variation_of_donors_is_that_simulated() -> None:
    study = simulated()
    found = variation(study, np.random.default_rng(0))
    assert found["donor_sd"] == pytest.approx(0.3, rel=0.1) and found["sample_sd"] == pytest.approx(0.15, rel=0.15)
    expected = np.log(study.uns["simulation"]["shares"][:16]).std(0, ddof=1)
    assert found["share_sd"] == pytest.approx(np.sqrt(np.mean(expected**2)), rel=0.2)


def test_subsamples_and_fold_changes() -> None:
    study = simulated(0.0)
    part = subsample(study, 3, 20, np.random.default_rng(0))
    assert part.obs["donor"].nunique() == 3
    assert part.obs.groupby(["donor", "arm"], observed=True).size().eq(20).sum() == 6
    change = fold_changes(study)
    assert change[:100].mean() - change[100:].mean() == pytest.approx(1, abs=0.05)


def test_agreement_is_of_all_runs() -> None:
    scores = [{"predicted": 0.5, "realised": 0.3}, {"predicted": 0.9, "realised": 0.9}, {"donor_sd": 0.2}]
    variants = ["few", "many", VARIATION]
    runs = [
        {"data": "kang", "seed": 0, "variant": variant, "scores": dict.fromkeys(DIGITS) | own, "environment": {}}
        for variant, own in zip(variants, scores, strict=True)
    ]
    text = table(runs)
    assert "kang, predicted minus realised: mean 0.10, from 0.00 to 0.20; mean absolute difference 0.10" in text
    assert "| kang | few | 0.50 | 0.30 |" in text
