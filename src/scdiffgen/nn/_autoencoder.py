"""Cells to a few tokens and back, without noise: the first stage of latent diffusion."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._likelihood import CountLikelihood, LikelihoodKind
from ._number_kinds import log_count_embedding
from ._options import NetworkSize
from ._readout import AdditiveReadout
from ._trunk import ENCODERS

LatentKind = Literal["unit_scale", "kl"]


class Latent(NamedTuple):
    """Tokens of cells before they are drawn, ``(cells, tokens, latent_dim)`` each."""

    mean: Tensor
    log_scale: Tensor | None  # of ``"kl"``

    def sample(self) -> Tensor:
        """Draw tokens; those at unit scale are not random."""
        return self.mean if self.log_scale is None else self.mean + self.log_scale.exp() * torch.randn_like(self.mean)

    def divergence(self) -> Tensor:
        """Kullback-Leibler divergence ``(cells,)`` from a standard normal distribution, in nats."""
        if self.log_scale is None:
            return self.mean.new_zeros(len(self.mean))
        return (0.5 * (self.mean**2 + (2 * self.log_scale).exp() - 1) - self.log_scale).sum((1, 2))


class TokenAutoencoder(nn.Module):
    """Encoder, short tokens, additive read-out, likelihood at the observed library size.

    Parameters
    ----------
    n_genes
        Number of genes.
    size
        Number of tokens, widths, and the forms of encoder and read-out.
    latent_dim
        Length of a token.
    likelihood
        Of the counts: ``"nb"``, ``"zinb"`` or ``"poisson"``.
    kind
        What keeps tokens in bounds: each has a root mean square of 1 (``"unit_scale"``), or is a normal distribution
        that is drawn to the standard one (``"kl"``).
    """

    def __init__(
        self, n_genes: int, size: NetworkSize, latent_dim: int, likelihood: LikelihoodKind, kind: LatentKind
    ) -> None:
        super().__init__()
        dim = size.conditioning_dim
        self.kind = kind
        self.embed_library = log_count_embedding(size.options.level_embedding, dim)
        self.encoder = ENCODERS[size.options.encoder](n_genes, size, "counts")
        self.to_latent = nn.Linear(size.token_dim, 2 * latent_dim if kind == "kl" else latent_dim)
        self.from_latent = nn.Sequential(nn.Linear(latent_dim, size.token_dim), nn.SiLU())
        self.readout = AdditiveReadout(n_genes, size.n_tokens, size.token_dim, size.readout_dim, size.options.readout)
        self.zeros = (
            AdditiveReadout(n_genes, size.n_tokens, size.token_dim, size.readout_dim) if likelihood == "zinb" else None
        )
        self.likelihood = CountLikelihood(n_genes, likelihood)

    def encode(self, counts: Tensor, library: Tensor) -> Latent:
        """Tokens of CSR counts with library sizes ``(cells,)``."""
        conditioning = self.embed_library(torch.log1p(library))
        tokens = self.to_latent(self.encoder(self.encoder.read(counts), conditioning))
        if self.kind == "kl":
            mean, log_scale = tokens.chunk(2, dim=2)
            return Latent(mean, log_scale.clamp(-8, 4))
        return Latent(F.normalize(tokens, dim=2) * tokens.shape[2] ** 0.5, None)

    def shares(self, latent: Tensor) -> Tensor:
        """Shares of the genes ``(cells, genes)`` that tokens stand for."""
        return self.readout(self.from_latent(latent)).softmax(1)

    def hidden(self, latent: Tensor) -> Tensor:
        """What each token says to the genes: ``(cells, tokens, readout_dim)``."""
        return self.readout.hidden(self.from_latent(latent))

    def log_prob(self, latent: Tensor, counts: Tensor, library: Tensor) -> Tensor:
        """Log-likelihood ``(cells,)`` of CSR counts given their tokens."""
        mean = self.shares(latent) * library[:, None]
        return self.likelihood.log_prob(counts.to_dense(), mean, self._zero_logits(latent)).sum(1)

    def sample(self, latent: Tensor, library: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw counts ``(cells, genes)`` given tokens."""
        return self.likelihood.sample(self.shares(latent) * library[:, None], self._zero_logits(latent), generator)

    def _zero_logits(self, latent: Tensor) -> Tensor | None:
        return None if self.zeros is None else self.zeros(self.from_latent(latent))
