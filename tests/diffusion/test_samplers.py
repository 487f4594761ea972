"""Growing cells, and the schedule against NumPy's geometric grid."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scdiffgen.diffusion import UrnPrediction, grow_molecules
from scdiffgen.diffusion._molecules import molecule_schedule


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


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


def uniform(state: Tensor, library: Tensor) -> UrnPrediction:
    return UrnPrediction(torch.zeros(state.shape), torch.zeros(state.shape[1]))


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
        seen.append((state.to_dense().sum(1).tolist(), library.tolist()))
        return uniform(state, library)

    library = torch.tensor([6.0, 2.0])
    grow_molecules(predict, library, torch.zeros(2, 3), n_steps=6, generator=generator)
    assert seen == [([min(k, 6), min(k, 2)], [6, 2]) for k in range(6)]
