"""Drawing molecules: all from one distribution, one after the other from an urn, or some of those of a cell anew."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST_WEIGHT = 1e-6
"""Weights below count as this, with which shares hardly vary."""


def draw_molecules(log_prob: Tensor, n_molecules: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw ``n_molecules`` ``(cells,)`` genes a cell from ``log_prob`` ``(cells, genes)``, with replacement.

    Inverse CDF; returns the flat positions ``cell * n_genes + gene`` ``(molecules,)``, cell after cell.
    """
    return _positions(log_prob.exp(), n_molecules, generator)


def draw_from_urn(
    rates: Tensor, weights: Tensor, n_molecules: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    r"""The same from an urn: each drawn molecule adds ``weights`` ``(genes,)`` to the rate of its gene.

    Molecule :math:`i` is drawn by the first ``rates``, of sum :math:`R`, or copies an earlier new molecule :math:`j`,
    in the ratios :math:`R` to :math:`w_j`: it points at random into :math:`R + i \max w`, and again if it lies beyond
    the :math:`w_j` of a molecule. All molecules point at once; those that point at an unknown one wait for it.
    """
    drawn = _positions(rates, n_molecules, generator)
    shares = weights / weights.max().clamp(min=torch.finfo(weights.dtype).tiny)
    rows = torch.repeat_interleave(n_molecules, output_size=len(drawn))
    total = (rates.sum(1).double() / weights.max())[rows]
    first = (n_molecules.cumsum(0) - n_molecules)[rows]
    order = torch.arange(len(drawn), device=drawn.device) - first
    known = torch.zeros(len(drawn), dtype=torch.bool, device=drawn.device)
    waiting = torch.arange(len(drawn), device=drawn.device)
    place = _point(total, order, generator)
    while len(waiting):
        at, before = place[waiting], order[waiting]
        fresh = at >= before
        source = first[waiting] + torch.where(fresh, 0, at.long())
        ready = known[source] & ~fresh
        copied = ready & (at - at.floor() < shares[drawn[source] % rates.shape[1]])
        drawn[waiting] = torch.where(copied, drawn[source], drawn[waiting])
        known[waiting] = done = fresh | copied
        again = waiting[ready & ~copied]
        place[again] = _point(total[again], order[again], generator)
        waiting = waiting[~done]
    return drawn


def draw_by_gamma(
    rates: Tensor, weights: Tensor, n_molecules: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """The same by shares drawn first, with weights ``(cells, genes)`` of each cell.

    Shares are ratios of gamma variables of mean :math:`r_g` and variance :math:`r_g w_g`; with equal weights they are
    Dirichlet, and this is the urn :cite:p:`blackwell1973ferguson`.
    """
    weights = weights.clamp(min=LEAST_WEIGHT)
    shares = torch._standard_gamma(rates / weights, generator=generator) * weights
    return _positions(shares.clamp(min=torch.finfo(shares.dtype).tiny), n_molecules, generator)


def _point(total: Tensor, order: Tensor, generator: torch.Generator | None) -> Tensor:
    """A place among the molecules before, each of which takes 1; or beyond them, which is the urn as it was."""
    uniform = torch.rand(len(order), generator=generator, device=order.device, dtype=torch.float64)
    return torch.where(total.isinf(), order, uniform * (total + order))


def _positions(rates: Tensor, n_molecules: Tensor, generator: torch.Generator | None) -> Tensor:
    n_genes = rates.shape[1]
    shares = rates / rates.sum(1, keepdim=True).clamp(min=torch.finfo(rates.dtype).tiny)  # sizes may differ by e^80
    cumulative = shares.flatten().double().cumsum_(0)
    ends = cumulative[n_genes - 1 :: n_genes]
    starts = F.pad(ends[:-1], (1, 0))
    rows = torch.repeat_interleave(n_molecules)
    uniform = torch.rand(len(rows), generator=generator, device=rows.device, dtype=torch.float64)
    drawn = torch.searchsorted(cumulative, torch.addcmul(starts[rows], uniform, (ends - starts)[rows]), right=True)
    return torch.minimum(drawn, (rows + 1) * n_genes - 1)
