"""The urn: molecules that are there attract more of their genes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ._shapes import Genes, Levels, Vector


class GeneScores(NamedTuple):
    """Scores of the genes: rates are ``A * softmax(logits) + urn_weights * molecules there``, A the concentration."""

    logits: Tensor  # (cells, genes)
    log_concentration: Tensor  # (cells, 1), log A; or (cells, modalities)
    urn_weights: Tensor  # (genes,)

    def log_rates(self) -> Genes:
        """Log of the first term of the rates."""
        return self.logits.log_softmax(1) + self.log_concentration


class Urn(nn.Module):
    r"""Weigh the prior of the tokens against the molecules that are there.

    The rate of a gene is :math:`A \, \text{softmax}(\text{logits})_g + w_g x_g`. :math:`A > 0` is a concentration a
    cell (one for each modality), in units of molecules: how much the prior of the tokens weighs against the molecules
    that are already there, each of which weighs :math:`w_g \ge 0`.
    """

    def __init__(self, n_genes: int, conditioning_dim: int, n_modalities: int = 1) -> None:
        super().__init__()
        self.weight_logits = nn.Parameter(torch.full((n_genes,), -3.0))
        self.concentration = nn.Linear(conditioning_dim, n_modalities)
        nn.init.zeros_(self.concentration.weight)
        nn.init.zeros_(self.concentration.bias)

    def forward(self, logits: Genes, conditioning: Vector, n_molecules: Levels) -> GeneScores:
        """Scores from logits and the molecules that are there."""
        concentration = self.concentration(conditioning)
        log_concentration = concentration + torch.log1p(n_molecules).reshape(concentration.shape)
        return GeneScores(logits, log_concentration, F.softplus(self.weight_logits))


N_AT_FIRST = 10.0
"""Molecules that the prior of the tokens counts for before training: shares then spread by a third round it."""


class LimitedRates(NamedTuple):
    """Rates of the next molecule are ``exp(log_rates) + weights * molecules there``."""

    log_rates: Tensor  # (cells, genes)
    weights: Tensor  # (cells, genes)


class PriorLimit(nn.Module):
    r"""Let the prior of the tokens for a gene count for no more than some molecules, its prior strength.

    The urn has the prior count for :math:`m_g`, as many molecules as the tokens expect by now, and every molecule that
    is there for :math:`w_g`. Where cells have hundreds of molecules of each gene, as of the tags of proteins, the
    molecules themselves tell the share better than any prior. With the prior strength :math:`\rho_g` the rate is

    .. math:: \frac{m_g + (w_g + m_g / \rho_g) \, x_g}{1 + m_g / \rho_g},

    which is :math:`m_g + w_g x_g` where few molecules are expected, and :math:`\rho_g + x_g` where there are many. With
    :math:`w_g = 0` this is the posterior mean of a gamma-Poisson model: the share of a gene has a gamma prior of shape
    :math:`\rho_g`, whose mean the tokens tell. A modality is limited once :attr:`limited` is set for it.
    """

    limited: Tensor

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes
        self.log_limits = nn.Parameter(torch.full((sum(sizes),), math.log(N_AT_FIRST)))
        self.register_buffer("limited", torch.zeros(len(sizes), dtype=torch.bool))

    def forward(self, log_expected: Genes, weights: Float[Tensor, " genes"]) -> LimitedRates:
        """Rates from the log of the molecules expected and the weights of the urn."""
        of_genes = torch.cat([limited.expand(n) for limited, n in zip(self.limited.unbind(), self.sizes, strict=True)])
        filled = torch.where(of_genes, (log_expected - self.log_limits).exp(), 0.0)
        return LimitedRates(log_expected - filled.log1p(), (weights + filled) / (1 + filled))
