"""From scores of the genes to rates of the next molecule: what the tokens expect, and the molecules that are there."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ._shapes import Genes, Levels

FASTER = 10.0  # than weights of the network the few parameters here learn
DISPERSION, LEAST_WEIGHT = 0.1, 0.005  # of every gene, before the training cells are known
SLOPE, THRESHOLD = 1.0, 3.0  # of outliers, before training


class GeneScores(NamedTuple):
    """Scores of the genes, and what they were conditioned on."""

    logits: Tensor  # (cells, genes)
    conditioning: Tensor  # (cells, conditioning_dim)


class Overdispersion(nn.Module):
    r"""Weigh what the tokens expect of a gene against the molecules of it that are there.

    Of :math:`n` molecules that are there and the next one the tokens expect
    :math:`m_g = (n + 1)\, \text{softmax}(\text{logits})_g` to be of gene :math:`g`, and :math:`x_g` are. If the share
    of a gene varies round what is expected as a gamma variable of dispersion (squared coefficient of variation)
    :math:`\varphi_g`, the rate of the next molecule is the posterior mean

    .. math:: (1 - s_g) \, m_g + s_g x_g, \qquad \text{logit} \, s_g = \log(\varphi_g m_g).

    To this logit a shift is added that depends on the noise level and everything else a network is conditioned on, and
    for outliers a slope times :math:`(z_g - z_0)_+`, with :math:`z_g = (x_g - m_g) / \sqrt{m_g + 1}`: a gene of which a
    cell has far more than expected goes on as it is. A small share of :math:`x_g` is mixed in whatever is expected.
    Each modality has expectations, a shift, a slope and a threshold of its own.
    """

    def __init__(self, sizes: tuple[int, ...], conditioning_dim: int) -> None:
        super().__init__()
        self.sizes = sizes
        n_genes, n_modalities = sum(sizes), len(sizes)
        self.log_dispersions = nn.Parameter(torch.full((n_genes,), math.log(DISPERSION) / FASTER))
        self.least_logits = nn.Parameter(torch.full((n_genes,), math.log(LEAST_WEIGHT / (1 - LEAST_WEIGHT))))
        self.slopes = nn.Parameter(torch.full((n_modalities,), SLOPE / FASTER))
        self.thresholds = nn.Parameter(torch.full((n_modalities,), THRESHOLD / FASTER))
        self.shift = nn.Linear(conditioning_dim, n_modalities)
        nn.init.zeros_(self.shift.weight)
        nn.init.zeros_(self.shift.bias)

    @torch.no_grad()
    def set_dispersions(self, dispersions: Float[Tensor, " genes"]) -> None:
        """Start from given dispersions."""
        self.log_dispersions.copy_(dispersions.log() / FASTER)

    def forward(self, scores: GeneScores, n_molecules: Levels, state: Genes) -> tuple[Genes, Genes]:
        """Log of the rates without own molecules, and weights of these, for a state that is dense or CSR."""
        totals = torch.log1p(n_molecules).reshape(-1, len(self.sizes))
        parts = zip(scores.logits.split(self.sizes, 1), totals.split(1, 1), strict=True)
        log_expected = _side_by_side([logits.log_softmax(1) + total for logits, total in parts])
        shifts = self.shift(scores.conditioning)
        if len(self.sizes) > 1:
            shifts = self._of_genes(shifts, 1)
        log_odds = log_expected + FASTER * self.log_dispersions + shifts + self._outliers(log_expected.exp(), state)
        log_rates = log_expected - F.softplus(log_odds) + F.logsigmoid(-self.least_logits)
        least = self.least_logits.sigmoid()
        return log_rates, least + (1 - least) * log_odds.sigmoid()

    def _outliers(self, expected: Genes, state: Genes) -> Genes:
        """What is added to the logit where far more molecules are there than expected."""
        there = state if state.layout == torch.strided else state.to_dense()
        surprise = (there - expected) * (expected + 1).rsqrt()
        slopes, thresholds = F.softplus(FASTER * self.slopes), FASTER * self.thresholds
        if len(self.sizes) > 1:
            slopes, thresholds = self._of_genes(slopes, 0), self._of_genes(thresholds, 0)
        return slopes * F.relu(surprise - thresholds)

    def _of_genes(self, of_modalities: Tensor, axis: int) -> Tensor:
        sizes = torch.tensor(self.sizes, device=of_modalities.device)
        return of_modalities.repeat_interleave(sizes, axis, output_size=sum(self.sizes))


def _side_by_side(parts: list[Genes]) -> Genes:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
