"""The study of Gaussian diffusion: the linear denoiser against the formula, and a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks._variants import study_table
from benchmarks.studies import gaussian_scores
from scipy import sparse

from scdiffgen.diffusion._schedules import cosine_schedule
from scdiffgen.normal_scores import GaussianCopula


def test_the_linear_denoiser_is_the_posterior_mean_of_a_normal_vector() -> None:
    """With one factor of equal loadings the approximation by one residual variance an axis is exact."""
    counts = sparse.csr_matrix(np.random.default_rng(0).poisson(3.0, (20, 6)))
    fitted = GaussianCopula.fit(counts, np.zeros(20, dtype=int), 0)
    copula = GaussianCopula(fitted.reference, fitted.means, fitted.deviations, np.full((1, 6), 0.6))
    denoiser = gaussian_scores.Denoiser(None, copula, has_network=False)
    level, noisy = cosine_schedule(torch.tensor(0.4)), torch.randn(4, 6)
    covariance = np.full((6, 6), 0.36) + 0.64 * np.eye(6)
    alpha, sigma = float(level.alpha), float(level.sigma)
    gain = alpha * covariance @ np.linalg.inv(alpha**2 * covariance + sigma**2 * np.eye(6))
    found = denoiser(noisy, level, torch.zeros(4), torch.ones(4)).numpy()
    np.testing.assert_allclose(found, noisy.numpy() @ gain, rtol=1e-4, atol=1e-6)


def test_a_table_has_the_last_run_of_each_seed() -> None:
    runs = [("a", 0, 9.0), ("a", 0, 1.0), ("a", 1, 2.0), ("a", 2, 4.0), ("b", 0, None)]
    lines = [{"size": size, "seed": seed, "scores": {"nll": score}, "environment": {}} for size, seed, score in runs]
    assert study_table(lines, {"nll": 1}).splitlines()[2:] == ["| a | 2.0 (1.0 to 4.0) |", "| b | - |"]


def test_the_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--data",
        "pbmc68k",
        "--seeds",
        "0",
        "--quick",
        "--threads",
        "1",
        "--output",
        str(tmp_path / "runs.jsonl"),
    ]
    gaussian_scores.main([*options, "--variants", "copula", "network"])
    runs = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [run["variant"] for run in runs] == ["copula", "network"]
    assert all(0 < run["scores"]["auc_forest_genes"] <= 1 for run in runs)
    assert "| pbmc68k | network |" in capsys.readouterr().out
