"""The expression space against scanpy and scikit-learn, and what it says of bad input."""

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse
from scipy.stats import ks_2samp
from sklearn.decomposition import PCA

from scdiffgen import metrics
from scdiffgen.metrics._genes import correlation_error_resampled, gene_moments, ks_resampled, mean_distance_resampled
from scdiffgen.metrics._input import as_counts
from scdiffgen.metrics._resampling import bootstrap_weights


@pytest.fixture
def adata() -> ad.AnnData:
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.5, size=30), size=(80, 30))
    counts[:, 0] += 1
    names = [f"g{i}" for i in range(30)]
    return ad.AnnData(sparse.csr_matrix(counts.astype(np.float32)), var=pd.DataFrame(index=names))


def test_expression_is_that_of_scanpy(adata) -> None:
    expected = adata.copy()
    sc.pp.normalize_total(expected, target_sum=1e4)
    sc.pp.log1p(expected)
    expression = metrics.ExpressionSpace.fit(adata).expression(adata)
    assert sparse.issparse(expression)
    np.testing.assert_allclose(expression.toarray(), expected.X.toarray(), rtol=1e-5)


def test_components_are_those_of_dense_pca(adata) -> None:
    train, other = adata[:60], adata[60:]
    space = metrics.ExpressionSpace.fit(train, n_pcs=5)
    pca = PCA(5, svd_solver="full").fit(space.expression(train).toarray())
    expected = pca.transform(space.expression(other).toarray())
    np.testing.assert_allclose(np.abs(space.pcs(other)), np.abs(expected), atol=1e-3)
    np.testing.assert_allclose(space.pcs(train).mean(0), 0, atol=1e-4)


def test_most_variable_genes_are_those_of_the_training_cells(adata) -> None:
    space = metrics.ExpressionSpace.fit(adata)
    variance = space.expression(adata).toarray().var(axis=0)
    np.testing.assert_array_equal(space.most_variable_genes(7), np.sort(np.argsort(-variance)[:7]))


def test_absent_genes_are_named(adata) -> None:
    space = metrics.ExpressionSpace.fit(adata)
    with pytest.raises(ValueError, match="`generated` lacks 2 of 30 genes: g3, g4"):
        space.pcs(adata[:, [i for i in range(30) if i not in (3, 4)]], name="generated")
    with pytest.raises(ValueError, match="has 29 genes, expected 30"):
        space.pcs(adata.X[:, 1:])
    with pytest.raises(TypeError, match="fitted on a matrix without gene names"):
        metrics.ExpressionSpace.fit(adata.X).pcs(adata)


def test_a_cell_without_molecules_has_no_expression(adata) -> None:
    empty = sparse.csr_matrix((1, 30))
    assert metrics.ExpressionSpace.fit(adata.X).expression(empty).nnz == 0


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
def test_counts_of_every_container_are_equal(container) -> None:
    counts = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(as_counts(container(counts)).toarray(), counts)


def test_counts_in_a_layer(adata) -> None:
    adata.layers["counts"] = adata.X.copy()
    adata.X = adata.X.copy()
    sc.pp.log1p(adata)
    with pytest.raises(ValueError, match="`real` holds .* not whole numbers .* Pass layer="):
        as_counts(adata, name="real")
    assert as_counts(adata, layer="counts", name="real").max() == adata.layers["counts"].max()
    with pytest.raises(ValueError, match=r"`layer`='raw' is not a layer of `real`: choose from \['counts'\]"):
        as_counts(adata, layer="raw", name="real")


def test_counts_in_x_are_compared_with_counts_in_a_layer(adata) -> None:
    halves = adata[::2].copy(), adata[1::2].copy()
    expected = metrics.evaluate(*halves, metrics=["mmd", "gene_correlation"], n_bootstrap=0).frame
    halves[0].layers["counts"] = halves[0].X.copy()
    sc.pp.log1p(halves[0])
    scores = metrics.evaluate(*halves, layer="counts", metrics=["mmd", "gene_correlation"], n_bootstrap=0).frame
    pd.testing.assert_frame_equal(scores, expected)


@pytest.mark.parametrize(
    ("value", "message"), [(-1.0, "1 negative values"), (np.nan, "1 values that are NaN"), (0.5, "first: 0.5")]
)
def test_values_that_are_no_counts_are_refused(value, message) -> None:
    with pytest.raises(ValueError, match=message):
        as_counts(np.array([[1.0, value]]))


def test_repeated_gene_names_are_refused(adata) -> None:
    space = metrics.ExpressionSpace.fit(adata)
    adata.var_names = ["g1", *adata.var_names[1:]]
    with pytest.raises(ValueError, match=r"repeated gene names \(first: 'g1'\)"):
        space.pcs(adata)


def test_unsorted_indices_are_read_right_and_left_alone() -> None:
    rng = np.random.default_rng(0)
    dense = rng.poisson(1.0, size=(30, 12)).astype(np.float64)
    matrix = sparse.csr_matrix(dense)[:, ::-1]  # columns in falling order within each row
    assert not matrix.has_sorted_indices
    kept = matrix.copy()
    np.testing.assert_array_equal(as_counts(matrix).toarray(), dense[:, ::-1])
    other = sparse.csr_matrix(rng.poisson(2.0, size=(30, 12)).astype(np.float64))
    error = metrics.gene_correlation_error
    assert error(matrix, other) == error(dense[:, ::-1], other)
    np.testing.assert_array_equal(matrix.indices, kept.indices)
    np.testing.assert_array_equal(matrix.data, kept.data)


def test_anndata_is_aligned_by_gene_name(adata) -> None:
    space = metrics.ExpressionSpace.fit(adata, n_pcs=4)
    np.testing.assert_allclose(space.pcs(adata[:, ::-1].copy()), space.pcs(adata))


def test_entries_given_twice_are_added_up() -> None:
    twice = sparse.csr_matrix((np.float32([1, 2, 4]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 30))
    np.testing.assert_array_equal(as_counts(twice).data, [3, 4])


@pytest.fixture
def pair() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    rates = 0.3 + rng.gamma(1.0, size=25)
    return rng.poisson(rates, size=(60, 25)).astype(float), rng.poisson(1.5 * rates, size=(50, 25)).astype(float)


def test_gene_correlation_error_is_that_of_numpy(pair) -> None:
    x, y = pair
    genes = [1, 4, 7, 9]
    upper = np.triu_indices(4, 1)
    expected = np.abs(np.corrcoef(x[:, genes].T)[upper] - np.corrcoef(y[:, genes].T)[upper]).mean()
    assert metrics.gene_correlation_error(x, y, genes=genes) == pytest.approx(expected)
    assert metrics.gene_correlation_error(sparse.csr_matrix(x), sparse.csr_matrix(y), genes=genes) == pytest.approx(
        expected
    )


def test_a_constant_gene_correlates_with_none(pair) -> None:
    x, y = pair
    x[:, 0] = y[:, 0] = 3.0
    upper = np.triu_indices(24, 1)
    rest = np.abs(np.corrcoef(x[:, 1:].T)[upper] - np.corrcoef(y[:, 1:].T)[upper]).sum()
    assert metrics.gene_correlation_error(x, y) == pytest.approx(rest / (25 * 24 / 2))


def test_distance_of_means_is_unbiased_for_few_cells() -> None:
    shifts, spread = np.array([0.0, 1.0, 0.5, 0.0]), np.array([0.5, 2.0, 1.0, 3.0])
    found = []
    for seed in range(300):
        x, y = np.random.default_rng(seed).normal(size=(2, 20, 4)) * spread
        found.append(mean_distance_resampled(x, y + shifts, np.ones((1, 20)), np.ones((1, 20)))[0])
    expected = (shifts**2 / spread**2).sum()
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / 300**0.5 + 0.05 * expected)


def test_weights_are_repeats(pair) -> None:
    x, y = pair
    rng = np.random.default_rng(1)
    wx, wy = bootstrap_weights(60, 4, rng), bootstrap_weights(50, 4, rng)
    moments = gene_moments(x, wx)
    ks, error = ks_resampled(x.sum(1), y.sum(1), wx, wy), correlation_error_resampled(x, y, wx, wy)
    for row in range(5):
        a, b = x[np.repeat(np.arange(60), wx[row].astype(int))], y[np.repeat(np.arange(50), wy[row].astype(int))]
        np.testing.assert_allclose(moments["mean"][row], a.mean(0))
        np.testing.assert_allclose(moments["variance"][row], a.var(0), atol=1e-12)
        np.testing.assert_allclose(moments["zero_fraction"][row], (a == 0).mean(0), atol=1e-12)
        assert ks[row] == pytest.approx(ks_2samp(a.sum(1), b.sum(1)).statistic)
        assert error[row] == pytest.approx(metrics.gene_correlation_error(a, b))


def test_moments_leave_unsorted_indices_alone(pair) -> None:
    matrix = sparse.csr_matrix(pair[0].astype(np.float32))[:, ::-1]
    kept = matrix.toarray()
    for _ in range(2):
        np.testing.assert_allclose(gene_moments(matrix, np.ones((1, 60)))["variance"][0], kept.var(0), rtol=1e-5)
        np.testing.assert_array_equal(matrix.toarray(), kept)


def test_too_few_cells_are_nan_with_a_warning(pair) -> None:
    x, _ = pair
    with pytest.warns(metrics.FewCellsWarning, match="gene_correlation_error needs 3 cells, `generated` has 2"):
        assert np.isnan(metrics.gene_correlation_error(x, x[:2]))
