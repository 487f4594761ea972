"""Denoisers: ``denoiser.bind(conditions)(state, library)`` is a distribution of cells given their corrupted state.

It is the distribution of the next molecule (:class:`scdiffgen.diffusion.UrnPrediction`) or of a vector
(``GaussianPrediction``), which computes losses and draws. ``bind`` embeds the conditions once
(:meth:`Denoiser.embed_conditions`) and gives them to the network with every state; offsets of rare labels and the
direct read-out of treatments and batches are added to the gene scores (:meth:`UrnDenoiser.condition_scores`).
A denoiser holds all trained weights of a process; the denoisers of vectors come last. :class:`Guidance` binds a
denoiser with and without conditions. The result is a function like an unguided one, on which sampling depends alone.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ConditionSpec
from scdiffgen.diffusion import LARGEST_LOG_RATE, BlockPrediction, Blocks, MoleculePrediction, UrnPrediction, gaussian
from scdiffgen.nn import (
    AdditiveReadout,
    ConditionEmbedder,
    CountEncoder,
    GeneScores,
    LabelOffsets,
    NetworkSize,
    PriorLimit,
    ScoreNetwork,
    TokenAutoencoder,
    TokenNetwork,
    TokenTrunk,
    UniversalCombination,
)
from scdiffgen.normal_scores import FactorModel

from ._linear_start import LinearModel, linear_weights, start_linearly
from ._paths import GaussianPath, Path, Predict
from ._process_options import Ability, Given, LatentOptions, Scale


@dataclass(frozen=True)
class Blueprint:
    """Arguments from which a denoiser is created."""

    blocks: Blocks
    specs: Sequence[ConditionSpec]
    size: NetworkSize
    features: Mapping[str, Tensor]  # vectors (categories, n_features) of conditions
    path: Path
    options: Any  # settings of the process


class AverageCell(NamedTuple):
    """Statistics of the counts of training cells."""

    frequencies: Tensor  # (columns,): shares of all molecules
    depth: Tensor  # (modalities,): mean number of molecules per cell
    deep: Tensor  # (modalities,): whether features have many molecules
    offsets: Tensor | None  # (labels, columns): offsets of rare labels


class EmbeddedConditions(NamedTuple):
    """Embedded conditions, as inputs of a network."""

    vectors: Tensor  # (cells, conditioning_dim) with "adaln", otherwise (cells, conditions, conditioning_dim)
    numbers: Tensor | None  # (cells, conditions), if they rotate queries and keys


class Denoiser(nn.Module, ABC):
    """Base class of denoisers."""

    abilities: ClassVar[frozenset[Ability]] = frozenset()

    judged_by_validation: ClassVar[bool] = True
    """Whether a rising validation loss stops training and restores the best weights."""

    least_steps: ClassVar[int] = 1000
    """Minimum number of training steps by default."""

    is_benchmarked: ClassVar[bool] = False
    """Whether hidden units in the read-out and orthogonal tokens were benchmarked, for one modality."""

    network: ScoreNetwork

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__()
        size = blueprint.size
        dim = size.conditioning_dim
        self.embed = ConditionEmbedder(blueprint.specs, dim, size.options, features=blueprint.features)
        self.combine = UniversalCombination(len(blueprint.specs), dim) if size.options.conditioning == "adaln" else None
        self.rotates = size.options.attention_numbers == "rotated"
        self.network = self.make_network(blueprint)
        self.label_offsets: LabelOffsets | None = None

    @abstractmethod
    def make_network(self, blueprint: Blueprint) -> ScoreNetwork:
        """Create the network."""

    @abstractmethod
    def bind(self, conditions: Given, unmeasured: Tensor | None = None) -> Predict:
        """Bind conditions, and mark features ``(cells, columns)`` that were not measured."""

    def embed_conditions(self, conditions: Given) -> EmbeddedConditions:
        vectors = self.embed(conditions, conditions.n_cells)
        numbers = self.embed.numbers(conditions, conditions.n_cells) if self.rotates else None
        return EmbeddedConditions(vectors if self.combine is None else self.combine(vectors), numbers)

    @abstractmethod
    def clean_level(self, library: Tensor) -> Tensor:
        """Return the noise level of whole cells, as input of the network."""

    def tokens(self, coded: Tensor, library: Tensor, conditions: Given) -> Tensor:
        """Compute tokens ``(cells, tokens, dim)`` of whole cells."""
        return self.network.tokens(coded, self.clean_level(library), library, *self.embed_conditions(conditions))[0]

    @torch.no_grad()
    def start_from(self, average: AverageCell) -> None:
        self.network.readout.initialise_bias(average.frequencies)

    @property
    def deep(self) -> Sequence[bool]:
        """Modalities with many molecules per feature, whose prior strength is capped."""
        return ()

    def largest_rise(self, share: float) -> float:
        """Return the relative rise of the validation loss at which training stops."""
        return share

    def sort_tokens(self, order: Tensor) -> None:
        """Permute the tokens: the ``order[k]``-th becomes the ``k``-th."""
        permute_weights(self, order, TOKEN_AXES)

    def linear_weights(self) -> Sequence[Tensor]:
        """Return the linearly initialised weights, which have a lower learning rate."""
        return ()

    def regularisation(self, n_cells: int) -> tuple[float, float]:
        """Return weight decay and the relative learning rate of :meth:`linear_weights` for ``n_cells``."""
        return 0.01, 1.0


class UrnDenoiser(Denoiser):
    """Urn of missing molecules: log-rates of tokens, offsets of rare labels, a read-out of treatments and batches."""

    abilities = frozenset(
        {"several modalities", "new genes", "new categories", "contributions of tokens", "fixed tokens"}
    )
    is_benchmarked = True

    network: TokenNetwork

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__(blueprint)
        self.blocks, n_vars = blueprint.blocks, sum(blueprint.blocks.sizes)
        label = next((spec for spec in blueprint.specs if spec.registry_key == REGISTRY_KEYS.LABELS), None)
        if label is not None and label.n_categories * n_vars <= 20_000_000:  # a larger table takes too much memory
            self.label_offsets = LabelOffsets(label, n_vars)
        self.limit = PriorLimit(self.blocks.sizes)
        # A direct path to genes for treatments and batches: a change of few genes is too faint to pass through tokens.
        # Labels alone have none, which would make cells too typical of small labels.
        self.condition_readout: nn.Linear | None = None
        keys = [spec.registry_key for spec in blueprint.specs]
        self.batch = keys.index(REGISTRY_KEYS.BATCH) if REGISTRY_KEYS.BATCH in keys else None
        self.has_treatments = any(spec.is_intervention for spec in blueprint.specs)
        if self.has_treatments or self.batch is not None:
            self.condition_readout = nn.Linear(blueprint.size.conditioning_dim, n_vars, bias=False)
            nn.init.zeros_(self.condition_readout.weight)

    @torch.no_grad()
    def start_from(self, average: AverageCell) -> None:
        """Initialise by the average cell, offset rare labels, and cap priors of high-count modalities."""
        super().start_from(average)
        self.limit.limit(average.deep)
        self.limit.depth.copy_(average.depth)
        if self.label_offsets is not None and average.offsets is not None:
            self.label_offsets.set(average.offsets)

    @property
    def deep(self) -> Sequence[bool]:
        return self.limit.on_host

    def make_network(self, blueprint: Blueprint) -> TokenNetwork:
        sizes = blueprint.blocks.sizes
        return TokenNetwork(sum(sizes), replace(blueprint.size, n_levels=len(sizes)))

    def bind(self, conditions: Given, unmeasured: Tensor | None = None) -> Predict:
        """Bind conditions; the predictor takes present molecules, dense or CSR, and library sizes."""
        scores = self.bind_scores(conditions)

        def predict(state: Tensor, library: Tensor) -> MoleculePrediction:
            of_genes = scores(state, library)
            if unmeasured is not None:
                of_genes = of_genes._replace(logits=of_genes.logits.masked_fill(unmeasured, -LARGEST_LOG_RATE))
            return self.prediction(of_genes)

        return predict

    def bind_scores(self, conditions: Given) -> Callable[[Tensor, Tensor], GeneScores]:
        """Bind conditions; the predictor returns gene scores before the urn term is added."""
        embedded = self.embed_conditions(conditions)
        of_conditions = self.condition_scores(conditions, embedded)

        def score(state: Tensor, library: Tensor) -> GeneScores:
            present = state if state.layout == torch.sparse_csr else state.to_sparse_csr()
            scores: GeneScores = self.network(present, self.blocks.library(present), library, *embedded)
            logits = scores.logits
            for added in of_conditions.values():
                logits = logits.to(torch.result_type(logits, added)).add_(added)  # in place to save memory
            return scores._replace(logits=logits)

        return score

    def condition_scores(self, conditions: Given, embedded: EmbeddedConditions) -> dict[str, Tensor]:
        """Return gene scores ``(cells, genes)`` of conditions alone: offsets of rare labels, direct read-out."""
        vectors, offsets = embedded.vectors, self.label_offsets
        scores = {offsets.name: offsets(conditions)} if offsets is not None and offsets.is_used else {}
        if self.condition_readout is not None:
            if not self.has_treatments:
                vectors = self.embed(conditions, conditions.n_cells)[:, self.batch]
            scores["conditions"] = self.condition_readout(F.silu(vectors if vectors.ndim == 2 else vectors.sum(1)))
        return scores

    def prediction(self, scores: GeneScores) -> MoleculePrediction:
        """Convert gene scores to rates of the next molecule."""
        if len(self.blocks.sizes) > 1:
            parts = zip(scores.logits.split(self.blocks.sizes, 1), scores.log_concentration.split(1, 1), strict=True)
            log_expected = torch.cat([logits.log_softmax(1) + total for logits, total in parts], dim=1)
            log_rates, weights = self.limit(log_expected, scores.urn_weights)
            return BlockPrediction(log_rates, weights, self.limit.on_host, self.blocks)
        if not any(self.limit.on_host):
            return UrnPrediction(scores.logits, scores.urn_weights, scores.log_concentration[:, 0])
        return UrnPrediction(*self.limit(scores.log_rates(), scores.urn_weights))

    def clean_level(self, library: Tensor) -> Tensor:
        return library

    def common_depth(self, library: Tensor) -> Tensor:
        """Raise library sizes to twice the mean of training cells, at which expression depends little on the depth."""
        depth = torch.where(self.limit.depth.isfinite() & (library > 0), 2 * self.limit.depth, 0.0)
        return torch.maximum(library, depth)

    def largest_rise(self, share: float) -> float:
        """Return a smaller rise for deep cells, in which the loss of one molecule counts more often."""
        whole = 500  # number of molecules of a cell up to which the rise is the given share
        return share * whole / self.least_depth if whole < self.least_depth < math.inf else share

    @property
    def least_depth(self) -> float:
        """Mean number of molecules per cell of the shallowest modality."""
        return float(self.limit.depth.nan_to_num(torch.inf).min())

    def linear_weights(self) -> Sequence[Tensor]:
        return [*linear_weights(self.network).values()]

    def regularisation(self, n_cells: int) -> tuple[float, float]:
        """Return weight decay and learning rate; of several modalities, the shallowest over-fits first."""
        prior_cells, many_genes = 5000, 750  # prior strength in cells, reduced below 750 genes
        free_cells = 10_000  # number of cells above which the linear model has the full learning rate
        if len(self.blocks.sizes) > 1:
            whole = 300  # number of molecules of a modality above which a cell counts fully
            n_cells = max(round(n_cells * min(self.least_depth / whole, 1)), 1)
        decay = min(sum(self.blocks.sizes) / many_genes, 1.0) * min(prior_cells / n_cells, 5.0)
        return decay, min(max(n_cells / free_cells, 0.1), 1.0)


class GaussianDenoiser(Denoiser):
    """Gaussian distribution of a vector; the network predicts its mean, noise or velocity (``options.prediction``)."""

    network: ScoreNetwork

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__(blueprint)
        assert isinstance(blueprint.path, GaussianPath)
        self.path = blueprint.path

    def make_network(self, blueprint: Blueprint) -> ScoreNetwork:
        return ScoreNetwork(sum(blueprint.blocks.sizes), blueprint.size, "values")

    def bind(self, conditions: Given, unmeasured: Tensor | None = None) -> Predict:
        """Bind conditions; the predictor takes noisy vectors and library sizes."""
        embedded = self.embed_conditions(conditions)

        def predict(state: gaussian.Noisy, library: Tensor) -> gaussian.GaussianPrediction:
            level = self.path.schedule(torch.as_tensor(state.time))
            log_level = (level.log_snr / 2).flatten().expand(conditions.n_cells)  # one time, or one per cell
            tokens, _ = self.network.tokens(state.values, log_level, library, *embedded)
            mean = self.to_data(self.network.readout(tokens), state.values, level)
            return gaussian.GaussianPrediction(mean, gaussian.precision_of(self.path.prediction, level))

        return predict

    def to_data(self, predicted: Tensor, noisy: Tensor, level: gaussian.Level) -> Tensor:
        """Convert a prediction to noise-free vectors."""
        return gaussian.to_clean(predicted, self.path.prediction, noisy, level)

    def clean_level(self, library: Tensor) -> Tensor:
        return self.path.schedule(torch.full_like(library, gaussian.TIME_MIN)).log_snr / 2


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

    def to_data(self, predicted: Tensor, noisy: Tensor, level: gaussian.Level) -> Tensor:
        level = level.expand_as(noisy) if level.alpha.ndim else level
        alpha, sigma = level.alpha, level.sigma
        expected = self.along(noisy, level) @ self.axes + predicted
        return expected + alpha * self.noise / (alpha**2 * self.noise + sigma**2) * (noisy - alpha * expected)

    def along(self, noisy: Tensor, level: gaussian.Level) -> Tensor:
        """Compute expected scores along the axes ``(cells, axes)``."""
        beside = (self.axes**2 * self.noise).sum(1)
        gains = level.alpha * self.variances / (level.alpha**2 * (self.variances + beside) + level.sigma**2)
        return noisy @ self.axes.T * gains

    def factors(self, scores: Tensor) -> Tensor:
        """Compute the contribution of the factors to the hidden vectors ``(cells, tokens, width)`` of whole cells."""
        along = self.along(scores, self.path.schedule(torch.tensor(gaussian.TIME_MIN, device=scores.device)))
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


class Guidance(NamedTuple):
    r"""Classifier-free guidance, :math:`\log \pi_w = \log \pi_0 + \sum_i w_i (\log \pi_i - \log \pi_0)`.

    :math:`\pi_0` is the prediction without the guided conditions, :math:`\pi_i` that given a group of them: all
    together with one scale, or each with its own. For Gaussian predictions, means take the place of log-probabilities.
    """

    scale: Scale = 1.0

    def groups(self, conditions: Given) -> list[tuple[list[str], float]]:
        """Return names of conditions that are guided together, and their scales."""
        if isinstance(self.scale, Mapping):
            return [([name], self.scale[name]) for name in conditions if name in self.scale]
        return [(list(conditions), self.scale)] if conditions else []

    def followed(self, conditions: Given) -> Given:
        """Leave out conditions of scale 0."""
        return conditions.without({name for names, scale in self.groups(conditions) if scale == 0 for name in names})

    def bind(self, denoiser: Denoiser, conditions: Given) -> Predict:
        """Bind conditions: a denoiser given the unguided ones, guided towards each guided group."""
        groups = self.groups(conditions)
        rest = conditions.without({name for names, _ in groups for name in names})
        conditional = [denoiser.bind(rest.replace(conditions.only(names))) for names, _ in groups]
        return guide(denoiser.bind(rest), conditional, [scale for _, scale in groups])


UNGUIDED = Guidance()


def guide(unconditional: Predict, conditional: Sequence[Predict], scales: Sequence[float]) -> Predict:
    """Decorate a predictor by guidance; a single scale of 1 evaluates the conditional predictor only."""
    if not conditional:
        return unconditional
    if list(scales) == [1.0]:
        return conditional[0]
    return lambda *state: unconditional(*state).guided([predict(*state) for predict in conditional], scales)


# Permutation of tokens: all weights with a token axis are permuted, so predictions do not change.

Axes = dict[type[nn.Module], dict[str, int]]
"""Axes of parameters and buffers, by module class and name."""

TOKEN_AXES: Axes = {
    CountEncoder: {"to_tokens.weight": 0, "to_tokens.bias": 0},
    TokenTrunk: {"positions": 0},
    AdditiveReadout: dict.fromkeys(("heads", "units", "unit_biases", "gene_weights", "unit_weights"), 0),
}
"""Axes of tokens, or of their concatenated entries."""

GENE_AXES: Axes = {CountEncoder: {"weight": 0}, AdditiveReadout: {"gene_weights": 1, "unit_weights": 1, "bias": 0}}
"""Axes of genes; in a network of latent tokens, these are the concatenated entries of the tokens."""


def permute_weights(network: nn.Module, order: Tensor, axes: Axes) -> None:
    """Permute all weights of a network along the given axes; the inverse order restores them exactly."""
    for part in network.modules():
        for name, axis in axes.get(type(part), {}).items():
            permute_tokens(attrgetter(name)(part), order, axis)


@torch.no_grad()
def permute_tokens(weight: Tensor, order: Tensor, axis: int = 0) -> None:
    """Permute the blocks of an axis in place, one block per token: block ``order[k]`` becomes the ``k``-th."""
    blocks = weight.unflatten(axis, (len(order), -1))
    weight.copy_(blocks.index_select(axis, order.to(weight.device)).flatten(axis, axis + 1))
