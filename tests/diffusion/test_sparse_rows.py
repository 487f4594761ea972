"""Sums over CSR tensors against NumPy and SciPy."""

import numpy as np
import pytest
import torch
from csr import csr
from scipy import sparse

from scdiffgen.diffusion import column_sums, row_sums
from scdiffgen.diffusion._blocks import row_indices, with_values

COUNTS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [5, 0, 0, 3], [0, 0, 0, 0]])


def test_rows_and_columns_of_stored_values_are_scipys() -> None:
    expected = sparse.coo_matrix(COUNTS)
    np.testing.assert_array_equal(row_indices(csr(COUNTS)), expected.row)
    np.testing.assert_array_equal(csr(COUNTS).col_indices(), expected.col)


@pytest.mark.parametrize("stored_zeros", [False, True])
def test_sums_are_those_of_the_dense_matrix(stored_zeros: bool) -> None:
    counts = csr(COUNTS, stored_zeros=stored_zeros)
    np.testing.assert_array_equal(row_sums(counts, counts.values()), COUNTS.sum(1))
    np.testing.assert_array_equal(row_sums(counts, counts.values() ** 2), (COUNTS**2).sum(1))
    np.testing.assert_array_equal(column_sums(counts), COUNTS.sum(0))


def test_a_matrix_without_a_stored_value_has_sums_of_zero() -> None:
    empty = csr(np.zeros((3, 2)))
    assert row_sums(empty, empty.values()).tolist() == [0, 0, 0]
    assert column_sums(empty).tolist() == [0, 0]


def test_other_values_stand_where_the_old_ones_did() -> None:
    counts = csr(COUNTS)
    torch.testing.assert_close(with_values(counts, 2 * counts.values()).to_dense(), 2 * counts.to_dense())
