"""The expression space against scanpy and scikit-learn, and what it says of bad input."""

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse
from sklearn.decomposition import PCA

from scdiffgen import metrics
from scdiffgen.metrics._input import as_counts


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


def test_cells_without_layers_are_compared_with_cells_whose_counts_are_in_one(adata) -> None:
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
