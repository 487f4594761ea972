r"""Urn sampling on the CPU in one compiled pass over sparse cells, without dense rates.

The rates of the next molecule, :math:`A \, p_g + w_g x_g`, are a mixture (Blackwell-MacQueen urn): with probability
:math:`A / (A + \sum_g w_g x_g)` the molecule is drawn from the prior :math:`p`, otherwise it copies the gene of a
molecule that is present, in proportion to the weights :math:`w_g` :cite:p:`blackwell1973ferguson`.
"""

from typing import no_type_check

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from ._draws import Rng

Rows = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""CSR matrix: start of each cell, genes, counts."""


def add_from_urns(
    state: Tensor,
    prior: Tensor,
    concentration: Tensor,
    weights: Tensor,
    n_molecules: Tensor,
    generator: Rng = None,
) -> Tensor:
    """Add ``n_molecules`` ``(cells,)`` sequentially to CSR cells; the genes of a cell are returned unsorted.

    ``prior`` ``(cells, genes)`` may be unnormalised; ``concentration`` is ``(cells,)`` and ``weights`` ``(genes,)``.
    """
    uniform = torch.rand(int(n_molecules.sum()), generator=generator, dtype=torch.float64)
    urn = prior.float(), concentration.double(), weights.double(), n_molecules, uniform
    cells = state.crow_indices().long(), state.col_indices().long(), state.values()
    parts = _add_molecules(*(tensor.detach().numpy() for tensor in (*urn, *cells)))
    rows, columns, values = map(torch.from_numpy, parts)
    return torch.sparse_csr_tensor(rows, columns, values, state.shape)


@njit(cache=True)  # compiled once in less than a second, as in scanpy
@no_type_check  # excludes the shape checks of tests from compilation
def _add_molecules(
    prior: NDArray[np.float32],
    concentration: NDArray[np.float64],
    weights: NDArray[np.float64],
    n_molecules: NDArray[np.int64],
    uniform: NDArray[np.float64],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    values: NDArray[np.float32],
) -> Rows:
    n_cells, n_genes = prior.shape
    new_rows = np.zeros(n_cells + 1, np.int64)
    new_columns = np.empty(len(columns) + len(uniform), np.int64)
    new_values = np.zeros(len(new_columns), values.dtype)
    place = np.full(n_genes, -1)  # position of each gene of the cell in the new columns
    prior_sums = np.empty(n_genes)
    end = drawn = 0
    for cell in range(n_cells):
        prior_sum = 0.0
        for gene in range(n_genes):
            prior_sum += prior[cell, gene]
            prior_sums[gene] = prior_sum
        n_stored, weight = rows[cell + 1] - rows[cell], 0.0
        present = np.empty(n_stored + n_molecules[cell], np.int64)  # genes that may be copied
        weight_sums = np.empty(len(present))
        for entry in range(len(present)):
            count = 1
            if entry < n_stored:
                gene, count = columns[rows[cell] + entry], values[rows[cell] + entry]
            else:
                at = uniform[drawn] * (concentration[cell] + weight)
                drawn += 1
                if at >= concentration[cell]:  # False if any value is NaN
                    gene = present[_first_above(weight_sums, entry, at - concentration[cell])]
                else:
                    gene = _first_above(prior_sums, n_genes, at / concentration[cell] * prior_sum)
            if place[gene] < 0:
                place[gene], new_columns[end] = end, gene
                end += 1
            new_values[place[gene]] += count
            weight += weights[gene] * count
            present[entry], weight_sums[entry] = gene, weight
        for stored in range(new_rows[cell], end):
            place[new_columns[stored]] = -1
        new_rows[cell + 1] = end
    return new_rows, new_columns[:end], new_values[:end]


@njit(cache=True)
@no_type_check
def _first_above(sums: NDArray[np.float64], n: int, at: float) -> int:
    """Find the first of ``n`` ascending sums that exceeds ``at`` by bisection, or the last sum."""
    low, high = 0, n - 1
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > at:
            high = middle
        else:
            low = middle + 1
    return low
