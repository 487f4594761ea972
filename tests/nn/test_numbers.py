"""Sinusoids against closed forms; the tests of all embeddings are in `variants`."""

import numpy as np
import pytest
import torch
from scipy.signal import find_peaks

from scdiffgen.nn._embeddings import SinusoidalEmbedding, log_count_embedding


def test_inner_product_of_sinusoids_depends_on_the_difference_only():
    embedding = SinusoidalEmbedding(32).double()
    numbers = torch.linspace(-5, 5, 21, dtype=torch.float64)
    inner = embedding(numbers) @ embedding(numbers).T
    kernel = torch.cos((numbers[:, None] - numbers)[..., None] * embedding.frequencies.double()).sum(-1)
    torch.testing.assert_close(inner, kernel)


def test_periods_of_the_sinusoids_are_the_ones_asked_for():
    embedding = SinusoidalEmbedding(4, min_period=0.5, max_period=8.0).double()
    numbers = torch.linspace(0, 20, 20_001, dtype=torch.float64)
    slow, fast = embedding(numbers)[:, :2].T.numpy()
    assert np.diff(numbers[find_peaks(slow)[0]]) == pytest.approx(8.0, abs=2e-3)
    assert np.diff(numbers[find_peaks(fast)[0]]) == pytest.approx(0.5, abs=2e-3)


def test_default_level_embedding_has_wavelengths_from_half_to_fifty() -> None:
    embedding = log_count_embedding("sinusoidal", 8)
    periods = 2 * torch.pi / embedding.frequencies
    np.testing.assert_allclose(periods, np.geomspace(50, 0.5, 4), rtol=1e-5)
