"""Maximal coupling: the molecules of a cell moved from one distribution over the genes to another."""

from __future__ import annotations

import torch
from torch import Tensor

from ._draws import draw_molecules


def couple_molecules(
    counts: Tensor, source: Tensor, target: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    r"""Move molecules of dense ``counts`` ``(cells, genes)`` between distributions by maximal coupling.

    A molecule drawn from :math:`\pi` is kept with probability :math:`\min(1, \pi'_g / \pi_g)`, else resampled from the
    excess :math:`(\pi' - \pi)_+` :cite:p:`thorisson2000coupling`, which changes the fewest molecules. ``source`` and
    ``target`` are log-probabilities up to a constant a cell.
    """
    source, target = source.log_softmax(1), target.log_softmax(1)
    kept = torch.binomial(counts, (target - source).exp().clamp(max=1), generator=generator)
    removed = (counts - kept).sum(1).round().long()
    excess = (target.exp() - source.exp()).clamp(min=0)
    # where rounding leaves no excess, what is drawn again comes from the distribution itself
    replacement = torch.where(excess.sum(1, keepdim=True) > 0, excess.log(), target)
    drawn = draw_molecules(replacement, removed, generator)
    return kept.view(-1).index_add(0, drawn, torch.ones_like(drawn, dtype=kept.dtype)).view_as(kept)
