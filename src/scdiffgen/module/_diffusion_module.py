"""Base class of modules: condition dropout, guidance, averaged weights and training stages."""

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
    """Diffusion module: a process, its denoiser, and an averaged (EMA) denoiser for sampling and validation."""

    process_name: ClassVar[str]
    """Name of the process, as in ``process="thinning"``."""

    options_cls: ClassVar[type | None] = None
    """A frozen dataclass of plain values with the settings of the process, if it has any."""

    judged_by_validation: ClassVar[bool] = True
    """Whether a rising validation loss stops training and restores the best weights."""

    least_steps: ClassVar[int] = 1000
    """Minimum number of training steps by default."""

    count_keys: tuple[str, ...] = (REGISTRY_KEYS.X_KEY,)
    """Keys of counts in a minibatch; counts of several modalities are concatenated."""

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
        self.intervention_names = [spec.name for spec in self.specs if spec.is_intervention]
        self.n_vars = n_vars
        self.size = size
        self.condition_dropout = condition_dropout
        self.process_options = self.options_cls() if self.options_cls and process_options is None else process_options
        self.process = self.make_process()
        self.denoiser = self.make_denoiser(features or {})
        self.ema_denoiser = deepcopy(self.denoiser).requires_grad_(requires_grad=False)

    # Methods that a process must provide.

    @abstractmethod
    def make_process(self) -> Any:
        """Create the process object, which corrupts and draws cells."""

    @abstractmethod
    def make_denoiser(self, features: Mapping[str, Tensor]) -> ConditionedDenoiser:
        """Create the denoiser, given feature vectors ``(categories, n_features)`` by condition."""

    @abstractmethod
    def initialise(self, batches: Iterable[tuple[Any, Given]]) -> None:
        """Initialise from the CSR counts and conditions of the training cells, before the first training."""

    @abstractmethod
    def loss(self, counts: Tensor, conditions: Given) -> LossOutput:
        """Compute the training loss of CSR counts ``(cells, genes)`` with condition dropout."""

    @abstractmethod
    def validation_loss(self, counts: Tensor, conditions: Given, generator: torch.Generator) -> LossOutput:
        """Compute the loss of the averaged network, without condition dropout and with a fixed generator."""

    @abstractmethod
    def draw(self, predictor: Predictor, library: Tensor, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Draw cells of about ``library`` ``(cells,)`` molecules: dense integer counts ``(cells, genes)``."""

    @abstractmethod
    def counterfactual(
        self, cells: Tensor, source: Given, after: Predictor, *, keep: float | None, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Draw cells by the predictor ``after``, keeping a share ``keep`` in [0, 1); ``None`` is the default."""

    @abstractmethod
    def expression(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute expected expression ``(cells, genes)`` of whole cells, in shares that sum to 1."""

    @abstractmethod
    def tokens(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute tokens ``(cells, tokens, dim)`` of whole cells."""

    # Methods that a process may override.

    def start_linearly(self, sample: Iterable[tuple[Any, Given]]) -> None:
        """Initialise by a linear model of a sample of training cells (CSR counts and conditions)."""

    def linear_weights(self) -> Sequence[Tensor]:
        """Return the linearly initialised weights, which have a lower learning rate."""
        return ()

    def regularisation(self, n_cells: int) -> tuple[float, float]:
        """Return weight decay and the relative learning rate of :meth:`linear_weights` for ``n_cells``."""
        return 0.01, 1.0

    # Reading tokens.

    @torch.no_grad()
    def hidden(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute hidden vectors of the read-out ``(cells, tokens, width)`` of whole cells."""
        return self.ema_denoiser.network.readout.hidden(self.tokens(counts, conditions))

    def gene_weights(self) -> Tensor:
        """Return gene weights of :meth:`hidden`, ``(tokens, width, genes)``."""
        return self.ema_denoiser.network.readout.loadings()

    def sort_tokens(self, order: Sequence[int]) -> None:
        """Permute the tokens: the ``order[k]``-th becomes the ``k``-th; the inverse permutation undoes it bitwise."""
        for denoiser in self.denoisers:
            denoiser.sort_tokens(torch.as_tensor(order))

    # Training.

    @property
    def denoisers(self) -> tuple[Any, Any]:
        """The trained denoiser and the averaged denoiser."""
        return self.denoiser, self.ema_denoiser

    def unpack(self, batch: Mapping[str, Tensor]) -> tuple[Any, Given]:
        """Return CSR counts ``(cells, genes)`` (or cached values) and conditions on the module's device."""
        device = self.denoiser.embed.null.device  # scvi-tools' property walks all parameters
        tensors = {key: tensor.to(device) for key, tensor in batch.items()}
        parts = [tensors[key] for key in self.count_keys]
        counts = side_by_side([part if part.layout == torch.sparse_csr else part.to_sparse_csr() for part in parts])
        return counts, conditions_from_batch(tensors, self.specs)

    def drop_conditions(self, conditions: Given) -> Given:
        """Drop conditions at random."""
        return conditions.drop(self.condition_dropout, together=list(conditions))

    def stages(self) -> tuple[float, ...]:
        """Return shares of the epochs of the training stages; most processes have one stage."""
        return (1.0,)

    def compute_once(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the features that replace the counts of cells in later stages."""
        return dict(batch)

    def begin_stage(self, cached: Mapping[str, Tensor]) -> None:
        """Begin the next stage, given the cached features of all training cells."""

    def calibrate(self, cells: Iterable[tuple[Any, Given]], n_training: int) -> None:
        """Calibrate gene means of drawn cells to those of training cells; by default do nothing."""

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int] = ()) -> None:
        """Append feature vectors ``(new, n_features)`` of new categories of a condition, without training."""
        for denoiser in self.denoisers:
            denoiser.embed.extend_features(name, vectors, components)

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
        rest = conditions.without({name for names, _ in groups for name in names})
        guided = [rest.replace(conditions.only(names)) for names, _ in groups]
        conditional = [self.ema_denoiser.bind(given) for given in guided]
        unconditional = self.ema_denoiser.bind(rest)
        scales = [scale for _, scale in groups]
        return self.process.guide(unconditional, conditional, scales) if conditional else unconditional

    def guided(self, conditions: Given, guidance_scale: Scale) -> list[tuple[list[str], float]]:
        """Return conditions that are guided together, and their scales."""
        if isinstance(guidance_scale, Mapping):
            return [([name], guidance_scale[name]) for name in conditions if name in guidance_scale]
        return [(list(conditions), guidance_scale)] if conditions else []

    def library(self, counts: Tensor) -> Tensor:
        """Compute library sizes ``(cells,)`` of CSR counts."""
        return self.denoiser.library(counts)

    def log_expression(self, counts: Tensor) -> sparse.csr_matrix:
        """Log-normalise CSR counts ``(cells, genes)`` within each modality."""
        return log_normalise(to_scipy(counts))


def loss_output(errors: Tensor, penalty: Tensor | float = 0.0) -> LossOutput:
    """Average errors over cells and add the penalty."""
    return LossOutput(loss=errors.mean() + penalty, n_obs_minibatch=len(errors))


def gene_frequencies(molecules: NDArray[np.float64]) -> Tensor:
    """Compute smoothed shares of genes among all molecules ``(genes,)``."""
    return torch.from_numpy((molecules + 0.5) / (molecules + 0.5).sum()).float()
