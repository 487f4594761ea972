"""Code of latent diffusion: the concatenated tokens of an autoencoder, which is trained first and then frozen."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from scdiffgen._codes import distinct_rows
from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import Blocks, Rng, column_sums, to_scipy
from scdiffgen.nn import AdditiveReadout, CountEncoder, NetworkSize
from scdiffgen.normal_scores import ReferenceDistribution

from ._cell_codes import VECTORS, Batches, CellCode, CountsOrCodes, gene_frequencies
from ._denoisers import Guidance, TokenDenoiser, permute_tokens
from ._process_options import Given, LatentOptions


class TokenCode(CellCode[TokenDenoiser]):
    """Standardised tokens of the autoencoder, which the denoiser holds."""

    abilities = frozenset({"new categories", "contributions of tokens", "fixed tokens", "gradients of tokens"})
    keep_fraction = 0.0

    mean: Tensor  # (length,)
    scale: Tensor  # (length,)
    stage: Tensor  # 0 while the autoencoder is trained, then 1

    def __init__(
        self, blocks: Blocks, specs: Sequence[ConditionSpec], size: NetworkSize, options: LatentOptions
    ) -> None:
        super().__init__(blocks, specs, size, options)
        self.share = options.autoencoder_share
        self.register_buffer("mean", torch.zeros(size.n_tokens * options.latent_dim))
        self.register_buffer("scale", torch.ones(size.n_tokens * options.latent_dim))
        self.register_buffer("stage", torch.tensor(0))

    @property
    def length(self) -> int:
        return len(self.mean)

    def fit(self, cells: Batches, denoisers: Sequence[TokenDenoiser]) -> None:
        """Initialise by the average cell."""
        molecules = np.zeros(sum(self.blocks.sizes))
        for counts, _ in cells:
            molecules += column_sums(counts).cpu().numpy()
        frequencies = gene_frequencies(molecules)
        for denoiser in denoisers:
            self.readout(denoiser).initialise_bias(frequencies)

    def fit_sample(self, sample: Batches, denoisers: Sequence[TokenDenoiser]) -> None:
        """Initialise gene dispersions by moments within equal conditions, because training changes them too slowly."""
        counts, conditions = zip(*((to_scipy(counts), given.numpy()) for counts, given in sample), strict=True)
        _, groups = distinct_rows(Conditions.concatenate(conditions).codes(self.specs))
        reference = ReferenceDistribution.fit(sparse.vstack(counts, format="csr"), groups)
        for denoiser in denoisers:
            denoiser.autoencoder.likelihood.start(torch.from_numpy(reference.inverse_dispersions))

    # Two stages.

    def stages(self) -> tuple[float, ...]:
        """Return shares of the epochs for the autoencoder (0 if already trained) and the diffusion."""
        return (0.0, 1.0) if self.stage else (self.share, 1 - self.share)

    def loss(self, denoiser: TokenDenoiser, cells: CountsOrCodes) -> Tensor | None:
        """Compute the negative log-likelihood of counts in nats per molecule, in the first stage."""
        if not isinstance(cells, Tensor) or self.stage:
            return None
        autoencoder, library = denoiser.autoencoder, self.blocks.library(cells)
        log_prob = autoencoder.log_prob(autoencoder.encode(cells, library), cells, library)
        return -log_prob / library + autoencoder.readout.penalty()

    def cache(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        return self._tokens(denoiser, counts)

    def begin_stage(self, denoisers: Sequence[TokenDenoiser], cached: Mapping[str, Tensor]) -> None:
        """Freeze the averaged autoencoder, and standardise its tokens by their mean and SD over training cells."""
        trained, averaged = denoisers
        trained.autoencoder.load_state_dict(averaged.autoencoder.state_dict())
        if not self.stage:
            self.mean.copy_(cached[VECTORS].mean(0))
            self.scale.copy_(cached[VECTORS].std(0).clamp(min=1e-4))
            self.stage.fill_(1)

    def encode_training(
        self, denoiser: TokenDenoiser, cells: CountsOrCodes, conditions: Given, generator: Rng = None
    ) -> tuple[Tensor, Tensor]:
        if isinstance(cells, Tensor):
            return self.encode(denoiser, cells, conditions, generator), self.blocks.library(cells)
        return (cells.vector - self.mean) / self.scale, cells.library

    # Cells to codes and back.

    def encode(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given, rng: Rng) -> Tensor:
        return (self._tokens(denoiser, counts) - self.mean) / self.scale

    def decode(
        self, denoiser: TokenDenoiser, coded: Tensor, library: Tensor, conditions: Given, rng: Rng, guidance: Guidance
    ) -> Tensor:
        return denoiser.autoencoder.sample(self.unstandardised(coded), library, rng)

    def unstandardised(self, coded: Tensor) -> Tensor:
        """Return tokens ``(cells, tokens, latent_dim)`` of codes."""
        return (coded * self.scale + self.mean).unflatten(1, (self.size.n_tokens, -1))

    @torch.no_grad()
    def _tokens(self, denoiser: TokenDenoiser, counts: Tensor) -> Tensor:
        """Compute concatenated tokens ``(cells, length)`` without dropout."""
        autoencoder = denoiser.autoencoder.eval()
        return autoencoder.encode(counts, self.blocks.library(counts)).flatten(1)

    # Reading whole cells.

    def readout(self, denoiser: TokenDenoiser) -> AdditiveReadout:
        return denoiser.autoencoder.readout

    def tokens(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        """Compute tokens ``(cells, tokens, latent_dim)``, which do not depend on conditions."""
        return self._tokens(denoiser, counts).unflatten(1, (self.size.n_tokens, -1))

    def hidden(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        return denoiser.autoencoder.hidden(self.tokens(denoiser, counts, conditions))

    def encoder(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> tuple[CountEncoder, Callable]:
        autoencoder, library = denoiser.autoencoder, self.blocks.library(counts)
        return autoencoder.encoder, lambda sums: autoencoder.hidden(autoencoder.encode_sums(sums, library))

    def gene_scores(
        self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given
    ) -> tuple[Tensor, dict[str, Tensor]]:
        tokens = self.tokens(denoiser, counts, conditions)
        return self.readout(denoiser)(denoiser.autoencoder.from_latent(tokens)), {}

    def expression(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        """Decode the tokens of cells to gene shares ``(cells, genes)``."""
        return denoiser.autoencoder.shares(self.tokens(denoiser, counts, conditions))

    def sort_tokens(self, order: Tensor) -> None:
        """Permute the means and scales of tokens; a seed then gives other cells (noise is not permuted)."""
        for moments in (self.mean, self.scale):
            permute_tokens(moments, order)
