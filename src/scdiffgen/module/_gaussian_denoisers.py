"""Denoisers of noisy vectors: normal scores (:class:`FactorDenoiser`), and tokens (:class:`TokenDenoiser`)."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from scdiffgen.diffusion import TIME_MIN, GaussianPrediction, Level, Noisy, precision_of, to_clean
from scdiffgen.nn import ScoreNetwork, TokenAutoencoder
from scdiffgen.normal_scores import FactorModel

from ._denoisers import Blueprint, Denoiser
from ._linear_start import LinearModel, linear_weights, start_linearly
from ._paths import GaussianPath, Predict
from ._process_options import Given, LatentOptions
from ._token_order import GENE_AXES, TOKEN_AXES, permute_weights


class GaussianDenoiser(Denoiser):
    """Gaussian distribution of a vector; the network predicts its mean, noise or velocity (``options.prediction``)."""

    network: ScoreNetwork

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__(blueprint)
        assert isinstance(blueprint.path, GaussianPath)
        self.path = blueprint.path

    def make_network(self, blueprint: Blueprint) -> ScoreNetwork:
        return ScoreNetwork(sum(blueprint.blocks.sizes), blueprint.size, "values")

    def bind(self, conditions: Given, missing: Tensor | None = None) -> Predict:
        """Bind conditions; the predictor takes noisy vectors and library sizes."""
        embedded = self.embed_conditions(conditions)

        def predict(state: Noisy, library: Tensor) -> GaussianPrediction:
            level = self.path.schedule(torch.as_tensor(state.time))
            log_level = (level.log_snr / 2).flatten().expand(conditions.n_cells)  # one time, or one per cell
            predicted, _ = self.network.read(state.values, log_level, library, *embedded)
            return GaussianPrediction(
                self.to_data(predicted, state.values, level), precision_of(self.path.prediction, level)
            )

        return predict

    def to_data(self, predicted: Tensor, noisy: Tensor, level: Level) -> Tensor:
        """Convert a prediction to noise-free vectors."""
        return to_clean(predicted, self.path.prediction, noisy, level)

    def clean_level(self, library: Tensor) -> Tensor:
        return self.path.schedule(torch.full_like(library, TIME_MIN)).log_snr / 2


class FactorDenoiser(GaussianDenoiser):
    r"""Denoiser with the posterior mean of a factor model of scores, corrected by the network.

    With :math:`f`, the expected contribution of the factors plus the network output, and residual variance :math:`r`,
    the prediction is :math:`f + \alpha r (x_t - \alpha f) / (\alpha^2 r + \sigma^2)` for each gene.
    """

    judged_by_validation = False  # generated cells improve even while the loss, mostly noise, rises
    least_steps = 2000

    axes: Tensor  # (axes, genes): orthonormal axes, those of the factors first; unused rows are zero
    variances: Tensor  # (axes,): variance of the factors along the axes
    noise: Tensor  # (genes,): residual variance

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__(blueprint)
        n_vars, size = sum(blueprint.blocks.sizes), blueprint.size
        n_axes = min(30, size.n_tokens * size.readout_dim)
        self.register_buffer("axes", torch.zeros(n_axes, n_vars))
        self.register_buffer("variances", torch.zeros(n_axes))
        self.register_buffer("noise", torch.ones(n_vars))
        # Gene weights are fixed at the axes, because trained weights over-fit from the first steps on.
        for weight in (*linear_weights(self.network).values(), self.network.readout.bias):
            weight.requires_grad_(False)

    def to_data(self, predicted: Tensor, noisy: Tensor, level: Level) -> Tensor:
        level = level.expand_as(noisy) if level.alpha.ndim else level
        alpha, sigma = level.alpha, level.sigma
        expected = self.along(noisy, level) @ self.axes + predicted
        return expected + alpha * self.noise / (alpha**2 * self.noise + sigma**2) * (noisy - alpha * expected)

    def along(self, noisy: Tensor, level: Level) -> Tensor:
        """Compute expected scores along the axes ``(cells, axes)``."""
        beside = (self.axes**2 * self.noise).sum(1)
        gains = level.alpha * self.variances / (level.alpha**2 * (self.variances + beside) + level.sigma**2)
        return noisy @ self.axes.T * gains

    def factors(self, scores: Tensor) -> Tensor:
        """Compute the contribution of the factors to the hidden vectors ``(cells, tokens, width)`` of whole cells."""
        along = self.along(scores, self.path.schedule(torch.tensor(TIME_MIN, device=scores.device)))
        loadings = self.network.readout.loadings()
        added = along @ self.axes @ torch.linalg.pinv(loadings.flatten(0, 1))
        return added.unflatten(1, loadings.shape[:2])

    @torch.no_grad()
    def start(self, model: FactorModel, axes: np.ndarray) -> None:
        """Initialise by a factor model; gene weights of the network become orthonormal axes ``(axes, genes)``."""
        for weight in linear_weights(self.network).values():
            weight.zero_()
        variances = ((axes @ model.loadings.T) ** 2).sum(1)  # the first axes are those of the factors
        start_linearly(self.network, LinearModel(axes, np.sqrt(np.maximum(variances, 1.0))))
        self.axes[: len(axes)], self.variances[: len(axes)] = torch.from_numpy(axes), torch.from_numpy(variances)
        self.noise.copy_(torch.from_numpy(model.noise**2))


class TokenDenoiser(GaussianDenoiser):
    """Autoencoder of cells, and denoiser of its concatenated tokens, which take the place of genes."""

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__(blueprint)
        options: LatentOptions = blueprint.options
        self.autoencoder = TokenAutoencoder(sum(blueprint.blocks.sizes), blueprint.size, options.latent_dim)

    def make_network(self, blueprint: Blueprint) -> ScoreNetwork:
        size = blueprint.size
        plain = replace(size.options, orthogonality=None, expression_embedding=None)
        inner = replace(size, options=plain, readout_units=0)
        return ScoreNetwork(size.n_tokens * blueprint.options.latent_dim, inner, "values")

    def sort_tokens(self, order: Tensor) -> None:
        """Permute the tokens of the autoencoder, the "genes" of the denoiser; tokens of the denoiser are kept."""
        permute_weights(self.autoencoder, order, TOKEN_AXES)
        permute_weights(self.network, order, GENE_AXES)
