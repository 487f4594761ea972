"""The counts of minibatches of scvi-tools' data loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from scdiffgen.diffusion import column_sums, side_by_side, with_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor


def counts_from_batch(tensors: Mapping[str, Tensor], keys: Sequence[str]) -> Tensor:
    """CSR counts ``(cells, genes)``, loaded dense or sparse; those of several modalities are laid side by side."""
    parts = [tensors[key] for key in keys]
    return side_by_side([part if part.layout == torch.sparse_csr else part.to_sparse_csr() for part in parts])


def gene_frequencies(batches: Iterable[tuple[Tensor, Tensor]], n_vars: int) -> Tensor:
    """Share of all molecules that each gene has ``(genes,)``, half a molecule added to each.

    Batches are CSR counts and which of the cells to count ``(cells,)``; if there are none in any, all are counted.
    """
    of_all, of_chosen = np.zeros(n_vars), np.zeros(n_vars)
    for counts, chosen in batches:
        of_value = torch.repeat_interleave(chosen, counts.crow_indices().diff())
        of_all += column_sums(counts).cpu().numpy()
        of_chosen += column_sums(with_values(counts, counts.values() * of_value)).cpu().numpy()
    total = of_chosen if of_chosen.any() else of_all
    return torch.from_numpy((total + 0.5) / (total + 0.5).sum()).float()
