"""Molecules drawn from, and moved between, given distributions, against SciPy's chi-square and the least changes."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from scdiffgen.diffusion import couple_molecules
from scdiffgen.diffusion._draws import draw_molecules

N_CELLS, N_MOLECULES = 400, 200


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def drawn_counts(log_prob: Tensor, n_molecules: Tensor, generator: torch.Generator) -> np.ndarray:
    drawn = draw_molecules(log_prob, n_molecules, generator)
    return torch.bincount(drawn, minlength=log_prob.numel()).view(log_prob.shape).numpy()


def test_genes_are_drawn_with_their_probabilities(generator: torch.Generator) -> None:
    probability = np.random.default_rng(0).dirichlet(np.full(40, 0.3), size=3)
    n = torch.tensor([20_000, 0, 5_000])
    drawn = drawn_counts(torch.tensor(probability).log(), n, generator)
    np.testing.assert_array_equal(drawn.sum(1), n)
    for cell in (0, 2):
        common = probability[cell] * int(n[cell]) > 5
        observed = [*drawn[cell][common], drawn[cell][~common].sum()]
        expected = [*probability[cell][common], probability[cell][~common].sum()]
        assert stats.chisquare(observed, np.array(expected) * int(n[cell])).pvalue > 1e-3


@pytest.mark.parametrize("impossible", [[0, 1], [3, 4], [0, 4], [1, 2, 3]])
def test_impossible_genes_are_never_drawn(impossible: list[int], generator: torch.Generator) -> None:
    probability = torch.ones(200, 5)
    probability[:, impossible] = 0
    drawn = drawn_counts((probability / probability.sum(1, keepdim=True)).log(), torch.full((200,), 500), generator)
    assert not drawn[:, impossible].any()
    np.testing.assert_array_equal(drawn.sum(1), 500)


def test_a_draw_on_the_edge_falls_on_a_possible_gene(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda n, **_: torch.tensor([0.0, 0.5, 0.0, 0.5], dtype=torch.float64))
    log_prob = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).log().expand(2, 5)
    assert draw_molecules(log_prob, torch.tensor([2, 2])).tolist() == [1, 3, 6, 8]


def test_the_order_of_cells_in_a_large_batch_does_not_matter(generator: torch.Generator) -> None:
    """The cumulative sum over all cells must not blur the probabilities of the last."""
    probability = np.array([1e-4, 1 - 3e-4, 2e-4])
    log_prob = torch.tensor(np.tile(probability, (50_000, 1))).log().float()
    drawn = drawn_counts(log_prob, torch.full((50_000,), 20), generator)
    for part in (drawn[:25_000], drawn[25_000:]):
        assert stats.chisquare(part.sum(0), part.sum() * probability).pvalue > 1e-3


# Coupling.


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
