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


def couple_molecules(counts: Tensor, own: Tensor, asked: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Move the molecules of cells from one distribution to another.

    Parameters
    ----------
    counts
        Dense cells ``(cells, genes)``.
    own, asked
        Logarithms of the distributions over the genes ``(cells, genes)`` that the molecules came from, and that they
        shall come from, up to a constant a cell.
    generator
        Source of randomness.

    Returns
    -------
    Dense cells of as many molecules, ``(cells, genes)``.
    """
    own, asked = own.log_softmax(1), asked.log_softmax(1)
    kept = torch.binomial(counts, (asked - own).exp().clamp(max=1), generator=generator)
    removed = (counts.sum(1) - kept.sum(1)).round().long()
    excess = (asked.exp() - own.exp()).clamp(min=0)
    # where rounding leaves no excess, what is drawn again comes from the distribution itself
    target = torch.where(excess.sum(1, keepdim=True) > 0, excess.log(), asked)
    drawn = draw_molecules(target, removed, generator)
    return kept.view(-1).index_add(0, drawn, torch.ones_like(drawn, dtype=kept.dtype)).view_as(kept)
