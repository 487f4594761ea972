"""Draws of molecules: with replacement, sequentially from an urn, and by maximal coupling."""

import torch
import torch.nn.functional as F
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
