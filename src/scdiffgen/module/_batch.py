"""The counts of a minibatch of scvi-tools' data loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def counts_from_batch(tensors: Mapping[str, Tensor]) -> Tensor:
    """Counts of the cells of a minibatch, as a CSR tensor ``(cells, genes)`` whichever way they were loaded."""
    counts = tensors["X"]
    return counts if counts.layout == torch.sparse_csr else counts.to_sparse_csr()
