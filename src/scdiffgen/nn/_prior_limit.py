"""Genes (or proteins) of which cells have many molecules: what the tokens say of them counts for a limited number."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

N_AT_FIRST = 10.0
"""Molecules that the tokens' opinion counts for before training: shares then spread by a third round it."""


class LimitedRates(NamedTuple):
    """Rates of the next molecule are ``exp(log_rates) + weights * molecules there``."""

    log_rates: Tensor  # (cells, genes)
    weights: Tensor  # (cells, genes)


class PriorLimit(nn.Module):
    r"""Let the tokens' opinion of a gene count for no more than some molecules.

    The urn has the tokens' opinion count for :math:`m_g`, as many molecules as they expect by now, and every molecule
    that is there for :math:`w_g`. Where cells have hundreds of molecules of each gene, as of the tags of proteins, the
    molecules themselves tell the share better than any opinion. With :math:`\rho_g` the rate is

    .. math:: \frac{m_g + (w_g + m_g / \rho_g) \, x_g}{1 + m_g / \rho_g},

    which is :math:`m_g + w_g x_g` where few molecules are expected, and :math:`\rho_g + x_g` where there are many. With
    :math:`w_g = 0` this is the posterior mean of a gamma-Poisson model: the share of a gene has a gamma prior of shape
    :math:`\rho_g`, whose mean the tokens tell.

    Parameters
    ----------
    sizes
        Number of genes of each kind of molecules. A kind is limited once :attr:`limited` says so.
    """

    limited: Tensor

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes
        self.log_limits = nn.Parameter(torch.full((sum(sizes),), math.log(N_AT_FIRST)))
        self.register_buffer("limited", torch.zeros(len(sizes), dtype=torch.bool))

    def forward(self, log_expected: Tensor, weights: Tensor) -> LimitedRates:
        """Rates from the log of the molecules expected ``(cells, genes)`` and the weights of the urn ``(genes,)``."""
        of_genes = torch.cat([of_kind.expand(n) for of_kind, n in zip(self.limited.unbind(), self.sizes, strict=True)])
        filled = torch.where(of_genes, (log_expected - self.log_limits).exp(), 0.0)
        return LimitedRates(log_expected - filled.log1p(), (weights + filled) / (1 + filled))
