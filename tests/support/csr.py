"""Counts as the package handles them: CSR tensors, whose stored values may be zero."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

import scdiffgen.diffusion  # noqa: F401  keeps torch from saying that CSR tensors are young


def csr(counts: ArrayLike, *, stored_zeros: bool = False) -> Tensor:
    """Make a CSR tensor of counts ``(cells, genes)``; ``stored_zeros`` stores every zero as well."""
    dense = torch.as_tensor(np.asarray(counts, dtype=np.float32))
    if not stored_zeros:
        return dense.to_sparse_csr()
    n_cells, n_genes = dense.shape
    columns = torch.arange(n_genes).repeat(n_cells)
    return torch.sparse_csr_tensor(torch.arange(n_cells + 1) * n_genes, columns, dense.flatten(), dense.shape)


def doubled_entries(x: np.ndarray) -> sparse.csr_matrix:
    """Each count stored as two entries of the same place, as some tools leave them."""
    halves = sparse.csr_matrix(
        np.repeat(np.floor(x / 2), 2, axis=1) + np.tile([0, 1], x.shape[1]) * np.repeat(x % 2, 2, 1)
    )
    return sparse.csr_matrix((halves.data, halves.indices // 2, halves.indptr), shape=x.shape)
