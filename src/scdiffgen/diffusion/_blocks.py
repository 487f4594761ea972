"""Columns of cells with one or several modalities, such as genes and protein tags."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from ._sparse import row_indices, with_values


class Blocks(NamedTuple):
    """Numbers of columns of the modalities, in the order of the columns.

    Sums are ``(cells,)`` for one modality, and ``(cells, modalities)`` for several.
    """

    sizes: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        """First column of each block."""
        return [0, *accumulate(self.sizes)][:-1]

    @property
    def slices(self) -> list[slice]:
        """Columns of each block."""
        return [slice(start, start + size) for start, size in zip(self.starts, self.sizes, strict=True)]

    def split(self, cells: csr_matrix) -> list[csr_matrix]:
        """Split cells ``(cells, columns)`` by modality."""
        return [cells[:, columns] for columns in self.slices]

    def places(self, counts: Tensor) -> Tensor:
        """Compute the flat position in ``(cells, modalities)`` of every stored value of a CSR tensor."""
        rows = row_indices(counts)
        if len(self.sizes) == 1:
            return rows
        ends, columns = torch.tensor(list(accumulate(self.sizes)), device=counts.device), counts.col_indices()
        return rows * len(self.sizes) + torch.searchsorted(ends, columns.long(), right=True)

    def sums(self, counts: Tensor, values: Tensor) -> Tensor:
        """Sum ``values`` at the stored positions of a CSR tensor by modality."""
        total = values.new_zeros(counts.shape[0] * len(self.sizes)).index_add_(0, self.places(counts), values)
        return total if len(self.sizes) == 1 else total.unflatten(0, (counts.shape[0], len(self.sizes)))

    def library(self, counts: Tensor) -> Tensor:
        """Sum the molecules of CSR counts by modality."""
        return self.sums(counts, counts.values())

    def dense_sums(self, state: Tensor) -> Tensor:
        """Sum a dense tensor ``(cells, columns)`` by modality."""
        sums = [block.sum(1) for block in state.split(self.sizes, 1)]
        return sums[0] if len(sums) == 1 else torch.stack(sums, dim=1)

    def without(self, counts: Tensor, modalities: Tensor) -> Tensor:
        """Remove the counts of some ``modalities`` ``(cells, modalities)`` from CSR counts."""
        return with_values(counts, counts.values() * ~modalities.flatten()[self.places(counts)])

    def side_by_side(self, positions: Sequence[Tensor]) -> Tensor:
        """Convert flat positions within each block to flat positions in ``(cells, columns)``."""
        n_columns = sum(self.sizes)
        blocks = zip(positions, self.sizes, self.starts, strict=True)
        return torch.cat([at // size * n_columns + start + at % size for at, size, start in blocks])
