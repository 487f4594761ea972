"""Cells to a few tokens and back, without noise: the first stage of latent diffusion."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from scvi.distributions import NegativeBinomial, Poisson, ZeroInflatedNegativeBinomial
from torch import Tensor, nn

from ._encoders import ENCODERS
from ._numbers import log_count_embedding
from ._options import NetworkOptions, NetworkSize
from ._readouts import AdditiveReadout
from ._shapes import Genes, Hidden, Levels, Tokens

LatentKind = Literal["unit_scale", "kl"]
LikelihoodKind = Literal["nb", "zinb", "poisson"]


class CountLikelihood(nn.Module):
    """Poisson, negative binomial with a dispersion for each gene, or the same with extra zeros."""

    def __init__(self, n_genes: int, kind: LikelihoodKind) -> None:
        super().__init__()
        self.log_dispersion = nn.Parameter(torch.zeros(n_genes)) if kind != "poisson" else None

    def log_prob(self, counts: Genes, mean: Genes, zero_logits: Genes | None = None) -> Genes:
        """Log-probability of each count given its mean, extra zeros left aside, and the logits of an extra zero."""
        if self.log_dispersion is None:
            return Poisson(mean, validate_args=False).log_prob(counts)
        dispersion = self.log_dispersion.exp()
        if zero_logits is None:
            return NegativeBinomial(mu=mean, theta=dispersion, validate_args=False).log_prob(counts)
        inflated = ZeroInflatedNegativeBinomial(mu=mean, theta=dispersion, zi_logits=zero_logits, validate_args=False)
        return inflated.log_prob(counts)

    @torch.no_grad()
    def sample(self, mean: Genes, zero_logits: Genes | None = None, generator: torch.Generator | None = None) -> Genes:
        rate = mean
        if self.log_dispersion is not None:
            dispersion = self.log_dispersion.exp().expand_as(mean).contiguous()
            rate = torch._standard_gamma(dispersion, generator=generator) * mean / dispersion
        drawn = torch.poisson(rate, generator=generator)
        if zero_logits is None:
            return drawn
        return drawn * torch.bernoulli(torch.sigmoid(-zero_logits), generator=generator)


class Latent(NamedTuple):
    """Tokens of cells before they are drawn, ``(cells, tokens, latent_dim)`` each."""

    mean: Tensor
    log_scale: Tensor | None  # of ``"kl"``

    def sample(self) -> Float[Tensor, "cells tokens latent_dim"]:
        """Draw tokens; those at unit scale are not random."""
        return self.mean if self.log_scale is None else self.mean + self.log_scale.exp() * torch.randn_like(self.mean)

    def divergence(self) -> Float[Tensor, " cells"]:
        """Kullback-Leibler divergence from a standard normal distribution, in nats."""
        if self.log_scale is None:
            return self.mean.new_zeros(len(self.mean))
        return (0.5 * (self.mean**2 + (2 * self.log_scale).exp() - 1) - self.log_scale).sum((1, 2))


class TokenAutoencoder(nn.Module):
    """Encoder, short tokens, additive read-out, likelihood at the observed library size.

    Tokens are kept in bounds: each has a root mean square of 1 (``"unit_scale"``), or is a normal distribution that is
    drawn to the standard one (``"kl"``).
    """

    def __init__(
        self, n_genes: int, size: NetworkSize, latent_dim: int, likelihood: LikelihoodKind, kind: LatentKind
    ) -> None:
        super().__init__()
        self.kind = kind
        self.embed_library = log_count_embedding(size.options.level_embedding, size.conditioning_dim)
        self.encoder = ENCODERS[size.options.encoder](n_genes, size, "counts")
        self.to_latent = nn.Linear(size.token_dim, 2 * latent_dim if kind == "kl" else latent_dim)
        self.from_latent = nn.Sequential(nn.Linear(latent_dim, size.token_dim), nn.SiLU())
        self.readout = AdditiveReadout(n_genes, size)
        plain = replace(size, options=NetworkOptions())
        self.zeros = AdditiveReadout(n_genes, plain) if likelihood == "zinb" else None
        self.likelihood = CountLikelihood(n_genes, likelihood)

    def encode(self, counts: Genes, library: Levels) -> Latent:
        """Tokens of CSR counts with library sizes."""
        conditioning = self.embed_library(torch.log1p(library))
        tokens = self.to_latent(self.encoder(self.encoder.read(counts), conditioning))
        if self.kind == "kl":
            mean, log_scale = tokens.chunk(2, dim=2)
            return Latent(mean, log_scale.clamp(-8, 4))
        return Latent(F.normalize(tokens, dim=2) * tokens.shape[2] ** 0.5, None)

    def shares(self, latent: Tokens) -> Genes:
        """Shares of the genes that tokens stand for."""
        return self.readout(self.from_latent(latent)).softmax(1)

    def hidden(self, latent: Tokens) -> Hidden:
        """Hidden vector of each token, by which it contributes to the genes."""
        return self.readout.hidden(self.from_latent(latent))

    def log_prob(self, latent: Tokens, counts: Genes, library: Levels) -> Float[Tensor, " cells"]:
        """Log-likelihood of CSR counts given their tokens."""
        mean = self.shares(latent) * library[:, None]
        return self.likelihood.log_prob(counts.to_dense(), mean, self._zero_logits(latent)).sum(1)

    def sample(self, latent: Tokens, library: Levels, generator: torch.Generator | None = None) -> Genes:
        return self.likelihood.sample(self.shares(latent) * library[:, None], self._zero_logits(latent), generator)

    def _zero_logits(self, latent: Tensor) -> Tensor | None:
        return None if self.zeros is None else self.zeros(self.from_latent(latent))
