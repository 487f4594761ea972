"""Gaussian diffusion of a vector per cell, such as its standardised normal scores."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import torch
from scipy import sparse
from scvi.module.base import LossOutput
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec, conditions_from_batch
from scdiffgen.diffusion import TIME_MAX, TIME_MIN, Denoise, Level, Rng, time_of_signal, to_clean, to_scipy
from scdiffgen.nn import NetworkSize, ScoreNetwork
from scdiffgen.normal_scores import FactorModel, Frame

from ._denoiser import ConditionedDenoiser
from ._diffusion_module import DiffusionModule, loss_output
from ._linear_start import LinearModel, linear_weights, start_linearly
from ._normal_scores import NormalScores
from ._processes import GaussianDiffusion, GaussianOptions, Given, Predictor, Scale, VectorPredictor

VECTORS, LIBRARY = "vectors", "library"
"""Keys of cached values in a minibatch."""


class Encoded(NamedTuple):
    """Vectors and library sizes of training cells."""

    vector: Tensor  # (cells, length), or (cells, draws, length)
    library: Tensor  # (cells,)


CellBatch: TypeAlias = Tensor | Encoded
"""CSR counts ``(cells, genes)``, or their vectors."""


class VectorDenoiser(ConditionedDenoiser):
    """Denoiser that predicts noise-free vectors from noisy vectors."""

    network: ScoreNetwork
    process: GaussianDiffusion

    def make_network(self, n_vars: int, size: NetworkSize) -> ScoreNetwork:
        return ScoreNetwork(n_vars, size, "values")

    def bind(self, conditions: Given) -> VectorPredictor:
        """Bind conditions; the predictor maps library sizes to a function of noisy vectors and times."""
        embedded = self.embed_conditions(conditions, conditions.n_cells)

        def predictor(library: Tensor) -> Denoise:
            def denoise(noisy: Tensor, time: Tensor) -> Tensor:
                level = self.process.level(time)
                log_level = (level.log_snr / 2).flatten().expand(conditions.n_cells)  # one time, or one per cell
                predicted, _ = self.network.read(noisy, log_level, library, *embedded)
                return self.to_data(predicted, noisy, level)

            return denoise

        return predictor

    def to_data(self, predicted: Tensor, noisy: Tensor, level: Level) -> Tensor:
        """Convert a prediction to noise-free vectors."""
        return to_clean(predicted, self.process.options.prediction, noisy, level)


class ScoreDenoiser(VectorDenoiser):
    r"""Denoiser with the posterior mean of a factor model of scores, corrected by the network.

    With :math:`f`, the expected contribution of the factors plus the network output, and residual variance :math:`r`,
    the prediction is :math:`f + \alpha r (x_t - \alpha f) / (\alpha^2 r + \sigma^2)` for each gene.
    """

    axes: Tensor  # (axes, genes): orthonormal axes, those of the factors first; unused rows are zero
    variances: Tensor  # (axes,): variance of the factors along the axes
    noise: Tensor  # (genes,): residual variance

    def __init__(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
        process: GaussianDiffusion,
    ) -> None:
        super().__init__(n_vars, specs, size, features, process)
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

    @torch.no_grad()
    def start(self, model: FactorModel, axes: np.ndarray) -> None:
        """Initialise by a factor model; gene weights of the network become orthonormal axes ``(axes, genes)``."""
        for weight in linear_weights(self.network).values():
            weight.zero_()
        variances = ((axes @ model.loadings.T) ** 2).sum(1)  # the first axes are those of the factors
        start_linearly(self.network, LinearModel(axes, np.sqrt(np.maximum(variances, 1.0))))
        self.axes[: len(axes)], self.variances[: len(axes)] = torch.from_numpy(axes), torch.from_numpy(variances)
        self.noise.copy_(torch.from_numpy(model.noise**2))


class VectorModule(DiffusionModule):
    """Gaussian diffusion of one vector per cell."""

    process_options: GaussianOptions
    process: GaussianDiffusion
    denoiser: VectorDenoiser
    ema_denoiser: VectorDenoiser

    def make_process(self) -> GaussianDiffusion:
        return GaussianDiffusion(self.process_options)

    def unpack(self, batch: Mapping[str, Tensor]) -> tuple[CellBatch, Given]:
        if VECTORS not in batch:
            return super().unpack(batch)
        tensors = {key: tensor.to(self.denoiser.embed.null.device) for key, tensor in batch.items()}
        return Encoded(tensors[VECTORS], tensors[LIBRARY]), conditions_from_batch(tensors, self.specs)

    @abstractmethod
    def encode(self, cells: CellBatch, generator: Rng = None) -> Encoded:
        """Encode training cells as vectors and library sizes."""

    def loss(self, cells: CellBatch, conditions: Given) -> LossOutput:
        """Compute the squared error of the prediction plus penalties on the read-out."""
        predictor = self.denoiser.bind(self.drop_conditions(conditions))
        return loss_output(self._errors(predictor, cells), self.denoiser.network.readout.penalty())

    @torch.no_grad()
    def validation_loss(self, cells: CellBatch, conditions: Given, generator: torch.Generator) -> LossOutput:
        return loss_output(self._errors(self.ema_denoiser.bind(conditions), cells, generator))

    def _errors(self, predictor: VectorPredictor, cells: CellBatch, generator: Rng = None) -> Tensor:
        """Corrupt vectors, predict noise-free vectors, and score the prediction ``(cells,)``."""
        vector, library = self.encode(cells, generator)
        noisy = self.process.corrupt(vector, generator)
        return self.process.score(predictor(library)(noisy.state, noisy.time), noisy)

    def draw_vectors(
        self, predictor: VectorPredictor, library: Tensor, length: int, *, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Draw vectors ``(cells, length)`` from noise."""
        noise = torch.randn(len(library), length, generator=generator, device=library.device)
        return self.process.draw(predictor(library), noise, TIME_MAX, n_steps=n_steps, generator=generator)

    def draw_again(self, vector: Tensor, after: Denoise, keep: float, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Add noise until a fraction ``keep`` of the variance is signal, then denoise."""
        start = time_of_signal(torch.tensor(keep), self.process.level)
        noisy = self.process.corrupt(vector, generator, start.to(vector)).state
        return self.process.draw(after, noisy, float(start), n_steps=n_steps, generator=generator)


class FramedPredictor:
    """Predictor of standardised scores with the frame of the cells, which is drawn if conditions are missing."""

    def __init__(self, standardised: VectorPredictor, frame: Callable[[np.random.Generator | None], Frame]) -> None:
        self.standardised, self.frame = standardised, frame

    def __call__(self, library: Tensor) -> Denoise:
        """Return the denoiser of standardised scores at library sizes ``(cells,)``."""
        return self.standardised(library)


class GaussianModule(VectorModule):
    """Gaussian diffusion of normal scores of counts, standardised within groups of cells with equal conditions."""

    process_name = "gaussian"
    options_cls = GaussianOptions
    least_steps = 2000
    judged_by_validation = False  # generated cells improve even while the loss, mostly noise, rises
    denoiser: ScoreDenoiser
    ema_denoiser: ScoreDenoiser

    def make_denoiser(self, features: Mapping[str, Tensor]) -> ScoreDenoiser:
        self.scores = NormalScores(self.n_vars, self.specs)
        return ScoreDenoiser(self.n_vars, self.specs, self.size, features, self.process)

    def initialise(self, batches: Iterable[tuple[Tensor, Given]]) -> None:
        """Do nothing, because :meth:`start_linearly` fits all statistics."""

    def start_linearly(self, sample: Iterable[tuple[Tensor, Given]]) -> None:
        """Fit groups and factors to a sample of training cells, and initialise the denoisers by them."""
        counts, conditions = zip(*((to_scipy(counts), given.numpy()) for counts, given in sample), strict=True)
        together = sparse.vstack(counts, format="csr"), Conditions.concatenate(conditions)
        model, axes = self.scores.fit(*together, len(self.denoiser.axes))
        for denoiser in self.denoisers:
            denoiser.start(model, axes)

    def stages(self) -> tuple[float, ...]:
        return 0.0, 1.0

    def compute_once(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Draw scores of a minibatch, and keep all registered data except counts."""
        (counts, conditions), rng = DiffusionModule.unpack(self, batch), numpy_generator(None)
        drawn = self.scores.draw(to_scipy(counts), self.scores.frame(conditions.numpy(), rng), rng, n_draws=4)
        rest = {key: values for key, values in batch.items() if key not in self.count_keys}
        return {VECTORS: torch.from_numpy(drawn).half(), LIBRARY: self.library(counts), **rest}

    def encode(self, cells: CellBatch, generator: Rng = None) -> Encoded:
        drawn, library = cells
        which = torch.randint(drawn.shape[1], (len(drawn),), generator=generator, device=drawn.device)
        return Encoded(drawn[torch.arange(len(drawn), device=drawn.device), which].float(), library)

    # Generating.

    def predictor(self, conditions: Given, n_cells: int, guidance_scale: Scale = 1.0) -> FramedPredictor:
        """Bind conditions; a guidance scale multiplies shifts of the means and guides the network."""
        given, standardised = conditions.numpy(), super().predictor(conditions, n_cells, guidance_scale)
        scales = [(given.without(names), scale) for names, scale in self.guided(conditions, guidance_scale)]

        def frame(rng: np.random.Generator | None) -> Frame:
            means, deviations = self.scores.frame(given, rng, open_ended=True)
            rests = [(self.scores.frame(rest, None, open_ended=True), scale) for rest, scale in scales if scale != 1]
            return Frame(sum(((scale - 1) * (means - rest.means) for rest, scale in rests), start=means), deviations)

        return FramedPredictor(standardised, frame)

    @torch.no_grad()
    def draw(self, predictor: Predictor, library: Tensor, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Draw cells of about ``library`` ``(cells,)`` molecules from noise: dense ``(cells, genes)``."""
        framed, rng = cast("FramedPredictor", predictor), numpy_generator(generator)
        vector = self.draw_vectors(framed, library, self.n_vars, n_steps=n_steps, generator=generator)
        return self._to_counts(vector, framed.frame(rng), library)

    @torch.no_grad()
    def counterfactual(
        self, cells: Tensor, source: Given, after: Predictor, *, keep: float | None, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Draw cells that keep a share ``keep`` of the variance of scores; ``None`` keeps all and shifts the means."""
        framed, rng, library = cast("FramedPredictor", after), numpy_generator(generator), self.library(cells)
        vector = self._vector(self.scores.draw(to_scipy(cells), self.scores.frame(source.numpy(), rng), rng)[:, 0])
        if keep is not None:
            vector = self.draw_again(vector, framed(library), keep, n_steps=n_steps, generator=generator)
        return self._to_counts(vector, framed.frame(rng), library)

    def _vector(self, scores: np.ndarray) -> Tensor:
        return torch.from_numpy(scores).to(self.denoiser.noise)

    def _to_counts(self, vector: Tensor, frame: Frame, library: Tensor) -> Tensor:
        """Convert standardised scores to counts ``(cells, genes)``."""
        scores = frame.means + frame.deviations * vector.cpu().numpy().astype(np.float64)
        counts = self.scores.model().reference.to_counts(scores, library.cpu().numpy().astype(np.float64))
        return torch.from_numpy(counts.toarray()).to(library)

    def _expected(self, counts: Tensor, conditions: Given) -> tuple[Tensor, Frame]:
        """Compute expected scores of whole cells ``(cells, genes)``, and their frame."""
        frame, model = self.scores.frame(conditions.numpy(), None), self.scores.model()
        return self._vector(model.expect_scores(model.ends(to_scipy(counts), frame))), frame

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute expected gene shares ``(cells, genes)`` from the factors of cells."""
        (vector, frame), model = self._expected(counts, conditions), self.scores.model()
        shared = vector.cpu().numpy().astype(np.float64) @ model.posterior()[0] @ model.loadings
        library = self.library(counts).cpu().numpy().astype(np.float64)
        means = frame.means + frame.deviations * shared
        expected = model.reference.expected_counts(means, frame.deviations * model.noise, library)
        return self._vector(expected / expected.sum(1, keepdims=True))

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute tokens ``(cells, tokens, dim)`` of cells at the lowest noise level."""
        return self._tokens(self._expected(counts, conditions)[0], self.library(counts), conditions)

    def _tokens(self, vector: Tensor, library: Tensor, conditions: Given) -> Tensor:
        level = self.process.level(torch.full_like(library, TIME_MIN)).log_snr / 2
        embedded = self.ema_denoiser.embed_conditions(conditions, len(library))
        return self.ema_denoiser.network.tokens(vector, level, library, *embedded)

    @torch.no_grad()
    def hidden(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute hidden vectors of the read-out plus the factors of cells ``(cells, tokens, width)``."""
        denoiser, (vector, _) = self.ema_denoiser, self._expected(counts, conditions)
        readout = denoiser.network.readout
        hidden = readout.hidden(self._tokens(vector, self.library(counts), conditions))
        along = denoiser.along(vector, self.process.level(torch.tensor(TIME_MIN, device=vector.device)))
        factors = along @ denoiser.axes @ torch.linalg.pinv(readout.loadings().flatten(0, 1))
        return hidden + factors.unflatten(1, hidden.shape[1:])

    def gene_weights(self) -> Tensor:
        """Return gene weights of :meth:`hidden`, in units of normal scores."""
        loadings, scores = super().gene_weights(), self.scores
        return loadings * (scores.n_cells[:, None] * scores.deviations).sum(0) / scores.n_cells.sum()


def numpy_generator(generator: Rng) -> np.random.Generator:
    """Create a NumPy generator seeded by the next number of a torch generator."""
    device = None if generator is None else generator.device
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator, device=device)))
