"""What all processes, each with its denoiser, share: condition dropout, guidance, averaged weights, training stages."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scvi import REGISTRY_KEYS
from scvi.module.base import BaseModuleClass, LossOutput
from torch import Tensor

from scdiffgen._log_normalise import log_normalise
from scdiffgen.conditions import ConditionSpec, conditions_from_batch
from scdiffgen.diffusion import Rng, side_by_side, to_scipy
from scdiffgen.nn import NetworkSize

from ._denoiser import ConditionedDenoiser
from ._processes import Given, Predictor, Scale


class DiffusionModule(BaseModuleClass):
    """A process, the denoiser that it trains, and an average of the denoiser's weights that samples and judges."""

    process_name: ClassVar[str]
    """What users write: ``process="thinning"``."""

    options_cls: ClassVar[type | None] = None
    """A frozen dataclass of plain values with the settings of the process, if it has any."""

    judged_by_validation: ClassVar[bool] = True
    """Whether training stops, and goes back to its best weights, where the validation loss rises."""

    least_steps: ClassVar[int] = 1000
    """Steps of training, of few cells, by default."""

    count_keys: tuple[str, ...] = (REGISTRY_KEYS.X_KEY,)
    """What counts are called in a minibatch; those of several modalities are laid side by side."""

    process: Any
    """An object with the methods ``corrupt``, ``score``, ``draw`` and ``guide``, without weights."""

    denoiser: ConditionedDenoiser
    ema_denoiser: ConditionedDenoiser

    def __init__(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        condition_dropout: float = 0.1,
        features: Mapping[str, Tensor] | None = None,
        process_options: Any = None,
    ) -> None:
        super().__init__()
        self.specs = tuple(specs)
        self.n_vars = n_vars
        self.size = size
        self.condition_dropout = condition_dropout
        self.process_options = self.options_cls() if self.options_cls and process_options is None else process_options
        self.process = self.make_process()
        self.denoiser = self.make_denoiser(features or {})
        self.ema_denoiser = deepcopy(self.denoiser).requires_grad_(requires_grad=False)

    # What a process must provide.

    @abstractmethod
    def make_process(self) -> Any:
        """How cells are corrupted and drawn."""

    @abstractmethod
    def make_denoiser(self, features: Mapping[str, Tensor]) -> ConditionedDenoiser:
        """Everything that is trained, given the feature vectors ``(categories, n_features)`` of some conditions."""

    @abstractmethod
    def initialise(self, batches: Iterable[tuple[Any, Given]]) -> None:
        """Take what must be known of the training cells before the first training, from CSR counts and conditions."""

    @abstractmethod
    def loss(self, counts: Tensor, conditions: Given) -> LossOutput:
        """Training loss of CSR counts ``(cells, genes)``, with condition dropout."""

    @abstractmethod
    def validation_loss(self, counts: Tensor, conditions: Given, generator: torch.Generator) -> LossOutput:
        """The same of the averaged network, no condition dropped, at the given randomness."""

    @abstractmethod
    def draw(self, predictor: Predictor, library: Tensor, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Draw cells of about ``library`` ``(cells,)`` molecules: dense whole counts ``(cells, genes)``."""

    @abstractmethod
    def counterfactual(
        self, cells: Tensor, source: Given, after: Predictor, *, keep: float | None, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Draw cells by the predictor ``after``, a share ``keep`` in [0, 1) of each kept; None: the process decides."""

    @abstractmethod
    def expression(self, counts: Tensor, conditions: Given) -> Tensor:
        """Expected expression ``(cells, genes)`` of whole cells, in shares that sum to 1."""

    @abstractmethod
    def tokens(self, counts: Tensor, conditions: Given) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` of whole cells."""

    # What a process may have.

    def start_linearly(self, sample: Iterable[tuple[Any, Given]]) -> None:
        """Start from a linear model of some of the training cells, CSR counts and conditions."""

    def linear_weights(self) -> Sequence[Tensor]:
        """Weights of the denoiser that start as the linear model, and are trained more slowly."""
        return ()

    def regularisation(self, n_cells: int) -> tuple[float, float]:
        """Weight decay, and share of the learning rate of :meth:`linear_weights`, for so many training cells."""
        return 0.01, 1.0

    # Reading tokens.

    @torch.no_grad()
    def hidden(self, counts: Tensor, conditions: Given) -> Tensor:
        """Hidden vectors of the read-out ``(cells, tokens, width)`` in whole cells."""
        return self.ema_denoiser.network.readout.hidden(self.tokens(counts, conditions))

    def gene_weights(self) -> Tensor:
        """Weights of the genes on :meth:`hidden` ``(tokens, width, genes)``."""
        return self.ema_denoiser.network.readout.loadings()

    def sort_tokens(self, order: Sequence[int]) -> None:
        """Permute the tokens: the ``order[k]``-th becomes the ``k``-th; the inverse permutation undoes it bitwise."""
        for denoiser in self.denoisers:
            denoiser.sort_tokens(torch.as_tensor(order))

    # Training.

    @property
    def denoisers(self) -> tuple[Any, Any]:
        """The denoiser that is trained, and the averaged one."""
        return self.denoiser, self.ema_denoiser

    def unpack(self, batch: Mapping[str, Tensor]) -> tuple[Any, Given]:
        """CSR counts ``(cells, genes)`` (or what was computed of them) and conditions, on the module's device."""
        device = self.denoiser.missing.device  # scvi-tools' property walks all parameters
        tensors = {key: tensor.to(device) for key, tensor in batch.items()}
        parts = [tensors[key] for key in self.count_keys]
        counts = side_by_side([part if part.layout == torch.sparse_csr else part.to_sparse_csr() for part in parts])
        return counts, conditions_from_batch(tensors, self.specs)

    def drop_conditions(self, conditions: Given) -> tuple[Given, Tensor | None]:
        """Drop conditions, and select the cells that train effects ``(cells,)``: of full context; None is all."""
        context = self.denoiser.embed.names
        fewer = conditions.drop(self.condition_dropout, together=context)
        complete = [fewer[name].given == conditions[name].given for name in context if name in conditions]
        return fewer, torch.stack(complete).all(0) if complete else None

    def stages(self) -> tuple[float, ...]:
        """Shares of the epochs that the stages of training take; most processes have one."""
        return (1.0,)

    def compute_once(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What a later stage needs of a minibatch, a row a cell: it gets minibatches of that in place of cells."""
        return dict(batch)

    def begin_stage(self, cached: Mapping[str, Tensor]) -> None:
        """Begin the next stage, given what was computed of all training cells."""

    def calibrate(self, cells: Iterable[tuple[Any, Given]], n_training: int) -> None:
        """Match the gene means of drawn cells to those of training cells; by default, do nothing."""

    def share_half_doses(self, trained: Mapping[str, Tensor]) -> None:
        """Give interventions without training cells the median half-maximal dose of those with, whose ids are given."""
        for denoiser in self.denoisers:
            for name in denoiser.effect_names:
                denoiser.effect_of(name).share_half_dose(trained[name])

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int] = ()) -> None:
        """Append feature vectors ``(new, n_features)`` of further categories of a condition; nothing is trained."""
        for denoiser in self.denoisers:
            denoiser.extend_features(name, vectors, components)

    # Sampling.

    @torch.no_grad()
    def generate(
        self, conditions: Given, library: Tensor, *, guidance_scale: Scale = 1.0, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Draw cells of ``library`` ``(cells,)`` molecules under given conditions: dense ``(cells, genes)``."""
        predictor = self.predictor(conditions, len(library), guidance_scale)
        return self.draw(predictor, library, n_steps=n_steps, generator=generator)

    def predictor(self, conditions: Given, n_cells: int, guidance_scale: Scale = 1.0) -> Predictor:
        """Bind conditions to the averaged network, with one guidance scale or a scale for each named condition."""
        groups = self.guided(conditions, guidance_scale)
        effect_scale = self.effect_scale(guidance_scale)  # multiplies effects; others are classifier-free guidance
        rest = conditions.without({name for names, _ in groups for name in names})
        guided = [rest.replace(conditions.only(names)) for names, _ in groups]
        conditional = [self.ema_denoiser.bind(given, effect_scale) for given in guided]
        unconditional = self.ema_denoiser.bind(rest, effect_scale)
        scales = [scale for _, scale in groups]
        return self.process.guide(unconditional, conditional, scales) if conditional else unconditional

    def guided(self, conditions: Given, guidance_scale: Scale) -> list[tuple[list[str], float]]:
        """Names of the conditions that are guided together, and by which scale."""
        names = [name for name in conditions if name not in self.denoiser.effect_names]
        if isinstance(guidance_scale, Mapping):
            return [([name], guidance_scale[name]) for name in names if name in guidance_scale]
        return [(names, guidance_scale)] if names else []

    def effect_scale(self, guidance_scale: Scale) -> float:
        """Factor of the effects of interventions."""
        if not isinstance(guidance_scale, Mapping):
            return guidance_scale
        return next((guidance_scale[name] for name in self.denoiser.effect_names if name in guidance_scale), 1.0)

    def library(self, counts: Tensor) -> Tensor:
        """Library sizes ``(cells,)`` of CSR counts."""
        return self.denoiser.library(counts)

    def log_expression(self, counts: Tensor) -> sparse.csr_matrix:
        """Log-normalised expression ``(cells, genes)`` of CSR counts, each modality by itself."""
        return log_normalise(to_scipy(counts))


def loss_output(errors: Tensor, penalty: Tensor | float = 0.0) -> LossOutput:
    """Mean over the cells, penalty added."""
    return LossOutput(loss=errors.mean() + penalty, n_obs_minibatch=len(errors))


def gene_frequencies(molecules: NDArray[np.float64]) -> Tensor:
    """Share of all molecules of each gene ``(genes,)``, smoothed."""
    return torch.from_numpy((molecules + 0.5) / (molecules + 0.5).sum()).float()
