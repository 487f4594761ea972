"""Nearest-neighbour metrics against scikit-learn, direct loops and exact copies."""

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from scdiffgen import metrics
from scdiffgen.metrics._distances import overlap_resampled
from scdiffgen.metrics._resampling import unit_weights


def clouds(n: int = 60, shift: float = 0.5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.random.default_rng(seed).normal(size=(2, n, 3))
    return x, y + shift


def overlap(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    scores = overlap_resampled(x, y, unit_weights(len(x)), unit_weights(len(y)))
    return {name: float(rows[0]) for name, rows in scores.items()}


def test_precision_recall_and_coverage_follow_their_definitions(monkeypatch) -> None:
    x, y = clouds()
    k = 4
    monkeypatch.setattr("scdiffgen.metrics._distances.N_NEIGHBOURS", k)
    radius_x, radius_y = (np.sort(cdist(c, c), axis=1)[:, k] for c in (x, y))  # column 0 is the cell itself
    across = cdist(x, y)
    inside = across <= radius_x[:, None]
    expected = {
        "precision": inside.any(axis=0).mean(),
        "recall": (across <= radius_y[None, :]).any(axis=1).mean(),
        "coverage": inside.any(axis=1).mean(),
    }
    assert overlap(x, y) == pytest.approx(expected)


def test_missing_modes_cost_recall_and_strange_cells_cost_precision() -> None:
    x, _ = clouds(200)
    narrow, wide = (overlap(x, clouds(200, seed=1)[0] * s) for s in (0.3, 3.0))
    assert narrow["precision"] > 0.9 > 0.6 > narrow["recall"]
    assert wide["recall"] > 0.9 > 0.6 > wide["precision"]


def test_new_cells_are_novel() -> None:
    train, new = clouds(400, shift=0)
    held_out, _ = clouds(400, shift=0, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score = metrics.novelty(held_out, new, train)
    distances = [cdist(c, train).min(axis=1) for c in (new, held_out)]
    assert score.ratio == pytest.approx(np.median(distances[0]) / np.median(distances[1]))
    assert score.too_close == pytest.approx((distances[0] < np.quantile(distances[1], 0.01)).mean())
    assert score.n_copies == 0


def test_copies_are_counted_and_warned_of() -> None:
    train, new = clouds(400, shift=0)
    new[:30] = train[:30]
    with pytest.warns(metrics.CopyWarning, match="30 of 400 are copies"):
        score = metrics.novelty(clouds(400, shift=0, seed=1)[0], new, train)
    assert score.n_copies == 30
    assert score.too_close >= 30 / 400


def test_too_few_cells_are_nan_with_a_warning() -> None:
    x, y = clouds(5)
    with pytest.warns(metrics.FewCellsWarning):
        assert np.isnan(metrics.novelty(y, y, x[:0]).ratio)


def test_near_copies_are_warned_of() -> None:
    train, _ = clouds(400, shift=0)
    near = train + 1e-3 * np.random.default_rng(2).normal(size=train.shape)
    with pytest.warns(metrics.CopyWarning, match="0 of 400 are copies, and 100%"):
        assert metrics.novelty(clouds(400, shift=0, seed=1)[0], near, train).ratio < 0.1
