"""The study of how the rate of a gene depends on its own molecules: its form, and what it trains."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.studies import own_counts
from scipy import stats

MEAN, DISPERSION, N = 3.0, 0.4, 1000


def rates(counts: np.ndarray, outliers: bool = False) -> np.ndarray:
    """Rates of two genes, of which ``MEAN`` molecules and the rest of ``N`` are expected."""
    urn = own_counts.OwnCounts(torch.nn.Linear(1, 1), np.full(2, DISPERSION), 1e-9, outliers)
    for weight in urn.concentration.parameters():
        torch.nn.init.zeros_(weight)
    state = torch.tensor(np.column_stack([counts, N - counts])).float()
    urn.read(state)
    logits = torch.tensor([MEAN, N - MEAN]).log().expand(len(counts), 2)
    scores = urn(logits, torch.zeros(len(counts), 1), torch.full((len(counts),), N - 1.0))
    first, weights = own_counts.Limit(urn)(scores.log_rates(), scores.urn_weights)
    return (first.exp() + weights * state).detach().numpy()[:, 0]


def test_the_rate_is_the_posterior_mean_of_a_gamma_poisson_model() -> None:
    """Of rates with mean 3 and dispersion .4, a gamma of shape 2.5, given a count, by quadrature."""
    shape, counts = 1 / DISPERSION, np.arange(12)
    grid = np.linspace(1e-4, 60, 200_001)
    prior = stats.gamma.pdf(grid, shape, scale=MEAN / shape)
    likelihood = stats.poisson.pmf(counts[:, None], grid)
    exact = (likelihood * prior * grid).sum(1) / (likelihood * prior).sum(1)
    np.testing.assert_allclose(rates(counts), exact, rtol=1e-4)


def test_a_gene_far_beyond_what_is_expected_goes_on_as_it_is() -> None:
    few, many = np.array([0, 1, 3]), np.array([30, 60])
    np.testing.assert_allclose(rates(few, outliers=True), rates(few), rtol=0.05)
    assert (rates(many, outliers=True) > 0.99 * many).all()
    assert (rates(many) < 0.7 * many).all()


def test_beside_the_urn_outliers_alone_leave_it() -> None:
    few, many = np.array([0.0, 1, 3]), np.array([30.0, 60])
    limit = own_counts.Outliers(1)
    found = []
    for counts in (few, many):
        limit.read(torch.tensor(counts).float()[:, None])
        first, weights = limit(torch.full((len(counts), 1), MEAN).log(), torch.full((1,), 0.05))
        found.append((first.exp() + weights * limit.counts).detach().numpy()[:, 0])
    np.testing.assert_allclose(found[0], MEAN + 0.05 * few, rtol=1e-6)
    assert (found[1] > 0.99 * many).all() and (found[1] < 1.01 * many + 0.05).all()


@pytest.mark.usefixtures("_small_study")
def test_forms_are_trained_on_parts_of_the_training_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "runs.jsonl"
    own_counts.main(["--data", "pbmc68k", "--seeds", "0", "--quick", "--threads", "1", "--output", str(output)])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [run["variant"] for run in runs] == list(own_counts.VARIANTS)
    assert len({run["scores"]["nats per molecule"] for run in runs}) == 4
    assert all(run["scores"]["nats per molecule"] > 0 for run in runs)
    assert "| pbmc68k | dispersion, outliers | 2 |" in capsys.readouterr().out
