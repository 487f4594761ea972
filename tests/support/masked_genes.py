"""A process of another kind: whole genes are masked, and their molecules are drawn a few genes at a time.

It shares code, network, training and all public methods with the other processes; path and prediction are its own.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from scdiffgen.diffusion import Rng
from scdiffgen.module import Blueprint, CountCode, Denoiser, Given, Path, Predict, Process
from scdiffgen.nn import ScoreNetwork


class Masked(NamedTuple):
    """Cells of which some genes are hidden."""

    seen: Tensor  # (cells, genes): counts, 0 where hidden
    hidden: Tensor  # (cells, genes), bool


class MaskedTruth(NamedTuple):
    """Masked cells and the counts of the hidden genes."""

    state: Masked
    counts: Tensor  # (cells, genes), 0 where seen


class MaskedPrediction(NamedTuple):
    """Multinomial distribution of the missing molecules over the hidden genes."""

    logits: Tensor  # (cells, genes), very low where seen

    def loss(self, truth: MaskedTruth) -> Tensor:
        """Cross-entropy ``(cells,)`` of a molecule of a hidden gene."""
        log_prob = self.logits.log_softmax(1).masked_fill(~truth.state.hidden, 0.0)
        return -(truth.counts * log_prob).sum(1) / truth.counts.sum(1).clamp(min=1)

    def draw(self, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw counts ``(cells, genes)`` of ``n_molecules`` ``(cells,)``."""
        genes = torch.multinomial(self.logits.softmax(1), max(int(n_molecules.max()), 1), True, generator=generator)
        is_drawn = torch.arange(genes.shape[1], device=genes.device) < n_molecules[:, None]
        return torch.zeros_like(self.logits).scatter_add_(1, genes, is_drawn.float())

    def guided(self, conditional: list["MaskedPrediction"], scales: list[float]) -> "MaskedPrediction":
        """Extrapolate log-rates of hidden genes."""
        moves = [scale * (part.logits - self.logits) for part, scale in zip(conditional, scales, strict=True)]
        return MaskedPrediction(self.logits + sum(moves))


class Masking(Path):
    """A random share of the genes is hidden; generation reveals them in random order."""

    def corrupt(self, coded: Tensor, generator: Rng = None) -> MaskedTruth:
        share = torch.rand(len(coded), 1, generator=generator, device=coded.device)
        return self._hide(coded, share, generator)

    def _hide(self, coded: Tensor, share: Tensor | float, generator: Rng) -> MaskedTruth:
        counts = coded.to_dense()
        hidden = torch.rand(counts.shape, generator=generator, device=counts.device) < share
        return MaskedTruth(Masked(counts * ~hidden, hidden), counts * hidden)

    def start(self, library: Tensor, length: int, generator: Rng = None) -> Masked:
        nothing = library.new_zeros(len(library), length)
        return Masked(nothing, torch.ones_like(nothing, dtype=torch.bool))

    def keep(self, coded: Tensor, share: float, generator: Rng = None) -> Masked:
        return self._hide(coded, 1 - share, generator).state

    def reverse(self, predict: Predict, state: Masked, library: Tensor, n_steps: int, generator: Rng = None) -> Tensor:
        turns = torch.rand(state.seen.shape, generator=generator, device=library.device)  # when a gene is revealed
        for step in range(1, n_steps + 1):
            drawn = predict(state, library).draw(library - state.seen.sum(1), generator)
            hidden = state.hidden & (turns >= step / n_steps)
            state = Masked(state.seen + drawn * ~hidden, hidden)
        return state.seen


class MaskedDenoiser(Denoiser):
    """Scores of the hidden genes, from the molecules of the others."""

    network: ScoreNetwork

    def make_network(self, blueprint: Blueprint) -> ScoreNetwork:
        return ScoreNetwork(sum(blueprint.blocks.sizes), blueprint.size, "counts")

    def bind(self, conditions: Given, unmeasured: Tensor | None = None) -> Predict:
        embedded = self.embed_conditions(conditions)

        def predict(state: Masked, library: Tensor) -> MaskedPrediction:
            tokens, _ = self.network.tokens(state.seen.to_sparse_csr(), state.seen.sum(1), library, *embedded)
            return MaskedPrediction(self.network.readout(tokens).masked_fill(~state.hidden, -1e4))

        return predict

    def clean_level(self, library: Tensor) -> Tensor:
        return library


class MaskedCode(CountCode):
    """Counts, of which a half is kept under other conditions."""

    keep_fraction = 0.5

    def expression(self, denoiser: Any, counts: Tensor, conditions: Given) -> Tensor:
        seen = counts.to_dense()
        state = Masked(seen, torch.ones_like(seen, dtype=torch.bool))
        return denoiser.bind(conditions)(state, self.blocks.library(counts)).logits.softmax(1)


MASKING = Process(MaskedCode, Masking, MaskedDenoiser)
