"""Distances against their axioms, closed forms, other libraries and unbiasedness over resamples."""

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from scdiffgen import metrics
from scdiffgen.metrics._distances import (
    energy_resampled,
    median_squared_distance,
    overlap_resampled,
    wasserstein_resampled,
)
from scdiffgen.metrics._resampling import bootstrap_weights, unit_weights

DISTANCES = [metrics.mmd, metrics.wasserstein, metrics.energy_distance]


def gaussian_pair(n: int, shift: float = 0.0, dim: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dim)), rng.normal(size=(n, dim)) + np.r_[shift, np.zeros(dim - 1)]


@pytest.mark.parametrize("distance", [metrics.wasserstein, metrics.energy_distance])
def test_distance_is_symmetric_and_grows_with_the_shift(distance) -> None:
    x, y = gaussian_pair(80, shift=1.0)
    assert distance(x, y) == pytest.approx(distance(y, x))
    assert distance(x, y) < distance(x, y + 1.0) < distance(x, y + 2.0)


def test_wasserstein_in_one_dimension_sorts() -> None:
    x, y = gaussian_pair(200, shift=0.7, dim=1)
    assert metrics.wasserstein(x, y) == pytest.approx(np.sqrt(np.mean((np.sort(x, 0) - np.sort(y, 0)) ** 2)))


def test_wasserstein_subsamples_by_seed() -> None:
    x, y = gaussian_pair(100)
    same, other = metrics.wasserstein(x, y, max_cells=20, seed=1), metrics.wasserstein(x, y, max_cells=20, seed=2)
    assert metrics.wasserstein(x, y, max_cells=20, seed=1) == same != other


def test_energy_distance_sees_a_spread_that_squared_norms_do_not() -> None:
    # In the plane |X-Y| is Rayleigh distributed with mean sqrt(pi / 2) * sd of a coordinate of X - Y
    rng = np.random.default_rng(4)
    expected = np.sqrt(np.pi / 2) * (2 * np.sqrt(1 + 9) - np.sqrt(2) - 3 * np.sqrt(2))
    estimates = [metrics.energy_distance(rng.normal(size=(300, 2)), 3 * rng.normal(size=(300, 2))) for _ in range(20)]
    assert np.mean(estimates) == pytest.approx(expected, abs=3 * np.std(estimates) / np.sqrt(20))


def test_mmd_of_shifted_gaussians_is_the_integral() -> None:
    # E exp(-d^2 / c) for d ~ N(m, 2 I) in k dimensions, by the Gaussian integral in one and its product
    shift, dim, median = 1.5, 2, 3.0
    grid = np.linspace(-15, 15, 20_001)

    def integral(mean: float, c: float) -> float:
        density = np.exp(-((grid - mean) ** 2) / 4) / np.sqrt(4 * np.pi)
        return float(np.trapezoid(np.exp(-(grid**2) / c) * density, grid))

    expected = np.mean(
        [
            2 * integral(0, c) ** 2 - 2 * integral(shift, c) * integral(0, c)
            for c in median * np.array([1 / 4, 1 / 2, 1, 2, 4])
        ]
    )
    estimates = [metrics.mmd(*gaussian_pair(300, shift, dim, seed), median=median) for seed in range(20)]
    assert np.mean(estimates) == pytest.approx(expected, abs=3 * np.std(estimates) / np.sqrt(20))


@pytest.mark.parametrize("distance", [metrics.mmd, metrics.energy_distance])
def test_distance_is_unbiased_for_one_population(distance) -> None:
    estimates = [distance(*gaussian_pair(30, seed=seed)) for seed in range(1000, 3000)]
    assert abs(np.mean(estimates)) < 3 * np.std(estimates) / np.sqrt(2000)
    assert min(estimates) < 0


def test_median_is_over_pairs_of_reference_cells() -> None:
    x, _ = gaussian_pair(60)
    squared = cdist(x, x)[np.triu_indices(60, 1)] ** 2
    assert median_squared_distance(x) == pytest.approx(np.median(squared))
    assert metrics.mmd(x, x + 100.0) == pytest.approx(metrics.mmd(x, x + 100.0, median=float(np.median(squared))))


def test_chunks_do_not_change_the_distance(monkeypatch) -> None:
    x, y = gaussian_pair(50, shift=1.0)
    whole = [metrics.mmd(x, y), metrics.energy_distance(x, y)]
    monkeypatch.setattr("scdiffgen.metrics._distances.CHUNK", 7)
    assert [metrics.mmd(x, y), metrics.energy_distance(x, y)] == pytest.approx(whole)


def test_bootstrap_weights_are_resamples() -> None:
    # A resample by weights is the distance of the repeated cells, but for the pairs of copies that are left out
    x, y = gaussian_pair(12, shift=1.0)
    rng = np.random.default_rng(0)
    wx, wy = bootstrap_weights(12, 3, rng), bootstrap_weights(12, 3, rng)
    resampled = energy_resampled(x, y, wx, wy)
    for row in range(4):
        i, j = (np.repeat(np.arange(12), w[row].astype(int)) for w in (wx, wy))
        within = [cdist(c[k], c[k])[k[:, None] != k].mean() for c, k in ((x, i), (y, j))]
        assert resampled[row] == pytest.approx(2 * cdist(x[i], y[j]).mean() - sum(within))


def test_bootstrap_spread_is_the_sampling_spread() -> None:
    rng = np.random.default_rng(5)
    draws = [gaussian_pair(100, shift=1.0, dim=2, seed=seed) for seed in range(60)]
    for resampled, distance in (
        (energy_resampled, metrics.energy_distance),
        (wasserstein_resampled, metrics.wasserstein),
    ):
        truth = np.std([distance(x, y) for x, y in draws])
        weights = [bootstrap_weights(100, 60, rng) for _ in range(2)]
        boot = np.mean([resampled(x, y, *weights)[1:].std() for x, y in draws[:10]])
        assert boot == pytest.approx(truth, rel=0.35)


@pytest.mark.parametrize("distance", DISTANCES)
def test_too_few_cells_are_nan_with_a_warning(distance) -> None:
    x, _ = gaussian_pair(10)
    with pytest.warns(metrics.FewCellsWarning, match="`generated` has 0"):
        assert np.isnan(distance(x, x[:0]))


@pytest.mark.parametrize("distance", DISTANCES)
def test_bad_points_are_named(distance) -> None:
    x, _ = gaussian_pair(10)
    with pytest.raises(ValueError, match="`real` has 3 dimensions and `generated` 2"):
        distance(x, x[:, :2])
    with pytest.raises(ValueError, match="`generated` holds 1 values that are NaN"):
        distance(x, np.where(np.arange(30).reshape(10, 3) == 4, np.nan, x))


def test_equal_cells_have_distance_zero_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics.mmd(np.zeros((5, 2)), np.zeros((5, 2))) == pytest.approx(0)


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


def test_novelty_of_too_few_cells_is_nan_with_a_warning() -> None:
    x, y = clouds(5)
    with pytest.warns(metrics.FewCellsWarning):
        assert np.isnan(metrics.novelty(y, y, x[:0]).ratio)


def test_near_copies_are_warned_of() -> None:
    train, _ = clouds(400, shift=0)
    near = train + 1e-3 * np.random.default_rng(2).normal(size=train.shape)
    with pytest.warns(metrics.CopyWarning, match="0 of 400 are copies, and 100%"):
        assert metrics.novelty(clouds(400, shift=0, seed=1)[0], near, train).ratio < 0.1
