"""The study of how the rate of a gene depends on its own molecules: its forms, and what it trains."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.studies import own_counts
from small_cells import SMALL, simulated_cells

from scdiffgen.model import TokenDiffusion
from scdiffgen.nn import GeneScores

EXPECTED = np.array([[3.0, 97.0], [0.5, 99.5], [40.0, 60.0]])
COUNTS = np.array([[0, 20], [30, 3], [40, 90]])


def rates(variant: str) -> np.ndarray:
    """Rates of two genes in a new model of this form."""
    adata = simulated_cells(20)[:, :2].copy()
    adata.X = np.ones((20, 2), np.float32)
    TokenDiffusion.setup_anndata(adata, labels_key="cell_type")
    model = TokenDiffusion(adata, **SMALL)
    with own_counts.own_counts(model, variant):
        overdispersion = model.module.ema_denoiser.overdispersion
        scores = GeneScores(torch.tensor(EXPECTED).float().log(), torch.zeros(3, overdispersion.shift.in_features))
        there = torch.tensor(COUNTS).float()
        log_rates, weights = overdispersion(scores, torch.full((3,), 99.0), there)
    return (log_rates.exp() + weights * there).detach().numpy()


def test_one_weight_is_a_line() -> None:
    np.testing.assert_allclose(rates("one weight"), 0.95 * EXPECTED + 0.05 * COUNTS, rtol=1e-4)


def test_dispersions_are_curved_and_outliers_go_on_as_they_are() -> None:
    own_share = 1 / (1 + 1 / (0.1 * EXPECTED))  # of the dispersion that a new model has
    expected = 0.98 * ((1 - own_share) * EXPECTED + own_share * COUNTS) + 0.02 * COUNTS
    np.testing.assert_allclose(rates("dispersion"), expected, rtol=1e-4)
    assert rates("dispersion")[1, 0] < 3 and rates("dispersion, outliers")[1, 0] > 29


def test_forms_are_trained_on_parts_of_the_training_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "runs.jsonl"
    own_counts.main(["--data", "pbmc68k", "--seeds", "0", "--quick", "--threads", "1", "--output", str(output)])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [run["variant"] for run in runs] == list(own_counts.VARIANTS)
    assert len({run["scores"]["nats per molecule"] for run in runs}) == 3
    assert all(run["scores"]["nats per molecule"] > 0 for run in runs)
    assert "| pbmc68k | dispersion, outliers | 2 |" in capsys.readouterr().out
