"""Drawing molecules: all from one distribution, one after the other from an urn, or some of those of a cell anew."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST_VARIANCE = 1e-6  # of the share of a gene, over its square: what is less counts as this
LARGEST_WEIGHT = 10.0  # in sums of rates, with which nearly all molecules are of one gene: what is more counts as this
MARGIN = 2.5  # standard deviations by which more molecules are drawn than are asked for
LARGEST_CLUMP = 16  # molecules, and times those that are asked for; larger ones are cut
BLOCK = 64  # genes


def draw_molecules(log_prob: Tensor, n_molecules: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw ``n_molecules`` ``(cells,)`` genes a cell from ``log_prob`` ``(cells, genes)``, with replacement.

    Inverse CDF on one flat cumulative sum, so the cost is (molecules + genes) a cell. Returns the flat positions
    ``cell * n_genes + gene`` ``(molecules,)``, those of a cell one after the other.
    """
    rows = torch.repeat_interleave(n_molecules)
    return _shares(log_prob.exp()).draw(rows, generator)


def draw_from_urn(
    rates: Tensor, weights: Tensor, n_molecules: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    r"""The same one after the other: a molecule that was drawn adds ``weights`` ``(genes,)`` to the rate of its gene.

    So the :math:`i`-th new molecule of a cell is drawn by the first ``rates`` ``(cells, genes)``, whose sum is
    :math:`R`, or copies new molecule :math:`j` before it, with probabilities in the ratios :math:`R` to :math:`w_j`.
    It points at random into :math:`R + i \max w`; a place within a new molecule is a copy of it if it lies in the first
    :math:`w_j` of the :math:`\max w` that each takes, and else the molecule points again. No loop over molecules: those
    that point at one not known yet wait for it, which few do for long.
    """
    rows = torch.repeat_interleave(n_molecules)
    drawn = _shares(rates).draw(rows, generator)
    shares = weights / weights.max().clamp(min=torch.finfo(weights.dtype).tiny)
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
    r"""The same by shares that vary, weights ``(cells, genes)`` being each cell's own; positions come in no order.

    Shares are in the ratios of gamma variables :math:`\Gamma(r_g / w_g, w_g)`, with mean :math:`r_g` and variance
    :math:`r_g w_g`. Where the weights of a cell are equal, its shares are Dirichlet, and this is the urn
    :cite:p:`blackwell1973ferguson`. Molecules are events of Poisson processes at these rates, so that until a time
    :math:`t` numbers of molecules are negative binomial: clumps at the rate :math:`r_g / w_g \log(1 + w_g t)`, of
    logarithmic sizes :cite:p:`quenouille1949relation`, which costs (molecules + genes) a cell. The first are kept if
    there are too many; if too few, processes go on from their posterior.
    """
    n_genes, tiny = rates.shape[1], torch.finfo(rates.dtype).tiny
    rates = rates.clamp(min=tiny)
    totals = rates.sum(1, keepdim=True)
    rates, weights = rates / totals, weights / totals
    weights = torch.maximum(weights, LEAST_VARIANCE * rates).clamp(tiny, LARGEST_WEIGHT)
    cells, drawn = torch.arange(len(rates), device=rates.device), []
    while len(cells):
        relative = n_molecules / rates.sum(1)
        spread = (n_molecules + relative**2 * (rates * weights).sum(1)).sqrt()
        times = relative * (1 + MARGIN * spread / n_molecules.clamp(min=1))
        positions = _clumps(rates, weights, times, LARGEST_CLUMP * (n_molecules + LARGEST_CLUMP), generator)
        positions, n_drawn = _first(positions, positions // n_genes, n_molecules, generator)
        drawn.append(cells[positions // n_genes] * n_genes + positions % n_genes)
        short = (n_drawn < n_molecules).nonzero()[:, 0]
        if len(short):
            there = torch.zeros_like(rates).view(-1).index_add_(0, positions, torch.ones_like(positions).to(rates))
            shrinkage = 1 + weights[short] * times[short, None]
            rates = (rates[short] + weights[short] * there.view_as(rates)[short]) / shrinkage
            weights = weights[short] / shrinkage
        cells, n_molecules = cells[short], (n_molecules - n_drawn)[short]
    return torch.cat(drawn)


def couple_molecules(
    counts: Tensor, source: Tensor, target: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    r"""Move the molecules of dense ``counts`` ``(cells, genes)`` from one distribution over the genes to another.

    A molecule that was drawn from :math:`\pi` over the genes becomes one from :math:`\pi'` when it stays what it is
    with probability :math:`\min(1, \pi'_g / \pi_g)`, and is otherwise drawn again from the excess
    :math:`(\pi' - \pi)_+`, normalised. This is the maximal coupling :cite:p:`thorisson2000coupling`: none changes
    fewer molecules than its share :math:`\frac12 \sum_g |\pi'_g - \pi_g|`.

    ``source`` and ``target`` are logarithms of the distributions ``(cells, genes)``, up to a constant a cell.
    """
    source, target = source.log_softmax(1), target.log_softmax(1)
    kept = torch.binomial(counts, (target - source).exp().clamp(max=1), generator=generator)
    removed = (counts.sum(1) - kept.sum(1)).round().long()
    excess = (target.exp() - source.exp()).clamp(min=0)
    # where rounding leaves no excess, what is drawn again comes from the distribution itself
    replacement = torch.where(excess.sum(1, keepdim=True) > 0, excess.log(), target)
    drawn = draw_molecules(replacement, removed, generator)
    return kept.view(-1).index_add(0, drawn, torch.ones_like(drawn, dtype=kept.dtype)).view_as(kept)


def _point(total: Tensor, order: Tensor, generator: torch.Generator | None) -> Tensor:
    """A place among the molecules before, each of which takes 1; or beyond them, which is the urn as it was."""
    uniform = torch.rand(len(order), generator=generator, device=order.device, dtype=torch.float64)
    return torch.where(total.isinf(), order, uniform * (total + order))


def _clumps(rates: Tensor, weights: Tensor, times: Tensor, most: Tensor, generator: torch.Generator | None) -> Tensor:
    """Positions of negative binomial numbers of molecules until ``times`` ``(cells,)``; none has more than ``most``."""
    scales = torch.log1p(weights * times[:, None])
    intensities = rates / weights * scales
    clumps = torch.poisson(intensities.sum(1), generator=generator).long()
    positions = _shares(intensities).draw(torch.repeat_interleave(clumps), generator)
    first, second = torch.rand((2, len(positions)), generator=generator, device=rates.device, dtype=torch.float64)
    ratio = (-first * scales.view(-1)[positions]).exp().neg().log1p()  # Kemp's algorithm for the logarithmic law
    sizes = torch.minimum(1 + second.log() / ratio.clamp(max=-1e-300), most[positions // rates.shape[1]])
    return torch.repeat_interleave(positions, sizes.long())


def _first(
    positions: Tensor, rows: Tensor, n_molecules: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """As many molecules as are asked for of each cell ``(cells,)``, or all, in an order that is drawn; and how many."""
    n_there = torch.zeros_like(n_molecules).index_add_(0, rows, torch.ones_like(rows))
    key = torch.randint(2**31, rows.shape, generator=generator, device=rows.device)
    order = (key + (rows << 31)).argsort()
    rows = rows[order]
    rank = torch.arange(len(rows), device=rows.device) - (n_there.cumsum(0) - n_there)[rows]
    return positions[order[rank < n_molecules[rows]]], torch.minimum(n_there, n_molecules)


class _Shares(NamedTuple):
    """Shares of the genes, summed over those of each cell, in which places of molecules are looked up."""

    cumulative: Tensor  # (cells, padded genes): those of cell c begin at 2 c
    ends: Tensor  # (cells,), sum of the shares of a cell, as it was rounded
    n_genes: int

    def draw(self, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw a gene for each of some molecules, whose cells are ``rows`` ``(molecules,)``: flat positions."""
        uniform = torch.rand(len(rows), generator=generator, device=rows.device, dtype=torch.float64)
        places = 2 * rows + uniform * self.ends[rows]
        drawn = torch.searchsorted(self.cumulative.flatten(), places, right=True) - rows * self.cumulative.shape[1]
        return rows * self.n_genes + drawn.clamp(max=self.n_genes - 1)


def _shares(rates: Tensor) -> _Shares:
    """Blocks of genes are summed in the precision of the rates, which is faster, and blocks in double precision."""
    shares = rates / rates.sum(1, keepdim=True).clamp(min=torch.finfo(rates.dtype).tiny)
    blocks = F.pad(shares, (0, -rates.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK)).cumsum(2)
    ends = blocks[:, :, -1].cumsum(1, dtype=torch.float64)
    starts = 2 * torch.arange(len(rates), device=rates.device)[:, None] + ends - blocks[:, :, -1]
    cumulative = blocks.double().add_(starts[:, :, None])  # in place: half a large array less to be allocated
    return _Shares(cumulative.flatten(1), ends[:, -1], rates.shape[1])
