"""Latent diffusion: an autoencoder turns cells into tokens, and Gaussian diffusion generates tokens."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from scipy import sparse
from scvi.module.base import LossOutput
from torch import Tensor

from scdiffgen._codes import distinct_rows
from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import Rng, column_sums, to_scipy
from scdiffgen.nn import NetworkSize, TokenAutoencoder
from scdiffgen.normal_scores import ReferenceDistribution

from ._diffusion_module import DiffusionModule, gene_frequencies, loss_output
from ._gaussian_module import LIBRARY, VECTORS, CellBatch, Encoded, VectorDenoiser, VectorModule
from ._processes import GaussianDiffusion, Given, LatentOptions, Predictor
from ._token_order import GENE_AXES, TOKEN_AXES, permute_tokens, permute_weights


class LatentDenoiser(VectorDenoiser):
    """Autoencoder of cells, and denoiser of the concatenated tokens, which take the place of genes."""

    def __init__(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
        process: GaussianDiffusion,
    ) -> None:
        latent_dim = cast("LatentOptions", process.options).latent_dim
        plain = replace(size.options, orthogonality=None, expression_embedding=None)
        inner = replace(size, options=plain, readout_units=0)
        super().__init__(size.n_tokens * latent_dim, specs, inner, features, process)
        self.autoencoder = TokenAutoencoder(n_vars, size, latent_dim)

    def sort_tokens(self, order: Tensor) -> None:
        """Permute the tokens of the autoencoder, the "genes" of the denoiser; tokens of the denoiser are kept."""
        permute_weights(self.autoencoder, order, TOKEN_AXES)
        permute_weights(self.network, order, GENE_AXES)


class LatentModule(VectorModule):
    """Gaussian diffusion of the tokens of an autoencoder, which is trained first and then frozen."""

    process_name = "latent"
    options_cls = LatentOptions
    process_options: LatentOptions
    denoiser: LatentDenoiser
    ema_denoiser: LatentDenoiser
    mean: Tensor
    scale: Tensor
    stage: Tensor

    def make_denoiser(self, features: Mapping[str, Tensor]) -> LatentDenoiser:
        length = self.size.n_tokens * self.process_options.latent_dim
        self.register_buffer("mean", torch.zeros(length))
        self.register_buffer("scale", torch.ones(length))
        self.register_buffer("stage", torch.tensor(0))
        return LatentDenoiser(self.n_vars, self.specs, self.size, features, self.process)

    def initialise(self, batches: Iterable[tuple[Tensor, Given]]) -> None:
        """Initialise by the average cell."""
        molecules = np.zeros(self.n_vars)
        for counts, _ in batches:
            molecules += column_sums(counts).cpu().numpy()
        frequencies = gene_frequencies(molecules)
        for denoiser in self.denoisers:
            denoiser.autoencoder.readout.initialise_bias(frequencies)

    def start_linearly(self, sample: Iterable[tuple[Tensor, Given]]) -> None:
        """Initialise gene dispersions by moments within equal conditions, because training changes them too slowly."""
        counts, conditions = zip(*((to_scipy(counts), given.numpy()) for counts, given in sample), strict=True)
        _, groups = distinct_rows(Conditions.concatenate(conditions).codes(self.specs))
        reference = ReferenceDistribution.fit(sparse.vstack(counts, format="csr"), groups)
        for denoiser in self.denoisers:
            denoiser.autoencoder.likelihood.start(torch.from_numpy(reference.inverse_dispersions))

    def sort_tokens(self, order: Sequence[int]) -> None:
        """Permute the tokens with their means and scales; a seed then gives other cells (noise is not permuted)."""
        super().sort_tokens(order)
        for moments in (self.mean, self.scale):
            permute_tokens(moments, torch.as_tensor(order))

    # Two stages.

    def stages(self) -> tuple[float, ...]:
        """Return shares of the epochs for the autoencoder (0 if already trained) and the diffusion."""
        share = self.process_options.autoencoder_share
        return (0.0, 1.0) if self.stage else (share, 1 - share)

    @torch.no_grad()
    def compute_once(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Encode a minibatch as tokens, and keep all registered data except counts."""
        counts, _ = DiffusionModule.unpack(self, batch)
        library = self.library(counts)
        rest = {key: values for key, values in batch.items() if key != "X"}
        return {VECTORS: self._encoded(counts), LIBRARY: library, **rest}

    @torch.no_grad()
    def begin_stage(self, cached: Mapping[str, Tensor]) -> None:
        """Freeze the averaged autoencoder, and standardise its tokens by their mean and SD over training cells."""
        self.denoiser.autoencoder.load_state_dict(self.ema_denoiser.autoencoder.state_dict())
        if not self.stage:
            self.mean.copy_(cached[VECTORS].mean(0))
            self.scale.copy_(cached[VECTORS].std(0).clamp(min=1e-4))
            self.stage.fill_(1)

    def unpack(self, batch: Mapping[str, Tensor]) -> tuple[CellBatch, Given]:
        cells, conditions = super().unpack(batch)
        if isinstance(cells, Encoded):
            cells = cells._replace(vector=(cells.vector - self.mean) / self.scale)
        return cells, conditions

    def loss(self, cells: CellBatch, conditions: Given) -> LossOutput:
        """Compute the loss of counts in the first stage (nats per molecule), of tokens in the second."""
        if isinstance(cells, Tensor) and not self.stage:
            return loss_output(self._reconstruction(self.denoiser.autoencoder, cells))
        return super().loss(cells, conditions)

    @torch.no_grad()
    def validation_loss(self, cells: CellBatch, conditions: Given, generator: torch.Generator) -> LossOutput:
        """Compute the loss of the averaged networks, without condition dropout and with a fixed generator."""
        if isinstance(cells, Tensor) and not self.stage:
            return loss_output(self._reconstruction(self.ema_denoiser.autoencoder, cells))
        return super().validation_loss(cells, conditions, generator)

    def _reconstruction(self, autoencoder: TokenAutoencoder, counts: Tensor) -> Tensor:
        library = self.library(counts)
        log_prob = autoencoder.log_prob(autoencoder.encode(counts, library), counts, library)
        return -log_prob / library + autoencoder.readout.penalty()

    # Vectors are concatenated tokens.

    def encode(self, cells: CellBatch, generator: Rng = None) -> Encoded:
        return cells if isinstance(cells, Encoded) else Encoded(self.to_vector(cells), self.library(cells))

    @torch.no_grad()
    def draw(self, predictor: Predictor, library: Tensor, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Draw cells of ``library`` ``(cells,)`` molecules from noise: dense ``(cells, genes)``."""
        vector = self.draw_vectors(predictor, library, len(self.mean), n_steps=n_steps, generator=generator)
        return self.to_counts(vector, library, generator)

    @torch.no_grad()
    def counterfactual(
        self, cells: Tensor, source: Given, after: Predictor, *, keep: float | None, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Add noise until a fraction ``keep`` (default 0) of the variance is signal, then denoise by ``after``."""
        library, vector = self.library(cells), self.to_vector(cells)
        vector = self.draw_again(vector, after(library), keep or 0.0, n_steps=n_steps, generator=generator)
        return self.to_counts(vector, library, generator)

    @torch.no_grad()
    def to_vector(self, counts: Tensor) -> Tensor:
        """Encode CSR counts as standardised tokens ``(cells, length)``."""
        return (self._encoded(counts) - self.mean) / self.scale

    def to_counts(self, vector: Tensor, library: Tensor, generator: Rng = None) -> Tensor:
        """Draw counts from the likelihood."""
        return self.ema_denoiser.autoencoder.sample(self._latent(vector), library, generator)

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Given) -> Tensor:
        """Decode the tokens of cells to gene shares ``(cells, genes)``."""
        return self.ema_denoiser.autoencoder.shares(self.tokens(counts, conditions))

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute tokens ``(cells, tokens, latent_dim)``, which do not depend on conditions."""
        return self._encoded(counts).unflatten(1, (self.size.n_tokens, -1))

    @torch.no_grad()
    def hidden(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute hidden vectors of the autoencoder's read-out ``(cells, tokens, width)`` of whole cells."""
        return self.ema_denoiser.autoencoder.hidden(self.tokens(counts, conditions))

    def gene_weights(self) -> Tensor:
        """Return gene weights of :meth:`hidden`, ``(tokens, width, genes)``, in log-rates."""
        return self.ema_denoiser.autoencoder.readout.loadings()

    def _encoded(self, counts: Tensor) -> Tensor:
        autoencoder = self.ema_denoiser.autoencoder.eval()  # without dropout, because averaged weights are not trained
        return autoencoder.encode(counts, self.library(counts)).flatten(1)

    def _latent(self, vector: Tensor) -> Tensor:
        return (vector * self.scale + self.mean).unflatten(1, (self.size.n_tokens, -1))
