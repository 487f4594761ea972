"""Likelihoods of counts given expected ones: scored by scvi-tools' distributions, drawn from a given generator."""

from __future__ import annotations

from typing import Literal

import torch
from scvi.distributions import NegativeBinomial, Poisson, ZeroInflatedNegativeBinomial
from torch import Tensor, nn

LikelihoodKind = Literal["nb", "zinb", "poisson"]


class CountLikelihood(nn.Module):
    """Poisson, negative binomial with a dispersion for each gene, or the same with extra zeros.

    Parameters
    ----------
    n_genes
        Number of genes.
    kind
        ``"poisson"``, ``"nb"`` or ``"zinb"``.
    """

    def __init__(self, n_genes: int, kind: LikelihoodKind) -> None:
        super().__init__()
        self.kind = kind
        self.log_dispersion = nn.Parameter(torch.zeros(n_genes)) if kind != "poisson" else None

    def log_prob(self, counts: Tensor, mean: Tensor, zero_logits: Tensor | None = None) -> Tensor:
        """Log-probability of each count ``(cells, genes)``.

        Parameters
        ----------
        counts
            Dense counts ``(cells, genes)``.
        mean
            Expected counts, extra zeros left aside.
        zero_logits
            Logits of an extra zero, for ``"zinb"``.
        """
        if self.log_dispersion is None:
            return Poisson(mean, validate_args=False).log_prob(counts)
        dispersion = self.log_dispersion.exp()
        if zero_logits is None:
            return NegativeBinomial(mu=mean, theta=dispersion, validate_args=False).log_prob(counts)
        return ZeroInflatedNegativeBinomial(
            mu=mean, theta=dispersion, zi_logits=zero_logits, validate_args=False
        ).log_prob(counts)

    @torch.no_grad()
    def sample(
        self, mean: Tensor, zero_logits: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw counts ``(cells, genes)``; arguments as in :meth:`log_prob`."""
        rate = mean
        if self.log_dispersion is not None:
            dispersion = self.log_dispersion.exp().expand_as(mean).contiguous()
            rate = torch._standard_gamma(dispersion, generator=generator) * mean / dispersion
        drawn = torch.poisson(rate, generator=generator)
        if zero_logits is None:
            return drawn
        return drawn * torch.bernoulli(torch.sigmoid(-zero_logits), generator=generator)
