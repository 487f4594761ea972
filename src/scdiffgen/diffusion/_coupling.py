"""Maximal coupling: the molecules of a cell moved from one distribution over the genes to another."""

from __future__ import annotations

import torch
from torch import Tensor

from ._draws import draw_molecules
from ._thinning import thin_to


def couple_molecules(
    counts: Tensor,
    source: Tensor,
    target: Tensor,
    generator: torch.Generator | None = None,
    log_ratio: Tensor | float = 0.0,
) -> Tensor:
    r"""Move the molecules of dense ``counts`` ``(cells, genes)`` from one distribution over the genes to another.

    A molecule that was drawn from :math:`\pi` over the genes becomes one from :math:`\pi'` when it stays what it is
    with probability :math:`\min(1, \pi'_g / \pi_g)`, and is otherwise drawn again from the excess
    :math:`(\pi' - \pi)_+`, normalised. This is the maximal coupling :cite:p:`thorisson2000coupling`: none changes
    fewer molecules than its share :math:`\frac12 \sum_g |\pi'_g - \pi_g|`.

    ``source`` and ``target`` are logarithms of the distributions ``(cells, genes)``, up to a constant a cell. Library
    sizes become larger by ``log_ratio`` ``(cells,)``, with which :math:`\pi'` sums to more than 1; where more molecules
    would stay than a cell is to have, some of them go.
    """
    ratio = torch.as_tensor(log_ratio).to(counts).expand(len(counts))
    source, target = source.log_softmax(1), target.log_softmax(1) + ratio[:, None]
    kept = torch.binomial(counts, (target - source).exp().clamp(max=1), generator=generator)
    wanted = (counts.sum(1) * ratio.exp()).round()
    surplus = kept.sum(1) > wanted
    if surplus.any():
        kept[surplus] = thin_to(kept[surplus].to_sparse_csr(), wanted[surplus], generator).state.to_dense()
    removed = (wanted - kept.sum(1)).round().long()
    excess = (target.exp() - source.exp()).clamp(min=0)
    # where rounding leaves no excess, what is drawn again comes from the distribution itself
    replacement = torch.where(excess.sum(1, keepdim=True) > 0, excess.log(), target)
    drawn = draw_molecules(replacement, removed, generator)
    return kept.view(-1).index_add(0, drawn, torch.ones_like(drawn, dtype=kept.dtype)).view_as(kept)
