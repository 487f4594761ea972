"""Sparse combinations against closed forms."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import ortho_group

from scdiffgen.data import sparse_combinations
from scdiffgen.data._perturbation_input import N_ATOMS


def test_of_orthonormal_vectors_the_largest_projections_are_taken() -> None:
    """Then orthogonal matching pursuit is the best approximation by so few."""
    random = np.random.default_rng(0)
    known, new = ortho_group.rvs(12, random_state=1), random.normal(size=(4, 12))
    projections = new @ known.T
    smallest = np.argsort(np.abs(projections), axis=1)[:, :-N_ATOMS]
    np.put_along_axis(projections, smallest, 0.0, axis=1)
    np.testing.assert_allclose(sparse_combinations(new, known), projections, atol=1e-12)


def test_what_is_made_of_few_is_found_exactly_whatever_their_lengths() -> None:
    random = np.random.default_rng(0)
    known = (random.normal(size=(60, 40)) * random.lognormal(sigma=2.0, size=(60, 1))).astype(np.float32)
    truth = np.zeros((3, 60))
    truth[0, 7] = 1.0
    truth[1, [3, 50]] = 1.0
    truth[2, [9, 12, 30]] = 2.0, -1.0, 0.5
    truth[2] /= np.linalg.norm(known, axis=1)  # or the longest hide the others
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sparse_combinations(truth @ known, known)
    np.testing.assert_allclose(found, truth, atol=1e-6 * np.abs(truth).max())
    assert ((found != 0) == (truth != 0)).all()


@pytest.mark.parametrize("vector", [[0.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
def test_what_nothing_resembles_is_made_of_nothing(vector: list[float]) -> None:
    known = np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert not sparse_combinations(np.array([vector]), known).any()
    assert not sparse_combinations(np.array([vector]), 0 * known).any()


def test_twins_share_the_work_of_one() -> None:
    """Two known perturbations with one vector: the sum is what counts, and it does not fail."""
    known = np.array([[1.0, 2.0], [1.0, 2.0]])
    assert sparse_combinations(np.array([[2.0, 4.0]]), known).sum() == pytest.approx(2.0)
