"""Baselines against closed forms, numpy and hand-made cases."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA

from scdiffgen import metrics
from scdiffgen.metrics import baselines
from scdiffgen.metrics._response import fold_change_slope
from scdiffgen.metrics.baselines import gaussian_copula, linear_shift, shift_counts


def test_linear_baseline_is_its_closed_form() -> None:
    rng = np.random.default_rng(0)
    means, control = rng.normal(size=(7, 30)), rng.normal(size=30)
    targets, wanted = [[0], [3], [5], [8], [9], [12], [2, 20]], [4, 25]
    expression = np.vstack([means, control]).T
    genes = PCA(7, svd_solver="full").fit_transform(expression)
    perturbations = np.array([genes[rows].sum(axis=0) for rows in [*targets, []]])
    changes, penalty = expression - control[:, None], 0.1 * np.eye(7)
    offset = changes.mean(axis=1, keepdims=True)
    inverses = [np.linalg.inv(m.T @ m + penalty) for m in (genes, perturbations)]
    kernel = inverses[0] @ genes.T @ (changes - offset) @ perturbations @ inverses[1]
    expected = genes @ kernel @ genes[wanted].sum(axis=0) + offset[:, 0]
    shift = linear_shift(means, control, targets, wanted)
    np.testing.assert_allclose(shift, expected, atol=1e-10)


def test_linear_baseline_wants_one_target_a_perturbation() -> None:
    with pytest.raises(ValueError, match="`targets` has 1 entries for 2 training perturbations"):
        linear_shift(np.zeros((2, 5)), np.zeros(5), [[0]], [1])


def test_doses_are_interpolated_on_the_log_scale() -> None:
    doses, shifts = [10.0, 0.1, 1.0], np.array([[3.0, -3.0], [1.0, -1.0], [2.0, -2.0]])
    for known, shift in zip(doses, shifts, strict=True):
        np.testing.assert_allclose(metrics.baselines.dose_shift(known, doses, shifts), shift)
    np.testing.assert_allclose(metrics.baselines.dose_shift(0.0, doses, shifts), 0)
    np.testing.assert_allclose(metrics.baselines.dose_shift(1e6, doses, shifts), shifts[0])
    between = metrics.baselines.dose_shift(3.0, doses, shifts)
    fraction = np.log((1 + 30) / (1 + 10)) / np.log((1 + 100) / (1 + 10))
    np.testing.assert_allclose(between, shifts[2] + fraction * (shifts[0] - shifts[2]))


@pytest.mark.parametrize(("dose", "doses"), [(-1.0, [1.0]), (1.0, [0.0]), (1.0, [1.0, -2.0])])
def test_impossible_doses_are_named(dose, doses) -> None:
    with pytest.raises(ValueError, match="pass nonnegative doses"):
        metrics.baselines.dose_shift(dose, doses, np.zeros((len(doses), 2)))


def test_shifted_counts_keep_library_sizes_and_carry_the_change() -> None:
    rng = np.random.default_rng(5)
    control = rng.poisson(rng.gamma(2.0, size=60) * 3, size=(400, 60))
    shift = np.zeros(60)
    shift[:5], shift[5:10] = 0.7, -0.7
    moved = shift_counts(sparse.csr_matrix(control), shift)
    assert sparse.issparse(moved)
    assert (moved.data == np.rint(moved.data)).all() and (moved.data >= 0).all()
    np.testing.assert_allclose(moved.sum(), control.sum(), rtol=0.01)
    library, before = np.asarray(moved.sum(axis=1)).ravel(), control.sum(axis=1)
    assert np.abs(library - before).max() <= 5 * np.sqrt(60) / 2  # each entry is rounded, up or down
    expression = metrics.ExpressionSpace.fit(control).expression
    change = np.asarray(expression(moved).mean(0) - expression(control).mean(0)).ravel()
    assert fold_change_slope(shift, change, shift != 0) == pytest.approx(1, abs=0.15)


def test_shifted_counts_without_a_shift_are_the_counts() -> None:
    control = np.random.default_rng(6).poisson(2.0, size=(50, 8))
    same = shift_counts(sparse.csr_matrix(control), np.zeros(8)).toarray()
    assert (same != control).mean() < 0.01  # float32 may round a whole number to either side
    first, again, other = (shift_counts(sparse.csr_matrix(control), 0.3 + np.arange(8) / 9, seed=s) for s in (0, 0, 1))
    assert (first != again).nnz == 0 < (first != other).nnz


def test_similar_contexts_are_kernel_regression_with_the_leave_one_out_bandwidth() -> None:
    """Changes of two types of contexts: the nearest decide, so that the narrowest kernel does best; else all alike."""
    rng = np.random.default_rng(0)
    kinds = np.arange(8) % 2
    controls = 5.0 * kinds[:, None] + rng.normal(size=(8, 30))
    shifts = np.where(kinds[:, None] == 0, 1.0, -1.0) + 0.01 * rng.normal(size=(8, 30))
    found = baselines.context_shift(controls[0], controls[1:], shifts[1:])
    assert np.abs(found - 1).max() < 0.05
    shifts = 1 + rng.normal(size=(8, 30))
    distances = ((controls[1:] - controls[0]) ** 2).sum(1)
    weights = np.exp(-(distances / distances.min()) / max(baselines.BANDWIDTHS))
    expected = weights @ shifts[1:] / weights.sum()
    np.testing.assert_allclose(baselines.context_shift(controls[0], controls[1:], shifts[1:]), expected)


@pytest.fixture(scope="module")
def labelled() -> tuple[np.ndarray, np.ndarray]:
    """Two labels, three quarters of the genes driven by one factor; the last gene has no molecule."""
    rng = np.random.default_rng(0)
    labels = np.repeat(["b", "a"], [900, 700])
    rates = {label: rng.gamma(2.0, size=20) for label in "ab"}
    factor, depth = rng.normal(size=(1600, 1)), rng.gamma(8.0, size=(1600, 1)) / 8
    log_effects = 0.7 * factor * np.where(np.arange(20) < 15, rng.choice([-1, 1], 20), 0)
    counts = rng.poisson(np.array([rates[label] for label in labels]) * depth * np.exp(log_effects))
    counts[:, -1] = 0
    return counts, labels


def test_genes_keep_means_zeros_and_correlations_of_their_label(labelled) -> None:
    counts, labels = labelled
    drawn = gaussian_copula(counts, labels, labels, seed=1).toarray()
    for label in "ab":
        real, copula = counts[labels == label], drawn[labels == label]
        np.testing.assert_allclose(copula.mean(0), real.mean(0), rtol=0.2, atol=0.1)
        np.testing.assert_allclose((copula == 0).mean(0), (real == 0).mean(0), atol=0.07)
        upper = np.triu_indices(15, 1)
        correlations = [np.corrcoef(np.log1p(cells[:, :15]).T)[upper] for cells in (real, copula)]
        assert np.corrcoef(*correlations)[0, 1] > 0.9
        assert np.abs(correlations[1]).mean() > 0.7 * np.abs(correlations[0]).mean()
    assert drawn[:, -1].sum() <= 5


def test_library_sizes_are_those_of_the_label(labelled) -> None:
    counts, labels = labelled
    of_label = [counts[labels == label].sum(1) for label in "ab"]
    sizes = gaussian_copula(counts, labels, np.repeat(["a", "b"], 1500)).sum(axis=1).A1
    for known, drawn in zip(of_label, np.split(sizes, 2), strict=True):
        assert drawn.mean() == pytest.approx(known.mean(), rel=0.06)


def test_copula_is_seeded_sparse_and_keeps_the_order_of_labels(labelled) -> None:
    counts, labels = labelled
    first, again, other = (gaussian_copula(sparse.csr_matrix(counts), labels, [*"ba"] * 9, seed=s) for s in (0, 0, 1))
    assert sparse.issparse(first) and first.shape == (18, 20) and first.dtype == np.float32
    assert (first != again).nnz == 0 < (first != other).nnz
    assert gaussian_copula(counts, labels, []).shape == (0, 20)


def test_single_cells_extreme_counts_and_empty_cells_are_no_obstacle() -> None:
    counts = np.array([[100_000, 0, 3], [0, 0, 0], [1, 0, 2]])
    drawn = gaussian_copula(counts, ["huge", "empty", "small"], ["huge", "empty", "small"] * 20).toarray()
    assert np.isfinite(drawn).all() and (drawn[1::3] == 0).all()
    assert np.median(drawn[0::3, 0]) > 1000 > drawn[2::3].max()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels_out": ["a", "c"]}, "`labels_out` has 1 labels without training cells: c"),
        ({"labels": ["a"]}, "`labels` has shape"),
        ({"counts": [[0.5, 1.0], [2.0, 3.0]]}, "not whole numbers"),
    ],
)
def test_what_is_wrong_is_named(arguments, message: str) -> None:
    right = {"counts": [[1, 2], [3, 0]], "labels": ["a", "a"], "labels_out": ["a", "a"]}
    with pytest.raises(ValueError, match=message):
        gaussian_copula(**right | arguments)
