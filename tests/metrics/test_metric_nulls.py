"""Null generators and the likelihoods at the label mean against scipy and the data they come from."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.stats import chisquare, dirichlet_multinomial, multinomial

from scdiffgen import metrics


@pytest.fixture
def labelled() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(["b", "a"], [40, 30])
    rates = {c: 0.3 + rng.gamma(1.0, size=15) for c in "ab"}
    depth = rng.gamma(5.0, size=70) / 5
    return np.array([rng.poisson(rates[c] * d) for c, d in zip(labels, depth, strict=True)]), labels


def test_poisson_null_has_the_means_and_variances_of_a_poisson(labelled) -> None:
    counts, labels = labelled
    out = np.random.default_rng(1).permutation(np.repeat(["a", "b"], 4000))
    drawn = metrics.baselines.null_poisson(counts, labels, out).toarray()
    for label in "ab":
        mean, sample = counts[labels == label].mean(0), drawn[out == label]
        error = np.sqrt(mean / 4000) + 1e-9
        assert (np.abs(sample.mean(0) - mean) < 4 * error).all()
        np.testing.assert_allclose(sample.var(0), mean, rtol=0.15, atol=0.05)


def test_shuffled_null_draws_the_values_of_every_gene_without_correlation(labelled) -> None:
    counts, labels = labelled
    out = np.random.default_rng(1).permutation(np.repeat(["a", "b"], 4000))
    drawn = metrics.baselines.null_shuffled(counts, labels, out).toarray()
    for label in "ab":
        real, null = counts[labels == label], drawn[out == label]
        for gene in range(15):
            values, times = np.unique(real[:, gene], return_counts=True)
            found = (null[:, gene, None] == values).sum(0)
            assert chisquare(found, times / times.sum() * 4000).pvalue > 1e-4
        np.testing.assert_allclose(np.corrcoef(null.T)[np.triu_indices(15, 1)], 0, atol=0.07)


def test_linear_classifier_sees_the_noise_of_the_means_of_few_cells() -> None:
    """It was blind to it where values were shuffled: what it is tested on lacks those that it is trained on."""
    aucs = []
    for seed in range(4):
        real, other = np.random.default_rng(seed).poisson(0.3, size=(2, 200, 400))
        drawn = metrics.baselines.null_shuffled(other, ["a"] * 200, ["a"] * 200, seed=seed).toarray()
        aucs.append(metrics.classifier_auc(np.log1p(real), np.log1p(drawn), classifier="logistic"))
    assert np.mean(aucs) > 0.6


@pytest.mark.parametrize("null", [metrics.baselines.null_poisson, metrics.baselines.null_shuffled])
def test_nulls_are_seeded_sparse_and_name_unknown_labels(labelled, null) -> None:
    counts, labels = labelled
    first, again, other = (null(sparse.csr_matrix(counts), labels, labels, seed=s) for s in (0, 0, 1))
    assert sparse.issparse(first)
    assert (first != again).nnz == 0 < (first != other).nnz
    with pytest.raises(ValueError, match="`labels_out` has 1 labels without training cells: c"):
        null(counts, labels, ["a", "c"])
    with pytest.raises(ValueError, match="`labels` has shape"):
        null(counts, labels[1:], ["a"])
    assert null(counts, labels, []).shape == (0, 15)


def test_halves_share_the_labels_and_no_cell() -> None:
    labels = np.repeat(["a", "b", "c"], [20, 7, 1])
    first, second = metrics.split_halves(labels, seed=1)
    assert sorted([*first, *second]) == list(range(28))
    for label in "abc":
        assert abs((labels[first] == label).sum() - (labels[second] == label).sum()) <= 1
    assert not np.array_equal(first, metrics.split_halves(labels, seed=2)[0])


def test_multinomial_likelihood_is_that_of_scipy(labelled) -> None:
    counts, labels = labelled
    train, held_out = np.arange(70) % 2 == 0, np.arange(70) % 2 == 1
    nll = metrics.dirichlet_multinomial_nll(
        counts[held_out], labels[held_out], counts[train], labels[train], concentration=np.inf
    )
    expected, surprise = [], 0.0
    for cell, label in zip(counts[held_out], labels[held_out], strict=True):
        total = counts[train & (labels == label)].sum(0) + 1.0
        expected.append(-multinomial.logpmf(cell, cell.sum(), total / total.sum()))
        surprise -= cell @ np.log(total / total.sum())
    np.testing.assert_allclose(nll.cells, expected)
    assert nll.per_cell == pytest.approx(np.mean(expected))
    assert nll.per_molecule == pytest.approx(surprise / counts[held_out].sum())


def test_dirichlet_multinomial_likelihood_is_that_of_scipy(labelled) -> None:
    plain, labels = labelled
    rng, train, held_out = np.random.default_rng(3), np.arange(70) % 2 == 0, np.arange(70) % 2 == 1
    concentration = {"a": 3.0, "b": 30.0}
    shares = [rng.dirichlet(concentration[c] * np.linspace(0.5, 1.5, 15) / 15) for c in labels]
    counts = np.array([rng.multinomial(n, share) for n, share in zip(plain.sum(1), shares, strict=True)])
    arguments = counts[held_out], labels[held_out], counts[train], labels[train]
    nll = metrics.dirichlet_multinomial_nll(*arguments)
    expected = np.empty(held_out.sum())
    for label in "ab":
        known, new = (counts[side & (labels == label)] for side in (train, held_out))
        mean = (known.sum(0) + 1.0) / (known.sum(0) + 1.0).sum()

        def cost(log_total: float, known=known, mean=mean) -> float:
            return -dirichlet_multinomial.logpmf(known, np.exp(log_total) * mean, known.sum(1)).sum()

        total = np.exp(minimize_scalar(cost, bracket=(1.0, 5.0)).x)
        expected[labels[held_out] == label] = -dirichlet_multinomial.logpmf(new, total * mean, new.sum(1))
    np.testing.assert_allclose(nll.cells, expected, rtol=1e-3)
    assert nll.per_cell == pytest.approx(np.mean(expected), rel=1e-4)
    other = metrics.dirichlet_multinomial_nll(*arguments, concentration=np.inf)  # has the same coefficients
    gain = (other.cells - nll.cells).sum() / counts[held_out].sum()
    assert nll.per_molecule == pytest.approx(other.per_molecule - gain)


def test_labels_of_one_cell_or_of_cells_without_molecules_have_a_likelihood() -> None:
    train, labels = np.array([[3, 1, 0], [0, 0, 0], [0, 0, 1]]), ["one", "empty", "single"]
    nll = metrics.dirichlet_multinomial_nll(np.array([[2, 2, 1]] * 3), labels, train, labels)
    assert np.isfinite(nll.cells).all() and (nll.cells > 0).all()


@pytest.mark.parametrize("concentration", [np.inf, 30.0, None])
def test_likelihoods_align_genes_and_name_what_is_wrong(labelled, concentration: float | None) -> None:
    likelihood = partial(metrics.dirichlet_multinomial_nll, concentration=concentration)
    ad = pytest.importorskip("anndata")
    counts, labels = labelled
    adata = ad.AnnData(sparse.csr_matrix(counts.astype(np.float32)))
    plain = likelihood(adata, labels, adata, labels)
    assert likelihood(adata[:, ::-1].copy(), labels, adata, labels).per_cell == pytest.approx(plain.per_cell)
    with pytest.raises(ValueError, match="without training cells: b"):
        likelihood(counts, labels, counts[labels == "a"], labels[labels == "a"])
