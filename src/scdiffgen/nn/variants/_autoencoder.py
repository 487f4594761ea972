"""Token autoencoder of counts, the first stage of latent diffusion."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from scvi.distributions import NegativeBinomial
from torch import Tensor, nn

from scdiffgen.nn._network import CountEncoder
from scdiffgen.nn._numbers import log_count_embedding
from scdiffgen.nn._options import NetworkSize
from scdiffgen.nn._readouts import AdditiveReadout
from scdiffgen.nn._shapes import Genes, Hidden, Levels, Sums, Tokens


class CountLikelihood(nn.Module):
    """Negative binomial likelihood with one inverse dispersion per gene."""

    def __init__(self, n_genes: int) -> None:
        super().__init__()
        self.log_dispersion = nn.Parameter(torch.zeros(n_genes))

    @torch.no_grad()
    def start(self, inverse_dispersions: Tensor) -> None:
        """Initialise the inverse dispersion theta ``(genes,)``, at most 150; the variance is mean + mean^2 / theta."""
        self.log_dispersion.copy_(inverse_dispersions.log().clamp(max=5.0))

    def log_prob(self, counts: Genes, mean: Genes) -> Genes:
        """Compute the log-probability of each count given its mean."""
        return NegativeBinomial(mu=mean, theta=self.log_dispersion.exp(), validate_args=False).log_prob(counts)

    @torch.no_grad()
    def sample(self, mean: Genes, generator: torch.Generator | None = None) -> Genes:
        dispersion = self.log_dispersion.exp().expand_as(mean).contiguous()
        rate = torch._standard_gamma(dispersion, generator=generator) * mean / dispersion
        return torch.poisson(rate, generator=generator)


class TokenAutoencoder(nn.Module):
    """Autoencoder with tokens of root mean square 1, an additive read-out and a likelihood given the library size."""

    def __init__(self, n_genes: int, size: NetworkSize, latent_dim: int) -> None:
        super().__init__()
        self.embed_library = log_count_embedding(size.options.level_embedding, size.conditioning_dim)
        self.encoder = CountEncoder(n_genes, size)
        self.to_latent = nn.Linear(size.token_dim, latent_dim)
        self.from_latent = nn.Sequential(nn.Linear(latent_dim, size.token_dim), nn.SiLU())
        self.readout = AdditiveReadout(n_genes, size)
        self.likelihood = CountLikelihood(n_genes)

    def encode(self, counts: Genes, library: Levels) -> Tokens:
        """Encode CSR counts with library sizes as tokens."""
        return self.encode_sums(self.encoder.read(counts), library)

    def encode_sums(self, gene_sums: Sums, library: Levels) -> Tokens:
        """Encode the sums of ``encoder.read``."""
        tokens = self.to_latent(self.encoder(gene_sums, self.embed_library(torch.log1p(library))))
        return F.normalize(tokens, dim=2) * tokens.shape[2] ** 0.5

    def shares(self, latent: Tokens) -> Genes:
        """Decode tokens to the expected shares of the genes."""
        return self.readout(self.from_latent(latent)).softmax(1)

    def hidden(self, latent: Tokens) -> Hidden:
        """Compute the hidden vector of each token in the read-out."""
        return self.readout.hidden(self.from_latent(latent))

    def log_prob(self, latent: Tokens, counts: Genes, library: Levels) -> Float[Tensor, " cells"]:
        """Compute the log-likelihood of CSR counts given their tokens."""
        return self.likelihood.log_prob(counts.to_dense(), self.shares(latent) * library[:, None]).sum(1)

    def sample(self, latent: Tokens, library: Levels, generator: torch.Generator | None = None) -> Genes:
        return self.likelihood.sample(self.shares(latent) * library[:, None], generator)
