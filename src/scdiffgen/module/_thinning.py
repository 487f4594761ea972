"""The method on one page: corrupt a cell, predict its missing molecules, score the prediction; and generate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from scvi.module.base import LossOutput
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import (
    MoleculePredictor,
    Thinned,
    UrnPrediction,
    couple_molecules,
    grow_molecules,
    guide,
    likelihood_bound,
    molecule_loss,
    row_sums,
    thin,
    thin_to,
    thinning_levels,
)
from scdiffgen.nn import AdditiveReadout, NetworkSize

from ._batch import gene_frequencies
from ._denoiser import Denoiser
from ._process import DiffusionModule

N_READINGS, N_READ = 8, 4
"""How often, and with how many molecules on average, a cell is read to tell its response."""


class ThinningModule(DiffusionModule):
    """Token diffusion on counts: molecules are taken away, and put back."""

    process = "thinning"
    denoiser: Denoiser
    ema_denoiser: Denoiser

    def make_denoiser(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
    ) -> Denoiser:
        """Predict the missing molecules."""
        return Denoiser(n_vars, specs, size, features)

    def initialise(self, batches: Iterable[tuple[Tensor, Conditions[Tensor]]]) -> None:
        """Start from the average cell to which nothing was done.

        What effects add starts at zero: if the base began with the genes of treated cells, it would have to unlearn
        them where they are rare, and the effects would come out too weak.
        """
        frequencies = gene_frequencies(
            ((counts, self.denoiser.unaffected(told, len(counts))) for counts, told in batches), self.n_vars
        )
        for denoiser in (self.denoiser, self.ema_denoiser):
            denoiser.network.readout.initialise_bias(frequencies)

    def loss(self, counts: Tensor, conditions: Conditions[Tensor]) -> LossOutput:
        """Training loss of CSR counts ``(cells, genes)``: cross-entropy of the missing molecules, nats per molecule.

        Penalties on the read-out, if there are any, are added.
        """
        conditions, teaching = self.withheld(conditions)
        thinned = thin(counts, thinning_levels(self.library(counts)))
        prediction = self.denoiser(thinned, conditions, teaching)
        cross_entropy = molecule_loss(prediction, thinned)
        return loss_output(cross_entropy, penalty=self.denoiser.network.readout.penalty())

    @torch.no_grad()
    def validation_loss(self, counts: Tensor, conditions: Conditions[Tensor], generator: torch.Generator) -> LossOutput:
        """The same of the averaged network, nothing withheld, at the given randomness."""
        thinned = thin(counts, thinning_levels(self.library(counts), generator), generator)
        return loss_output(molecule_loss(self.ema_denoiser(thinned, conditions), thinned))

    @torch.no_grad()
    def nll_bound(
        self, counts: Tensor, conditions: Conditions[Tensor], generator: torch.Generator | None = None
    ) -> Tensor:
        """One unbiased draw ``(cells,)`` of the bound on ``-log p(cell | library, conditions)``, in nats."""
        library = self.library(counts)
        uniform = torch.rand(library.shape, generator=generator, device=library.device)
        thinned = thin_to(counts, (uniform * library).long(), generator)
        return likelihood_bound(molecule_loss(self.ema_denoiser(thinned, conditions), thinned), counts)

    @torch.no_grad()
    def generate(
        self,
        conditions: Conditions[Tensor],
        library: Tensor,
        *,
        start: Tensor | None = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Grow cells from ``start`` (nothing) to ``library`` ``(cells,)`` molecules: dense ``(cells, genes)``."""
        predictor = self.predictor(conditions, len(library), guidance_scale)
        return self.draw(predictor, library, start=start, n_steps=n_steps, generator=generator)

    def draw(
        self,
        predictor: MoleculePredictor,
        library: Tensor,
        *,
        start: Tensor | None = None,
        n_steps: int,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Grow cells from ``start`` (nothing) to ``library`` ``(cells,)`` molecules: dense ``(cells, genes)``."""
        if start is None:
            start = library.new_zeros(len(library), self.n_vars)
        return grow_molecules(predictor, library, start, n_steps=n_steps, generator=generator)

    @torch.no_grad()
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
        """Thin cells to a share ``keep`` of their molecules, and grow them again under other conditions.

        Without a share each gene keeps what its probabilities under both conditions have in common, and only the rest
        is drawn again.
        """
        if keep is None:
            change = self.change(counts, own, asked, guidance_scale, generator)
            return self.couple(counts.to_dense(), self.expression(counts, own).log(), change, generator)
        kept = self.keep(counts, keep, generator)
        return self.generate(
            asked,
            kept.library,
            start=kept.state.to_dense(),
            guidance_scale=guidance_scale,
            n_steps=n_steps,
            generator=generator,
        )

    def change(
        self,
        counts: Tensor,
        own: Conditions[Tensor],
        asked: Conditions[Tensor],
        guidance_scale: float | Mapping[str, float],
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Change of the log-probabilities ``(cells, genes)`` of the next molecule from the own to the asked conditions.

        Cells are read with few of their molecules: whole cells show that they are not what is asked for.
        """
        library = self.library(counts)
        before, after = self.predictor(own, len(counts)), self.predictor(asked, len(counts), guidance_scale)
        share = (N_READ / row_sums(counts, counts.values())).clamp(max=1)
        change = torch.zeros(counts.shape, device=counts.device)
        for _ in range(N_READINGS):
            state = self.keep(counts, share, generator).state.to_dense()
            change += after(state, library).log_prob(state) - before(state, library).log_prob(state)
        return change / N_READINGS

    def couple(
        self, counts: Tensor, log_prob: Tensor, change: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Move dense cells from given log-probabilities ``(cells, genes)`` to changed ones."""
        return couple_molecules(counts, log_prob, log_prob + change, generator)

    def keep(self, counts: Tensor, share: float | Tensor, generator: torch.Generator | None = None) -> Thinned:
        """Thin cells to a share of their molecules, the same for all or one a cell ``(cells,)``."""
        return thin(counts, torch.as_tensor(share, device=counts.device).expand(len(counts)), generator)

    def guide(
        self, unconditional: MoleculePredictor, conditional: Sequence[MoleculePredictor], scales: Sequence[float]
    ) -> MoleculePredictor:
        """Guide the distribution of the next molecule, in its logarithm."""
        return guide(unconditional, conditional, scales)

    def bind(self, conditions: Conditions[Tensor], n_cells: int, effect_scale: float) -> MoleculePredictor:
        """The averaged network under given conditions, effects of interventions multiplied."""
        denoiser = self.ema_denoiser
        condition = denoiser.embed_conditions(conditions, n_cells)

        def predict(state: Tensor, library: Tensor) -> UrnPrediction:
            n_molecules = self.n_molecules(state)
            return denoiser.predict(state.to_sparse_csr(), n_molecules, library, condition, conditions, effect_scale)

        return predict

    def n_molecules(self, state: Tensor) -> Tensor:
        """Molecules there ``(cells,)`` in dense cells."""
        return state.sum(1)

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """Expected expression ``(cells, genes)`` of whole cells: the distribution over genes of one more molecule."""
        library = self.library(counts)
        whole = Thinned(counts, torch.zeros_like(counts.values()), library, library)
        return self.ema_denoiser(whole, conditions).log_prob(counts.to_dense()).exp()

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` of whole cells."""
        library = self.library(counts)
        condition = self.ema_denoiser.embed_conditions(conditions, len(library))
        return self.ema_denoiser.network.tokens(counts, library, library, condition)

    @torch.no_grad()
    def hidden(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        """What each token of whole cells says to the genes: ``(cells, tokens, readout_dim)``."""
        return self.ema_denoiser.network.additive_readout.hidden(self.tokens(counts, conditions))

    def gene_weights(self) -> Tensor | None:
        """Weights of the genes on :meth:`hidden` ``(tokens, readout_dim, genes)``, of log-rates; or nothing."""
        readout = self.ema_denoiser.network.readout
        return readout.loadings() if isinstance(readout, AdditiveReadout) else None


def loss_output(cross_entropy: Tensor, penalty: Tensor | float = 0.0) -> LossOutput:
    """Mean over the cells, penalty added."""
    return LossOutput(loss=cross_entropy.mean() + penalty, n_obs_minibatch=len(cross_entropy))
