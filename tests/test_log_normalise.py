"""The one log-normalisation against scanpy, and what it keeps."""

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
from scipy import sparse

from scdiffgen._log_normalise import log_normalise

COUNTS = np.random.default_rng(0).poisson(1.0, size=(20, 9))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
def test_expression_is_that_of_scanpy(kind, dtype) -> None:
    cells = ad.AnnData(COUNTS.astype(np.float64))
    sc.pp.normalize_total(cells, target_sum=500)
    sc.pp.log1p(cells)
    counts = kind(COUNTS.astype(dtype))
    found = log_normalise(counts, 500)
    assert sparse.issparse(found) == sparse.issparse(counts) and found.dtype == np.float64
    np.testing.assert_allclose(found.toarray() if sparse.issparse(found) else found, cells.X, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_and_sparse_are_the_same_to_the_bit(dtype) -> None:
    dense, held = (log_normalise(kind(COUNTS), dtype=dtype) for kind in (np.asarray, sparse.csr_matrix))
    assert dense.dtype == held.dtype == dtype
    np.testing.assert_array_equal(held.toarray(), dense)
    assert held.nnz == (COUNTS > 0).sum()


def test_cells_without_molecules_stay_zero_and_counts_stay_as_they_are() -> None:
    counts = sparse.csr_matrix(np.array([[0.0, 0.0], [1.0, 3.0]]))
    np.testing.assert_array_equal(log_normalise(counts).toarray()[0], 0)
    np.testing.assert_array_equal(log_normalise(counts.toarray())[0], 0)
    np.testing.assert_array_equal(counts.data, [1, 3])


def test_library_sizes_may_be_given() -> None:
    np.testing.assert_allclose(log_normalise(COUNTS[:, :2], library=COUNTS.sum(1)), log_normalise(COUNTS)[:, :2])
