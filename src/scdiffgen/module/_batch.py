"""The counts of minibatches of scvi-tools' data loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from scdiffgen.diffusion import column_sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor


def counts_from_batch(tensors: Mapping[str, Tensor]) -> Tensor:
    """Counts of the cells of a minibatch, as a CSR tensor ``(cells, genes)`` whichever way they were loaded."""
    counts = tensors["X"]
    return counts if counts.layout == torch.sparse_csr else counts.to_sparse_csr()


def gene_frequencies(batches: Iterable[Tensor], n_vars: int) -> Tensor:
    """Share of all molecules of CSR counts that each gene has ``(genes,)``, half a molecule added to each."""
    total = np.zeros(n_vars)
    for counts in batches:
        total += column_sums(counts).cpu().numpy()
    return torch.from_numpy((total + 0.5) / (total + 0.5).sum()).float()
