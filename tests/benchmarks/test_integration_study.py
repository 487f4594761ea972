"""Scores of the study of batch integration, where they are known; the study itself runs on tiny cells."""

from __future__ import annotations

import numpy as np
import pytest
from anndata import AnnData
from benchmarks.studies import integration
from scipy import sparse
from scipy.special import entr


def points(n: int = 400, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Points of two labels, the second moved along the first axis."""
    random = np.random.default_rng(0)
    labels = np.arange(n) % 2
    return random.normal(size=(n, 3)) + shift * labels[:, None] * [1, 0, 0], labels


def test_weights_of_neighbours_have_the_perplexity() -> None:
    weights = integration.neighbour_weights(np.sort(np.random.default_rng(0).gamma(2, size=89)))
    assert weights.sum() == pytest.approx(1)
    assert np.exp(entr(weights).sum()) == pytest.approx(integration.PERPLEXITY, rel=1e-4)


def test_labels_that_are_mixed_count_as_two_and_those_apart_as_one() -> None:
    assert integration.local_inverse_simpson(*points()) == pytest.approx(2, abs=0.1)
    assert integration.local_inverse_simpson(*points(shift=100)) == pytest.approx(1)


def test_neighbours_are_kept_by_the_same_points_and_by_chance_when_they_are_drawn_anew() -> None:
    embedding, _ = points()
    cells = AnnData(sparse.csr_matrix((400, 1)), obs={integration.TYPE: ["a"] * 400, integration.BATCH: ["x"] * 400})
    assert integration.neighbours_kept(embedding, embedding, cells) == 1
    other = np.random.default_rng(1).permutation(embedding)
    assert integration.neighbours_kept(other, embedding, cells) == pytest.approx(30 / 399, abs=0.02)


def test_batches_are_apart_or_not() -> None:
    obs = {integration.TYPE: ["a"] * 400, integration.BATCH: np.where(np.arange(400) % 2, "y", "x")}
    cells = AnnData(sparse.csr_matrix((400, 1)), obs=obs)
    assert integration.batch_silhouette(points(shift=100)[0], cells) > 0.9
    assert abs(integration.batch_silhouette(points()[0], cells)) < 0.05
