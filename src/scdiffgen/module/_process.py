"""What every process provides, and what all of them share: conditions, guidance, averaged weights.

A process says how cells are corrupted and how they are generated. It is a subclass of :class:`DiffusionModule` in a
file of its own, listed in ``_processes.py``; the model and the training plan see the base class alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import torch
from scvi import REGISTRY_KEYS
from scvi.module.base import BaseModuleClass, LossOutput
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec, conditions_from_batch
from scdiffgen.diffusion import row_sums
from scdiffgen.nn import NetworkSize

from ._batch import counts_from_batch
from ._denoiser import ConditionedDenoiser

Predictor = Callable[..., Any]
"""A network whose conditions are bound; what it takes and returns is between it and its process."""


class DiffusionModule(BaseModuleClass):
    """A way to corrupt and to generate cells, with the network that it trains.

    Parameters
    ----------
    n_vars
        Number of genes.
    specs
        The registered conditions.
    size
        Sizes and form of the network.
    withhold_rate
        Share of cells from which each condition is withheld while training, so that any subset of the conditions may be
        given when generating. In half of the cases all that are embedded are withheld together: what guidance compares
        with.
    features
        Feature vectors ``(categories, n_features)`` of the conditions that have them.
    process_options
        Settings of the process, of the class ``options_cls``; by default its defaults.
    """

    process: ClassVar[str]
    """What users write: ``process="thinning"``."""

    options_cls: ClassVar[type | None] = None
    """A frozen dataclass of plain values with the settings of the process, if it has any."""

    count_keys: tuple[str, ...] = (REGISTRY_KEYS.X_KEY,)
    """What counts are called in a minibatch; those of several kinds are laid side by side."""

    denoiser: ConditionedDenoiser
    ema_denoiser: ConditionedDenoiser

    def __init__(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        withhold_rate: float = 0.1,
        features: Mapping[str, Tensor] | None = None,
        process_options: Any = None,
    ) -> None:
        super().__init__()
        self.specs = tuple(specs)
        self.n_vars = n_vars
        self.size = size
        self.withhold_rate = withhold_rate
        self.process_options = self.options_cls() if self.options_cls and process_options is None else process_options
        self.denoiser = self.make_denoiser(n_vars, specs, size, features or {})
        self.ema_denoiser = deepcopy(self.denoiser).requires_grad_(requires_grad=False)

    # What a process must provide.

    @abstractmethod
    def make_denoiser(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
    ) -> ConditionedDenoiser:
        """Everything that is trained."""

    @abstractmethod
    def initialise(self, batches: Iterable[tuple[Any, Conditions[Tensor]]]) -> None:
        """Take what the process must know of the cells before its first training, from CSR counts and conditions."""

    @abstractmethod
    def loss(self, counts: Tensor, conditions: Conditions[Tensor]) -> LossOutput:
        """Training loss of CSR counts ``(cells, genes)``, conditions withheld at random."""

    @abstractmethod
    def validation_loss(self, counts: Tensor, conditions: Conditions[Tensor], generator: torch.Generator) -> LossOutput:
        """The same of the averaged network, nothing withheld, at the given randomness."""

    @abstractmethod
    def bind(self, conditions: Conditions[Tensor], n_cells: int, effect_scale: float) -> Predictor:
        """The averaged network under given conditions, effects of interventions multiplied."""

    @abstractmethod
    def guide(self, unconditional: Predictor, conditional: Sequence[Predictor], scales: Sequence[float]) -> Predictor:
        """Move a prediction towards others; a single scale between 0 and 1 leads from the one to the other."""

    @abstractmethod
    def draw(
        self, predictor: Predictor, library: Tensor, *, n_steps: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw cells of about ``library`` ``(cells,)`` molecules: dense whole counts ``(cells, genes)``."""

    @abstractmethod
    def counterfactual(
        self,
        counts: Tensor,
        own: Conditions[Tensor],
        asked: Conditions[Tensor],
        *,
        keep: float | None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw cells under other conditions than their own, with a share ``keep`` in [0, 1) of each kept.

        What is kept without a share is for the process to say.
        """

    @abstractmethod
    def expression(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """Expected expression ``(cells, genes)`` of whole cells, in shares that sum to 1."""

    @abstractmethod
    def tokens(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` of whole cells."""

    @abstractmethod
    def hidden(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """What each token of whole cells says to the genes: ``(cells, tokens, readout_dim)``."""

    @abstractmethod
    def gene_weights(self) -> Tensor | None:
        """Weights of the genes on :meth:`hidden` ``(tokens, readout_dim, genes)``; ``None`` if tokens do not add up."""

    # What all processes share.

    @property
    def nested(self) -> bool:
        """Whether the first tokens were trained to matter most."""
        return self.size.nested_tokens

    def withheld(self, conditions: Conditions[Tensor]) -> tuple[Conditions, Tensor | None]:
        """Withhold conditions at random, and say which cells effects may learn from ``(cells,)``; ``None`` is all.

        They are those whose identity is not withheld: among the others, treated and untreated cells differ by what
        types they are, too.
        """
        identity = self.denoiser.embed.names
        fewer = conditions.drop(self.withhold_rate, together=identity)
        complete = [fewer[name].given == conditions[name].given for name in identity if name in conditions]
        return fewer, torch.stack(complete).all(0) if complete else None

    def unpack(self, batch: Mapping[str, Tensor]) -> tuple[Any, Conditions[Tensor]]:
        """CSR counts ``(cells, genes)`` (or what was computed of them) and conditions, on the module's device."""
        device = self.denoiser.not_told.device  # scvi-tools' property walks all parameters
        tensors = {key: tensor.to(device) for key, tensor in batch.items()}
        return counts_from_batch(tensors, self.count_keys), conditions_from_batch(tensors, self.specs)

    def stages(self) -> tuple[float, ...]:
        """Shares of the epochs that the stages of training take; most processes have one."""
        return (1.0,)

    def compute_once(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What a later stage needs of a minibatch, a row a cell: it gets minibatches of that in place of cells."""
        return dict(batch)

    def begin_stage(self, cached: Mapping[str, Tensor]) -> None:
        """Begin the next stage, given what was computed of all training cells."""

    @torch.no_grad()
    def generate(
        self,
        conditions: Conditions[Tensor],
        library: Tensor,
        *,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw cells of ``library`` ``(cells,)`` molecules under given conditions: dense ``(cells, genes)``."""
        predictor = self.predictor(conditions, len(library), guidance_scale)
        return self.draw(predictor, library, n_steps=n_steps, generator=generator)

    @torch.no_grad()
    def interpolate(
        self,
        start: Conditions[Tensor],
        end: Conditions[Tensor],
        fraction: float,
        library: Tensor,
        *,
        n_steps: int,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw cells between two conditions: predictions a ``fraction`` of the way from the one to the other."""
        at_start, at_end = (self.predictor(conditions, len(library)) for conditions in (start, end))
        between = self.guide(at_start, [at_end], [fraction])
        return self.draw(between, library, n_steps=n_steps, generator=generator)

    def predictor(
        self, conditions: Conditions[Tensor], n_cells: int, guidance_scale: float | Mapping[str, float] = 1.0
    ) -> Predictor:
        """Bind conditions, with guidance by one scale for all of them or one for each.

        The scale of an intervention is the factor of its effect, against the control; that of anything else is
        classifier-free guidance, against the same without it. Conditions without a scale hold on both sides.
        """
        identity = [name for name in conditions if name not in self.denoiser.effect_names]
        scales: list[tuple[tuple[str, ...], float]]
        if isinstance(guidance_scale, Mapping):
            scales = [((name,), guidance_scale[name]) for name in identity if name in guidance_scale]
        else:
            scales = [(tuple(identity), guidance_scale)] if identity else []
        effect_scale = self.effect_scale(guidance_scale)
        guided = {name for names, _ in scales for name in names}
        rest = conditions.without(guided)
        conditional = [self.bind(rest.replace(conditions.only(names)), n_cells, effect_scale) for names, _ in scales]
        unconditional = self.bind(rest, n_cells, effect_scale)
        return self.guide(unconditional, conditional, [scale for _, scale in scales]) if conditional else unconditional

    def effect_scale(self, guidance_scale: float | Mapping[str, float]) -> float:
        """Factor of the effects of interventions."""
        if not isinstance(guidance_scale, Mapping):
            return guidance_scale
        return next((guidance_scale[name] for name in self.denoiser.effect_names if name in guidance_scale), 1.0)

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int] = ()) -> None:
        """Append feature vectors ``(new, n_features)`` of further categories of a condition; nothing is trained."""
        for denoiser in (self.denoiser, self.ema_denoiser):
            denoiser.extend_features(name, vectors, components)

    def share_half_doses(self, trained: Mapping[str, Tensor]) -> None:
        """Give interventions without training cells the median half-maximal dose of those with, whose ids are given."""
        for denoiser in (self.denoiser, self.ema_denoiser):
            for name in denoiser.effect_names:
                denoiser.effect_of(name).share_half_dose(trained[name])

    def library(self, counts: Tensor) -> Tensor:
        """Library sizes ``(cells,)`` of CSR counts."""
        return row_sums(counts, counts.values())
