"""The linear Gaussian copula as a baseline: counts that look like the training cells, of any library size."""

import numpy as np
import pytest
from scipy import sparse

from scdiffgen.metrics.baselines import gaussian_copula


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
