"""Draws of molecules: with replacement, sequentially from an urn (on CPUs compiled), and by maximal coupling."""

from typing import no_type_check

import numpy as np
import torch
import torch.nn.functional as F
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

Rng = torch.Generator | None
"""Random number generator; None is the global generator of torch."""


def draw_molecules(log_prob: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
    """Draw ``n_molecules`` ``(cells,)`` genes per cell with replacement: flat positions ``cell * n_genes + gene``."""
    return _positions(log_prob.exp(), n_molecules, generator)


def draw_from_urn(rates: Tensor, weights: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
    """Draw molecules sequentially from an urn; each molecule adds ``weights`` ``(genes,)`` to the rate of its gene."""
    # Molecule i is drawn from the initial rates, of sum R, or copies an earlier new molecule j, in the ratio R to w_j.
    # By rejection: draw a point in R + i max(w), and draw again if it lies beyond the w_j of molecule j. All molecules
    # are drawn in parallel; a molecule that copies an undetermined one waits for it.
    drawn = _positions(rates, n_molecules, generator)
    shares = weights / weights.max().clamp(min=torch.finfo(weights.dtype).tiny)
    rows = torch.repeat_interleave(n_molecules, output_size=len(drawn))
    total = (rates.sum(1).double() / weights.max())[rows]
    first = (n_molecules.cumsum(0) - n_molecules)[rows]
    order = torch.arange(len(drawn), device=drawn.device) - first
    determined = torch.zeros(len(drawn), dtype=torch.bool, device=drawn.device)
    waiting = torch.arange(len(drawn), device=drawn.device)
    place = _point(total, order, generator)
    while len(waiting):
        at, before = place[waiting], order[waiting]
        fresh = at >= before
        source = first[waiting] + torch.where(fresh, 0, at.long())
        ready = determined[source] & ~fresh
        copied = ready & (at - at.floor() < shares[drawn[source] % rates.shape[1]])
        drawn[waiting] = torch.where(copied, drawn[source], drawn[waiting])
        determined[waiting] = done = fresh | copied
        again = waiting[ready & ~copied]
        place[again] = _point(total[again], order[again], generator)
        waiting = waiting[~done]
    return drawn


def draw_by_gamma(rates: Tensor, weights: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
    """Draw from an urn with weights ``(cells, genes)`` by gamma-distributed shares :cite:p:`blackwell1973ferguson`."""
    # Shares are ratios of gamma variables with mean r_g and variance r_g w_g: exact if all weights are equal.
    weights = weights.clamp(min=1e-6)  # the shares hardly vary at this weight
    shares = torch._standard_gamma(rates / weights, generator=generator) * weights
    return _positions(shares.clamp(min=torch.finfo(shares.dtype).tiny), n_molecules, generator)


def couple_molecules(counts: Tensor, source: Tensor, target: Tensor, generator: Rng = None) -> Tensor:
    """Resample molecules of ``counts`` ``(cells, genes)`` by maximal coupling :cite:p:`thorisson2000coupling`."""
    # A molecule drawn from pi is kept with probability min(1, pi'_g / pi_g), else resampled from (pi' - pi)_+. This
    # changes the fewest molecules. Source and target are log-probabilities up to a constant per cell.
    source, target = source.log_softmax(1), target.log_softmax(1)
    kept = torch.binomial(counts, (target - source).exp().clamp(max=1), generator=generator)
    removed = (counts - kept).sum(1).round().long()
    excess = (target.exp() - source.exp()).clamp(min=0)
    # if rounding leaves no excess, molecules are resampled from the target itself
    replacement = torch.where(excess.sum(1, keepdim=True) > 0, excess.log(), target)
    drawn = draw_molecules(replacement, removed, generator)
    return kept.view(-1).index_add(0, drawn, torch.ones_like(drawn, dtype=kept.dtype)).view_as(kept)


def _point(total: Tensor, order: Tensor, generator: Rng) -> Tensor:
    """Draw a point in [0, order + total): below ``order`` it is an earlier molecule, above it the initial urn."""
    uniform = torch.rand(len(order), generator=generator, device=order.device, dtype=torch.float64)
    return torch.where(total.isinf(), order, uniform * (total + order))


def _positions(rates: Tensor, n_molecules: Tensor, generator: Rng) -> Tensor:
    n_genes = rates.shape[1]
    shares = rates / rates.sum(1, keepdim=True).clamp(min=torch.finfo(rates.dtype).tiny)  # rates may differ by e^80
    cumulative = shares.flatten().double().cumsum_(0)
    ends = cumulative[n_genes - 1 :: n_genes]
    starts = F.pad(ends[:-1], (1, 0))
    rows = torch.repeat_interleave(n_molecules)
    uniform = torch.rand(len(rows), generator=generator, device=rows.device, dtype=torch.float64)
    drawn = torch.searchsorted(cumulative, torch.addcmul(starts[rows], uniform, (ends - starts)[rows]), right=True)
    return torch.minimum(drawn, (rows + 1) * n_genes - 1)


Rows = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""CSR matrix: start of each cell, genes, counts."""


def add_from_urns(
    state: Tensor, prior: Tensor, concentration: Tensor, weights: Tensor, n_molecules: Tensor, generator: Rng = None
) -> Tensor:
    r"""Add ``n_molecules`` ``(cells,)`` to CSR cells in one compiled pass without dense rates; genes are unsorted.

    ``prior`` ``(cells, genes)`` may be unnormalised; ``concentration`` is ``(cells,)`` and ``weights`` ``(genes,)``.
    Rates of the next molecule, :math:`A \, p_g + w_g x_g`, are a mixture (Blackwell-MacQueen urn): with probability
    :math:`A / (A + \sum_g w_g x_g)` the molecule is drawn from the prior :math:`p`, otherwise it copies the gene of a
    molecule that is present, in proportion to the weights :math:`w_g` :cite:p:`blackwell1973ferguson`.
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
