"""The method on one page: corrupt a cell, predict its missing molecules, score the prediction; and generate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from scvi.module.base import BaseModuleClass, LossOutput
from torch import Tensor

from scdiffgen._batch import parts_from_batch
from scdiffgen._conditions import ConditionSpec, Parts
from scdiffgen.diffusion import (
    MoleculePredictor,
    Thinned,
    UrnPrediction,
    grow_molecules,
    guide,
    likelihood_bound,
    molecule_loss,
    row_sums,
    thin,
    thin_to,
    thinning_levels,
)
from scdiffgen.nn import ConditionOptions, NetworkSize, withhold

from ._batch import counts_from_batch
from ._denoiser import Conditions, Denoiser, InterventionKind


class TokenDiffusionModule(BaseModuleClass):
    """Token diffusion on counts by thinning.

    Parameters
    ----------
    n_vars
        Number of genes.
    specs
        The registered conditions.
    size
        Widths and depths of the network.
    withhold_rate
        Share of cells from which each condition is withheld while training, so that any subset of the conditions may be
        given when generating. In half of the cases all that are embedded are withheld together: what guidance compares
        with.
    options
        How conditions are embedded.
    intervention
        How interventions enter: ``"effect"`` or ``"embedding"``, see :class:`Denoiser`.
    features
        Feature vectors ``(categories, n_features)`` of the conditions that have them.
    """

    def __init__(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        withhold_rate: float = 0.1,
        options: ConditionOptions | None = None,
        intervention: InterventionKind = "effect",
        features: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.specs = tuple(specs)
        self.withhold_rate = withhold_rate
        self.denoiser = Denoiser(n_vars, specs, size, options or ConditionOptions(), intervention, features or {})
        self.ema_denoiser = deepcopy(self.denoiser).requires_grad_(requires_grad=False)

    def unpack(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Parts[Tensor]]]:
        """CSR counts ``(cells, genes)`` and conditions of a minibatch, on the module's device."""
        device = self.denoiser.not_told.device  # scvi-tools' property walks all parameters
        tensors = {key: tensor.to(device) for key, tensor in batch.items()}
        return counts_from_batch(tensors), parts_from_batch(tensors, self.specs)

    def loss(self, counts: Tensor, conditions: Conditions) -> LossOutput:
        """Training loss of CSR counts ``(cells, genes)``: cross-entropy of the missing molecules, nats per molecule.

        Penalties on the read-out, if there are any, are added.
        """
        conditions = withhold(conditions, self.withhold_rate, together=self.denoiser.embed.names)
        thinned = thin(counts, thinning_levels(self.library(counts)))
        prediction = self.denoiser(thinned, conditions)
        cross_entropy = molecule_loss(prediction, thinned)
        return _loss_output(cross_entropy, penalty=self.denoiser.network.readout.penalty())

    @torch.no_grad()
    def validation_loss(self, counts: Tensor, conditions: Conditions, generator: torch.Generator) -> LossOutput:
        """The same of the averaged network, nothing withheld, at the given randomness."""
        thinned = thin(counts, thinning_levels(self.library(counts), generator), generator)
        return _loss_output(molecule_loss(self.ema_denoiser(thinned, conditions), thinned))

    @torch.no_grad()
    def nll_bound(self, counts: Tensor, conditions: Conditions, generator: torch.Generator | None = None) -> Tensor:
        """One unbiased draw ``(cells,)`` of the bound on ``-log p(cell | library, conditions)``, in nats."""
        library = self.library(counts)
        uniform = torch.rand(library.shape, generator=generator, device=library.device)
        thinned = thin_to(counts, (uniform * library).long(), generator)
        return likelihood_bound(molecule_loss(self.ema_denoiser(thinned, conditions), thinned), counts)

    @torch.no_grad()
    def generate(
        self,
        conditions: Conditions,
        library: Tensor,
        *,
        start: Tensor | None = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Grow cells from ``start`` (nothing) to ``library`` ``(cells,)`` molecules: dense ``(cells, genes)``."""
        if start is None:
            start = library.new_zeros(len(library), self.denoiser.network.n_genes)
        predictor = self.predictor(conditions, len(library), guidance_scale)
        return grow_molecules(predictor, library, start, n_steps=n_steps, generator=generator)

    def predictor(
        self, conditions: Conditions, n_cells: int, guidance_scale: float | Mapping[str, float] = 1.0
    ) -> MoleculePredictor:
        """Bind conditions, with guidance by one scale for all of them or one for each.

        The scale of an intervention is the factor of its effect, against the control; that of anything else is
        classifier-free guidance, against the same without it. Conditions without a scale hold on both sides.
        """
        effects = [name for name in conditions if name in self.denoiser.effect_names]
        identity = [name for name in conditions if name not in effects]
        scales: list[tuple[tuple[str, ...], float]]
        if isinstance(guidance_scale, Mapping):
            scales = [((name,), guidance_scale[name]) for name in identity if name in guidance_scale]
            effect_scale = next((guidance_scale[name] for name in effects if name in guidance_scale), 1.0)
        else:
            scales = [(tuple(identity), guidance_scale)] if identity else []
            effect_scale = guidance_scale
        guided = {name for names, _ in scales for name in names}
        rest = {name: parts for name, parts in conditions.items() if name not in guided}
        told = [self._bind({**rest, **{n: conditions[n] for n in names}}, n_cells, effect_scale) for names, _ in scales]
        untold = self._bind(rest, n_cells, effect_scale)
        return guide(untold, told, [scale for _, scale in scales]) if told else untold

    def _bind(self, conditions: Conditions, n_cells: int, effect_scale: float) -> MoleculePredictor:
        denoiser = self.ema_denoiser
        condition = denoiser.embed_conditions(conditions, n_cells)

        def predict(state: Tensor, library: Tensor) -> UrnPrediction:
            n_molecules = state.sum(1)
            return denoiser.predict(state.to_sparse_csr(), n_molecules, library, condition, conditions, effect_scale)

        return predict

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int] = ()) -> None:
        """Append feature vectors ``(new, n_features)`` of further categories of a condition; nothing is trained."""
        for denoiser in (self.denoiser, self.ema_denoiser):
            denoiser.extend_features(name, vectors, components)

    def share_half_doses(self, trained: Mapping[str, Tensor]) -> None:
        """Give interventions without training cells the median half-maximal dose of those with, whose ids are given."""
        for denoiser in (self.denoiser, self.ema_denoiser):
            for name in denoiser.effect_names:
                denoiser.effect_of(name).share_half_dose(trained[name])

    @staticmethod
    def library(counts: Tensor) -> Tensor:
        """Library sizes ``(cells,)`` of CSR counts."""
        return row_sums(counts, counts.values())

    @torch.no_grad()
    def hidden(self, counts: Tensor, conditions: Conditions) -> Tensor:
        """What each token of whole cells says to the genes: ``(cells, tokens, readout_dim)``."""
        return self.ema_denoiser.network.readout.hidden(self.tokens(counts, conditions))

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Conditions) -> Tensor:
        """Expected expression ``(cells, genes)`` of whole cells: the distribution over genes of one more molecule."""
        library = self.library(counts)
        whole = Thinned(counts, torch.zeros_like(counts.values()), library, library)
        return self.ema_denoiser(whole, conditions).log_prob(counts.to_dense()).exp()

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Conditions) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` of whole cells."""
        library = self.library(counts)
        condition = self.ema_denoiser.embed_conditions(conditions, len(library))
        return self.ema_denoiser.network.tokens(counts, library, library, condition)


def _loss_output(cross_entropy: Tensor, penalty: Tensor | float = 0.0) -> LossOutput:
    return LossOutput(loss=cross_entropy.mean() + penalty, n_obs_minibatch=len(cross_entropy))
