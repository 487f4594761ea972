"""The coupling of two distributions: what comes out against SciPy's chi-square, how much is kept against the least."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from scdiffgen.diffusion import couple_molecules

N_CELLS, N_MOLECULES = 400, 200


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def two_distributions() -> tuple[np.ndarray, np.ndarray]:
    own, asked = np.random.default_rng(0).dirichlet(np.full(12, 1.0), size=2)
    own[3] = asked[5] = 0.0
    return own / own.sum(), asked / asked.sum()


def cells_of(probability: np.ndarray) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).multinomial(N_MOLECULES, probability, N_CELLS)).float()


def log(probability: np.ndarray) -> Tensor:
    return torch.from_numpy(probability).log().float().expand(N_CELLS, -1)


def test_molecules_of_one_distribution_become_molecules_of_the_other(generator: torch.Generator) -> None:
    own, asked = two_distributions()
    moved = couple_molecules(cells_of(own), log(own), log(asked), generator).numpy()
    np.testing.assert_array_equal(moved.sum(1), N_MOLECULES)
    assert not moved[:, 5].any()
    there = asked > 0
    assert stats.chisquare(moved.sum(0)[there], asked[there] * moved.sum()).pvalue > 1e-3
    spread = moved.var(0, ddof=1)[there] / (N_MOLECULES * asked * (1 - asked))[there]
    np.testing.assert_allclose(spread, 1.0, atol=4 * np.sqrt(2 / N_CELLS))  # as of a multinomial


def test_no_more_molecules_change_than_must(generator: torch.Generator) -> None:
    own, asked = two_distributions()
    cells = cells_of(own)
    moved = couple_molecules(cells, log(own), log(asked), generator)
    changed = float((cells - moved).clamp(min=0).sum() / cells.sum())
    total_variation = 0.5 * np.abs(asked - own).sum()
    assert changed == pytest.approx(total_variation, abs=4 * np.sqrt(0.25 / float(cells.sum())))


def test_the_same_distribution_up_to_a_constant_changes_nothing(generator: torch.Generator) -> None:
    own, _ = two_distributions()
    cells = cells_of(own)
    moved = couple_molecules(cells, log(own), log(own) + 2.0, generator)
    assert float((cells - moved).abs().sum()) <= 1e-4 * float(cells.sum())  # float32 rounding of the ratios


def test_cells_without_molecules_stay_empty(generator: torch.Generator) -> None:
    own, asked = two_distributions()
    assert not couple_molecules(torch.zeros(N_CELLS, 12), log(own), log(asked), generator).any()
