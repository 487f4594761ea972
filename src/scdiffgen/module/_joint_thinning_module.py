"""Thinning of several modalities (RNA, protein tags, open chromatin) with one set of tokens."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from scdiffgen._log_normalise import log_normalise
from scdiffgen.diffusion import (
    LARGEST_LOG_RATE,
    Blocks,
    MoleculePrediction,
    MoleculePredictor,
    Thinned,
    to_scipy,
    with_values,
    without_blocks,
)

from ._denoiser import Denoiser
from ._diffusion_module import gene_frequencies
from ._panels import Panels
from ._processes import Given, Thinning
from ._thinning_module import DEEP, ThinningModule


class JointThinningModule(ThinningModule):
    """Token diffusion on counts of several modalities; ``n_vars`` is by key of the counts in a minibatch."""

    def __init__(self, n_vars: Mapping[str, int], *others: Any) -> None:
        self.count_keys, self.blocks = tuple(n_vars), Blocks(tuple(n_vars.values()))
        super().__init__(sum(n_vars.values()), *others)
        self.panels = Panels(self.specs, self.blocks)

    def make_process(self) -> Thinning:
        return Thinning(self.blocks)

    def make_denoiser(self, features: Mapping[str, Tensor]) -> Denoiser:
        return Denoiser(self.blocks.sizes, self.specs, self.size, features)

    @torch.no_grad()
    def initialise(self, batches: Iterable[tuple[Tensor, Given]]) -> None:
        """Initialise, and find features of high-count modalities that are missing from the panel of a batch."""
        sums = self.panels.sums()
        super().initialise(self.panels.counted(sums, batches))
        for place, part in sums.items():
            if not (missing := part.missing()).any():
                continue
            molecules, columns = part.full_panel(missing), self.blocks.slices[place]
            depth = molecules.sum() / part.n_cells.sum()
            if depth < DEEP * len(molecules):
                continue
            self.panels.set(place, missing)
            for denoiser, is_trained in zip(self.denoisers, (True, False), strict=True):
                limit, offsets, bias = denoiser.limit, denoiser.label_offsets, denoiser.network.readout.bias
                bias[columns] = gene_frequencies(molecules).log().to(bias)
                limit.depth[place], limit.limited[place] = depth, True
                limit.log_limits.requires_grad_(is_trained)
                limit.limit(limit.limited)
                if offsets is not None:  # sums of labels include zero counts of missing features
                    offsets.table[:, columns] = 0
                    offsets.set(offsets.table)

    def start_linearly(self, sample: Iterable[tuple[Tensor, Given]]) -> None:
        """Initialise by components, of cells with all features of a modality."""
        super().start_linearly((self._complete(counts, given), given) for counts, given in sample)

    def _complete(self, counts: Tensor, conditions: Given) -> Tensor:
        """Remove the counts of modalities with missing features."""
        incomplete = self.panels.incomplete(conditions)
        return counts if incomplete is None else self.without(counts, incomplete)

    def bound(self, denoiser: Denoiser, conditions: Given, cells: Given) -> MoleculePredictor:
        missing = self.panels.of_cells(cells)
        if missing is None:
            return super().bound(denoiser, conditions, cells)
        bound = denoiser.bind_scores(conditions)

        def predict(state: Tensor, library: Tensor) -> MoleculePrediction:
            scores = bound(state, library)
            return denoiser.prediction(scores._replace(logits=scores.logits.masked_fill(missing, -LARGEST_LOG_RATE)))

        return predict

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute expected expression; missing features are predicted from the other modalities and conditions."""
        expression, missing = super().expression(counts, conditions), self.panels.of_cells(conditions)
        if missing is None:
            return expression
        predicted = super().expression(self._complete(counts, conditions), conditions) * missing
        present = expression * ~missing
        scale = (1 - self.blocks.dense_sums(predicted)) / self.blocks.dense_sums(present)
        sizes = torch.tensor(self.blocks.sizes, device=scale.device)
        return predicted + present * scale.repeat_interleave(sizes, dim=1)

    def corrupt(self, counts: Tensor) -> Thinned:
        """Apply modality dropout, at the rate of condition dropout, then corrupt training cells."""
        dropped = without_blocks(self.library(counts), self.condition_dropout)
        return super().corrupt(self.without(counts, dropped))

    def regularisation(self, n_cells: int) -> tuple[float, float]:
        """Scale the number of cells by the depth of the shallowest modality, which over-fits first."""
        depth = float(self.denoiser.limit.depth.nan_to_num(torch.inf).min())
        whole = 300  # number of molecules of a modality above which a cell counts fully
        return super().regularisation(max(round(n_cells * min(depth / whole, 1)), 1))

    def without(self, counts: Tensor, modalities: Tensor) -> Tensor:
        """Remove the counts of some ``modalities`` ``(cells, modalities)`` from CSR counts."""
        return with_values(counts, counts.values() * ~modalities.flatten()[self.blocks.places(counts)])

    def log_expression(self, counts: Tensor) -> sparse.csr_matrix:
        return sparse.hstack(list(map(log_normalise, self.blocks.split(to_scipy(counts)))), format="csr")

    def gene_weights(self) -> Tensor:
        """Return gene weights centred within modalities, because a constant changes no prediction."""
        parts = super().gene_weights().split(self.blocks.sizes, 2)
        return torch.cat([part - part.mean(2, keepdim=True) for part in parts], dim=2)
