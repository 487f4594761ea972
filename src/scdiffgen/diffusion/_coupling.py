r"""What a cell would be if its molecules came from another distribution, with as many of them kept as possible.

A molecule that was drawn from :math:`\pi` over the genes becomes one from :math:`\pi'` when it stays what it is with
probability :math:`\min(1, \pi'_g / \pi_g)`, and is otherwise drawn again from the excess
:math:`(\pi' - \pi)_+`, normalised. This is the maximal coupling :cite:p:`thorisson2000coupling`: none changes fewer
molecules than its share :math:`\frac12 \sum_g |\pi'_g - \pi_g|`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._draws import draw_molecules


def couple_molecules(
    counts: Tensor, source: Tensor, target: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Move the molecules of dense ``counts`` ``(cells, genes)`` from one distribution over the genes to another.

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
