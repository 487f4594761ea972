"""Calibrated shares, against the truth of simulated cells and scikit-learn's regression."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from scdiffgen.imputation import PRIOR, ShareCalibration

N_LABELS, N_COLUMNS = 3, 200
RNG = np.random.default_rng(0)
TRUTH = RNG.dirichlet(np.ones(N_COLUMNS), N_LABELS)  # shares of each label


def shrunk(share: float) -> np.ndarray:
    """Shares that take labels for more alike than they are."""
    logs = np.log(TRUTH)
    made = np.exp(logs.mean(0) + share * (logs - logs.mean(0)))
    return made / made.sum(1, keepdims=True)


def with_all(sums: np.ndarray) -> np.ndarray:
    return np.vstack([sums, sums.sum(0)])


def calibrated(observed: np.ndarray, predicted: np.ndarray) -> ShareCalibration:
    expected = predicted * observed.sum(1, keepdims=True)
    return ShareCalibration.fit(with_all(observed), with_all(expected))


def off(shares: np.ndarray) -> np.ndarray:
    """Total variation from the truth, of each label."""
    return np.abs(shares - TRUTH).sum(1) / 2


@pytest.mark.parametrize("n_molecules", [300, 3_000, 100_000])
def test_means_of_labels_are_nearer_to_the_truth_than_prediction_and_profile(n_molecules: int) -> None:
    observed = np.random.default_rng(0).multinomial(n_molecules, TRUTH).astype(float)
    predicted = shrunk(0.6)
    found = calibrated(observed, predicted).shares(np.log(predicted), np.arange(N_LABELS))
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    assert (off(found) < off(predicted)).all()
    assert (off(found) < 1.02 * off(observed / n_molecules)).all()


def test_what_is_right_stays() -> None:
    """Chance as Poisson counts have it is not taken for a fault of the prediction."""
    observed = RNG.poisson(5_000 * TRUTH).astype(float)
    found = calibrated(observed, TRUTH).shares(np.log(TRUTH), np.arange(N_LABELS))
    assert (off(found) < 0.3 * off(observed / observed.sum(1, keepdims=True))).all()


def test_a_label_without_cells_is_as_none() -> None:
    observed = RNG.multinomial(3_000, TRUTH).astype(float)
    observed[1] = 0
    found, logs = calibrated(observed, shrunk(0.6)), np.log(shrunk(0.6)[:1])
    np.testing.assert_array_equal(found.shares(logs, np.array([1])), found.shares(logs, np.array([N_LABELS])))


def test_differences_from_the_label_are_as_large_as_left_out_cells_tell() -> None:
    """Half of what is read from a cell is noise; scikit-learn regresses the counts on what was predicted."""
    means, n_cells, size = np.log(TRUTH[0]), 400, 300
    true, noise = 0.3 * RNG.standard_normal((2, n_cells, N_COLUMNS))
    shares = np.exp(means + true)
    counts = np.stack([RNG.multinomial(size, each / each.sum()) for each in shares]).astype(float)
    logs = means + true + noise
    logs -= np.log(np.exp(logs).sum(1, keepdims=True))
    sums = np.stack([counts.sum(0), size * np.exp(logs).sum(0)])
    start = ShareCalibration.fit(*(with_all(of[None]) for of in sums))
    rows = np.zeros(n_cells, dtype=int)
    found = start.with_slope(counts, logs, rows)
    mean = np.exp(start.log_means[0])
    deviations = (start.shares(logs, rows) - mean) * size
    weights = np.broadcast_to(1 / (size * mean), counts.shape).ravel()
    fit = LinearRegression(fit_intercept=False)
    fit.fit(deviations.reshape(-1, 1), (counts - size * mean).ravel(), sample_weight=weights)
    information = (weights * deviations.ravel() ** 2).sum()
    expected = (fit.coef_[0] * information + PRIOR) / (information + PRIOR)
    np.testing.assert_allclose(found.slopes, [expected, 1], rtol=1e-4)
    assert 0.35 < expected < 0.65
    new = np.abs(found.shares(logs, rows) - shares / shares.sum(1, keepdims=True)).sum()
    assert new < np.abs(np.exp(logs) - shares / shares.sum(1, keepdims=True)).sum()


def test_cells_without_a_label_tell_no_slope() -> None:
    start = calibrated(RNG.multinomial(3_000, TRUTH).astype(float), shrunk(0.6))
    counts, logs = RNG.multinomial(50, TRUTH[0], 20).astype(float), np.log(RNG.dirichlet(np.ones(N_COLUMNS), 20))
    assert (start.with_slope(counts, logs, np.full(20, N_LABELS)).slopes == 1).all()
