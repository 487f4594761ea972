"""Sums and conversions of CSR tensors, and their columns of one or several modalities."""

import warnings
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from scipy import sparse
from torch import Tensor

with warnings.catch_warnings():  # hide torch's warning, once per process, that CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1), (1, 1))


def row_indices(counts: Tensor) -> Tensor:
    """Return the row of every stored value ``(stored values,)`` of a CSR tensor."""
    return torch.repeat_interleave(counts.crow_indices().diff(), output_size=counts.values().numel())


def row_sums(counts: Tensor, values: Tensor) -> Tensor:
    """Sum ``values`` at the stored positions of a CSR tensor by row ``(cells,)``."""
    return values.new_zeros(counts.shape[0]).index_add_(0, row_indices(counts), values)


def with_values(counts: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_csr_tensor(counts.crow_indices(), counts.col_indices(), values, counts.shape)


def to_scipy(counts: Tensor) -> sparse.csr_matrix:
    parts = (part.cpu().numpy() for part in (counts.values(), counts.col_indices(), counts.crow_indices()))
    return sparse.csr_matrix(tuple(parts), shape=tuple(counts.shape))


def column_sums(counts: Tensor) -> Tensor:
    """Sum a CSR tensor by column ``(genes,)``."""
    values = counts.values()
    return values.new_zeros(counts.shape[1]).index_add_(0, counts.col_indices(), values)


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate CSR tensors of the same cells by column, keeping the order within each row."""
    first, *others = parts
    if not others:
        return first
    n_stored = sum(part.values().numel() for part in parts)
    crow = torch.stack([part.crow_indices().long() for part in parts]).sum(0)
    columns = torch.empty(n_stored, dtype=torch.long, device=first.device)
    values = first.values().new_empty(n_stored)
    free, n_columns = crow[:-1].clone(), 0  # next free place of each row
    for part in parts:
        begin = part.crow_indices().long()
        place = torch.arange(part.values().numel(), device=first.device) + (free - begin[:-1])[row_indices(part)]
        columns[place], values[place] = part.col_indices().long() + n_columns, part.values()
        free, n_columns = free + begin.diff(), n_columns + part.shape[1]
    return torch.sparse_csr_tensor(crow, columns, values, (first.shape[0], n_columns))


class Blocks(NamedTuple):
    """Numbers of columns of the modalities, in the order of the columns.

    Sums are ``(cells,)`` for one modality, and ``(cells, modalities)`` for several.
    """

    sizes: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        return [0, *accumulate(self.sizes)][:-1]

    @property
    def slices(self) -> list[slice]:
        return [slice(start, start + size) for start, size in zip(self.starts, self.sizes, strict=True)]

    def split(self, cells: sparse.csr_matrix) -> list[sparse.csr_matrix]:
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
