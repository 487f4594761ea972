"""Drawing and growing molecules against given probabilities; the schedule against NumPy's geometric grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from scdiffgen.diffusion import UrnPrediction, grow_molecules
from scdiffgen.diffusion._draws import draw_molecules
from scdiffgen.diffusion._samplers import molecule_schedule


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


def test_the_schedule_is_geometric_beyond_its_first_steps() -> None:
    schedule = molecule_schedule(torch.tensor([0, 30]), torch.tensor([900, 5_000]), 24).numpy()
    geometric = np.stack([np.geomspace(16, 916, 25), np.geomspace(46, 5_016, 25)], axis=1) - 16
    assert np.abs(schedule - geometric)[6:].max() <= 0.5


@settings(max_examples=200, deadline=None)
@given(start=st.integers(0, 3_000), more=st.integers(0, 20_000), n_steps=st.integers(1, 100))
def test_a_schedule_runs_from_start_to_end_and_adds_something_each_step(start: int, more: int, n_steps: int) -> None:
    schedule = molecule_schedule(torch.tensor([start]), torch.tensor([start + more]), n_steps).flatten()
    assert (len(schedule), int(schedule[0]), int(schedule[-1])) == (n_steps + 1, start, start + more)
    before_the_end = schedule[:-1] < start + more
    assert (schedule.diff()[before_the_end] >= 1).all() and (schedule.diff() >= 0).all()


def test_as_many_steps_as_molecules_add_one_each() -> None:
    schedule = molecule_schedule(torch.tensor([0, 5, 0]), torch.tensor([70, 75, 20]), 70)
    expected = [np.arange(71), np.arange(5, 76), np.minimum(np.arange(71), 20)]
    np.testing.assert_array_equal(schedule.T, expected)


def uniform(state: Tensor, library: Tensor) -> UrnPrediction:
    return UrnPrediction(torch.zeros_like(state), torch.zeros(state.shape[1]))


@pytest.mark.parametrize("n_steps", [1, 4, 64])
def test_growing_keeps_molecules_and_reaches_the_library_size(n_steps: int, generator: torch.Generator) -> None:
    start = torch.tensor(np.random.default_rng(0).poisson(2.0, (4, 6))).float()
    before = start.clone()
    library = torch.tensor([200.0, float(start[1].sum()), 3.0, 21.0])
    grown = grow_molecules(uniform, library, start, n_steps=n_steps, generator=generator)
    torch.testing.assert_close(start, before)
    assert (grown >= start).all()
    torch.testing.assert_close(grown.sum(1), torch.maximum(library, start.sum(1)))
    torch.testing.assert_close(grown[1], start[1])


def test_the_predictor_sees_the_state_and_the_final_library_size(generator: torch.Generator) -> None:
    seen = []

    def predict(state: Tensor, library: Tensor) -> UrnPrediction:
        seen.append((state.sum(1).tolist(), library.tolist()))
        return uniform(state, library)

    library = torch.tensor([6.0, 2.0])
    grow_molecules(predict, library, torch.zeros(2, 3), n_steps=6, generator=generator)
    assert seen == [([min(k, 6), min(k, 2)], [6, 2]) for k in range(6)]


def test_the_generator_decides_alone() -> None:
    state = torch.get_rng_state()
    first, second, other = (
        grow_molecules(
            uniform, torch.full((5,), 30.0), torch.zeros(5, 8), n_steps=4, generator=torch.Generator().manual_seed(seed)
        )
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, second) and not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())
