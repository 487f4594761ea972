"""Module of the thinning process: corruption, prediction of missing molecules, losses and sampling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from scipy import sparse
from scvi.module.base import LossOutput
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from scdiffgen.diffusion import Blocks, MoleculePredictor, Rng, Thinned, column_sums, row_sums, to_scipy

from ._denoiser import Denoiser
from ._diffusion_module import DiffusionModule, gene_frequencies, loss_output
from ._linear_start import linear_model_of_blocks, linear_weights, start_linearly
from ._mean_calibration import mean_change
from ._processes import Given, Predictor, Thinning
from ._rare_labels import LabelSums

DEEP = 10  # mean counts per feature of a modality above which prior strengths are capped


class ThinningModule(DiffusionModule):
    """Token diffusion on counts by binomial thinning."""

    process_name = "thinning"
    process: Thinning
    denoiser: Denoiser
    ema_denoiser: Denoiser

    def make_process(self) -> Thinning:
        return Thinning()

    def make_denoiser(self, features: Mapping[str, Tensor]) -> Denoiser:
        return Denoiser((self.n_vars,), self.specs, self.size, features)

    def initialise(self, batches: Iterable[tuple[Tensor, Given]]) -> None:
        """Initialise by the average cell, offset rare labels, and cap priors of high-count modalities."""
        blocks = Blocks(self.denoiser.limit.sizes)
        offsets = self.denoiser.label_offsets
        label_sums = [] if offsets is None else [LabelSums(offsets.name, len(offsets.table), n) for n in blocks.sizes]
        molecules = np.zeros(self.n_vars)
        n_molecules = n_cells = torch.zeros(len(blocks.sizes))
        for counts, given in batches:
            library = self.library(counts).cpu().reshape(len(counts), len(blocks.sizes))
            n_molecules, n_cells = n_molecules + library.sum(0), n_cells + (library > 0).sum(0)
            molecules += column_sums(counts).cpu().numpy()
            for sums, cells in zip(label_sums, blocks.split(to_scipy(counts)) if label_sums else (), strict=True):
                sums.add(cells, given)
        frequencies = gene_frequencies(molecules)
        self._start_from(frequencies, n_molecules, n_cells)
        if label_sums:
            parts = zip(label_sums, frequencies.split(blocks.sizes), strict=True)
            table = torch.cat([sums.offsets(shares) for sums, shares in parts], dim=1)
            for denoiser in self.denoisers:
                denoiser.label_offsets.set(table)

    def _start_from(self, frequencies: Tensor, n_molecules: Tensor, n_cells: Tensor) -> None:
        """Initialise from gene frequencies, and from numbers of molecules and cells ``(modalities,)``."""
        widths = torch.tensor(self.denoiser.limit.sizes)
        deep = (n_molecules >= DEEP * n_cells * widths) & (n_cells > 0)
        for denoiser in self.denoisers:
            denoiser.limit.limit(deep)
            denoiser.limit.depth.copy_(n_molecules / n_cells)
            denoiser.network.readout.initialise_bias(frequencies)

    def start_linearly(self, sample: Iterable[tuple[Tensor, Given]]) -> None:
        cells = sparse.vstack([to_scipy(counts) for counts, _ in sample], format="csr")
        n_components = self.size.n_tokens * self.size.readout_dim
        linear = linear_model_of_blocks(cells, Blocks(self.denoiser.limit.sizes), n_components)
        for denoiser in self.denoisers:
            start_linearly(denoiser.network, linear)

    def linear_weights(self) -> Sequence[Tensor]:
        return [*linear_weights(self.denoiser.network).values()]

    def regularisation(self, n_cells: int) -> tuple[float, float]:
        prior_cells, many_genes = 5000, 750  # prior strength in cells, reduced below 750 genes
        free_cells = 10_000  # number of cells above which the linear model has the full learning rate
        decay = min(self.n_vars / many_genes, 1.0) * min(prior_cells / n_cells, 5.0)
        return decay, min(max(n_cells / free_cells, 0.1), 1.0)

    # Training.

    def loss(self, counts: Tensor, conditions: Given) -> LossOutput:
        """Compute the cross-entropy of missing molecules, in nats per molecule, plus penalties on the read-out."""
        predict = self.bound(self.denoiser, self.drop_conditions(conditions), conditions)
        thinned = self.corrupt(counts)
        cross_entropy = self.process.score(predict(thinned.state, thinned.library), thinned)
        return loss_output(cross_entropy, self.denoiser.network.readout.penalty())

    @torch.no_grad()
    def validation_loss(self, counts: Tensor, conditions: Given, generator: torch.Generator) -> LossOutput:
        thinned = self.process.corrupt(counts, generator)
        predict = self.bound(self.ema_denoiser, conditions, conditions)
        return loss_output(self.process.score(predict(thinned.state, thinned.library), thinned))

    def bound(self, denoiser: Denoiser, conditions: Given, cells: Given) -> MoleculePredictor:
        """Bind conditions, to predict the features that were measured under all conditions of the ``cells``."""
        return denoiser.bind(conditions)

    def corrupt(self, counts: Tensor) -> Thinned:
        return self.process.corrupt(counts)

    @torch.no_grad()
    def nll_bound(self, counts: Tensor, conditions: Given, generator: Rng = None) -> Tensor:
        """Draw an unbiased estimate ``(cells,)`` of the bound on ``-log p(cell | library, conditions)``, in nats."""
        thinned = self.process.keep_any_number(counts, generator)
        predict = self.bound(self.ema_denoiser, conditions, conditions)
        return self.process.bound(predict(thinned.state, thinned.library), thinned, counts)

    @torch.no_grad()
    def calibrate(
        self, cells: Iterable[tuple[Tensor, Given]], n_training: int, n_rounds: int = 2, n_drawn: int = 4_000
    ) -> None:
        """Shift gene biases until drawn cells match the mean log expression of the training cells.

        The number of sampling steps is large enough for converged means; four are too few (decision 34). Models of
        several modalities (no benchmark) or with a frozen reference are not calibrated.
        """
        bias = self.denoiser.network.readout.bias
        if not bias.requires_grad or self.denoiser.blocks is not None:
            return
        generator = torch.Generator(bias.device).manual_seed(0)
        for _ in range(n_rounds):
            real, drawn = (StandardScaler(with_mean=False) for _ in range(2))
            for counts, given in cells:
                real.partial_fit(self.log_expression(counts))
                for _ in range(min(max(n_drawn // n_training, 1), 8)):
                    predictor = self.predictor(given, len(counts))
                    new = self.draw(predictor, self.library(counts), n_steps=16, generator=generator)
                    drawn.partial_fit(self.log_expression(new.to_sparse_csr()))
            change = torch.from_numpy(mean_change(real, drawn, real.n_samples_seen_ / n_training))
            for denoiser in self.denoisers:
                denoiser.network.readout.bias.add_(change.to(denoiser.network.readout.bias))

    # Sampling.

    @torch.no_grad()
    def draw(
        self,
        predictor: MoleculePredictor,
        library: Tensor,
        *,
        start: Tensor | None = None,
        n_steps: int,
        generator: Rng = None,
    ) -> Tensor:
        """Add molecules to ``start`` (default: empty) up to ``library`` ``(cells,)``: dense ``(cells, genes)``."""
        if start is None:
            start = library.new_zeros(len(library), self.n_vars)
        return self.process.draw(predictor, start, library, n_steps=n_steps, generator=generator)

    @torch.no_grad()
    def counterfactual(
        self, cells: Tensor, source: Given, after: Predictor, *, keep: float | None, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Keep a share of the molecules and resample the rest by ``after``; without a share, use maximal coupling."""
        if keep is None:
            change = self._change(cells, self.predictor(source, len(cells)), after, generator)
            return self.process.couple(cells.to_dense(), self.expression(cells, source).log(), change, generator)
        kept = self.process.keep(cells, keep, generator)
        return self.draw(after, kept.library, start=kept.state.to_dense(), n_steps=n_steps, generator=generator)

    def _change(self, counts: Tensor, before: MoleculePredictor, after: MoleculePredictor, generator: Rng) -> Tensor:
        """Predict the change of log-probabilities ``(cells, genes)`` of the next molecule, given few molecules."""
        n_readings, n_read = 8, 4  # number of random subsets per cell, and mean number of molecules per subset
        library = self.library(counts)
        share = (n_read / row_sums(counts, counts.values())).clamp(max=1)
        change = torch.zeros(counts.shape, device=counts.device)
        for _ in range(n_readings):
            state = self.process.keep(counts, share, generator).state.to_dense()
            change += after(state, library).log_prob(state) - before(state, library).log_prob(state)
        return change / n_readings

    # Reading.

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute expected expression ``(cells, genes)`` of whole cells: the distribution of the next molecule."""
        predict = self.ema_denoiser.bind(conditions)
        return predict(counts, self.library(counts)).log_prob(counts.to_dense()).exp()

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Given) -> Tensor:
        library = self.library(counts)
        embedded = self.ema_denoiser.embed_conditions(conditions, len(library))
        return self.ema_denoiser.network.tokens(counts, library, library, *embedded)
