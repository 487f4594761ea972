"""Cells with molecules of several kinds (of RNA, protein tags, open chromatin): thinned and grown together.

All kinds are read into one set of tokens; each has its own noise level, library size, weights in the read-out and
softmax. A kind that was not measured in a cell has the library size 0, as if it had no molecules to be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from scvi.module.base import LossOutput
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import (
    BlockPrediction,
    Blocks,
    MoleculePredictor,
    Thinned,
    block_levels,
    block_likelihood_bound,
    block_loss,
    grow_blocks,
    split_thinned,
    thin_blocks,
    thin_to,
    with_values,
    without_blocks,
)
from scdiffgen.nn import GeneScores, NetworkSize, PriorLimit

from ._denoiser import Denoiser
from ._thinning import ThinningModule, loss_output

DEEP = 10
"""Molecules of a gene (or protein) and cell, on average over those of a kind, from which it is measured deeply."""


class JointDenoiser(Denoiser):
    """Predict the missing molecules of each kind; parameters as in the base class, and the columns of the kinds."""

    def __init__(
        self,
        blocks: Blocks,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
    ) -> None:
        size = replace(size, n_levels=len(blocks.sizes))
        super().__init__(sum(blocks.sizes), specs, size, features)
        self.blocks = blocks
        self.limit = PriorLimit(blocks.sizes)

    def prediction(self, scores: GeneScores) -> BlockPrediction:  # type: ignore[override]
        """Rates of the next molecule of each kind."""
        shares = [logits.log_softmax(1) for logits in scores.logits.split(self.blocks.sizes, 1)]
        expected = zip(shares, scores.log_concentration.split(1, 1), strict=True)
        rates = self.limit(torch.cat([share + total for share, total in expected], dim=1), scores.urn_weights)
        return BlockPrediction(rates.log_rates, rates.weights, self.limit.limited, self.blocks)

    def library(self, counts: Tensor) -> Tensor:
        """Library sizes ``(cells, kinds)`` of CSR counts."""
        return self.blocks.sums(counts, counts.values())


class JointThinningModule(ThinningModule):
    """Token diffusion on counts of several kinds.

    Parameters
    ----------
    n_vars
        Number of genes (or proteins, peaks) of each kind, by the key under which its counts come in a minibatch.
    *others
        As in the base class. At the rate ``withhold_rate``, each kind is taken for not measured while training.
    """

    denoiser: JointDenoiser
    ema_denoiser: JointDenoiser

    def __init__(self, n_vars: Mapping[str, int], *others: Any) -> None:
        self.count_keys, self.blocks = tuple(n_vars), Blocks(tuple(n_vars.values()))
        super().__init__(sum(n_vars.values()), *others)

    def make_denoiser(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
    ) -> JointDenoiser:
        """Predict the missing molecules of each kind."""
        return JointDenoiser(self.blocks, specs, size, features)

    def initialise(self, batches: Iterable[tuple[Tensor, Conditions[Tensor]]]) -> None:
        """As in the base class; and limit what the tokens' opinion counts for in kinds that are measured deeply."""
        n_molecules = n_cells = torch.zeros(len(self.blocks.sizes))

        def counted() -> Iterator[tuple[Tensor, Conditions[Tensor]]]:
            nonlocal n_molecules, n_cells
            for counts, told in batches:
                library = self.library(counts).cpu()
                n_molecules, n_cells = n_molecules + library.sum(0), n_cells + (library > 0).sum(0)
                yield counts, told

        super().initialise(counted())
        deep = (n_molecules >= DEEP * n_cells * torch.tensor(self.blocks.sizes)) & (n_cells > 0)
        for denoiser in (self.denoiser, self.ema_denoiser):
            denoiser.limit.limited.copy_(deep)

    def loss(self, counts: Tensor, conditions: Conditions[Tensor]) -> LossOutput:
        """Training loss of CSR counts: cross-entropy of the missing molecules of each kind, mean over the kinds.

        Nats per molecule; kinds of which a cell misses none do not count in its mean. Penalties on the read-out, if
        there are any, are added.
        """
        conditions, teaching = self.withheld(conditions)
        counts = self.without(counts, without_blocks(self.library(counts), self.withhold_rate))
        thinned = thin_blocks(counts, block_levels(self.library(counts)), self.blocks)
        prediction = self.denoiser(thinned, conditions, teaching)
        return loss_output(_mean_of_kinds(prediction, thinned), penalty=self.denoiser.network.readout.penalty())

    @torch.no_grad()
    def validation_loss(self, counts: Tensor, conditions: Conditions[Tensor], generator: torch.Generator) -> LossOutput:
        """The same of the averaged network, nothing withheld, at the given randomness."""
        thinned = thin_blocks(counts, block_levels(self.library(counts), generator), self.blocks, generator)
        return loss_output(_mean_of_kinds(self.ema_denoiser(thinned, conditions), thinned))

    @torch.no_grad()
    def nll_bound(
        self, counts: Tensor, conditions: Conditions[Tensor], generator: torch.Generator | None = None
    ) -> Tensor:
        """One unbiased draw ``(cells,)`` of the bound on ``-log p(cell | library sizes, conditions)``, in nats."""
        library = self.library(counts).sum(1)
        uniform = torch.rand(library.shape, generator=generator, device=library.device)
        thinned = split_thinned(thin_to(counts, (uniform * library).long(), generator), self.blocks)
        return block_likelihood_bound(self.ema_denoiser(thinned, conditions), thinned, counts)

    def draw(
        self,
        predictor: MoleculePredictor,
        library: Tensor,
        *,
        start: Tensor | None = None,
        n_steps: int,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Grow cells from ``start`` (nothing) to ``library`` ``(cells, kinds)`` molecules: dense ``(cells, genes)``."""
        if start is None:
            start = library.new_zeros(len(library), self.n_vars)
        return grow_blocks(predictor, library, start, self.blocks, n_steps=n_steps, generator=generator)

    def couple(
        self, counts: Tensor, log_prob: Tensor, change: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Move dense cells from given log-probabilities ``(cells, genes)`` to changed ones, each kind by itself."""
        kinds = zip(*(array.split(self.blocks.sizes, 1) for array in (counts, log_prob, change)), strict=True)
        couple = super().couple
        return torch.cat([couple(there, own, changed, generator) for there, own, changed in kinds], dim=1)

    def keep(self, counts: Tensor, share: float | Tensor, generator: torch.Generator | None = None) -> Thinned:
        """Thin cells to a share of their molecules, of every kind."""
        return split_thinned(super().keep(counts, share, generator), self.blocks)

    def without(self, counts: Tensor, kinds: Tensor) -> Tensor:
        """CSR counts of cells as if some kinds ``(cells, kinds)`` had not been measured."""
        there = ~kinds.flatten()[self.blocks.places(counts)]
        return with_values(counts, counts.values() * there)

    def library(self, counts: Tensor) -> Tensor:
        """Library sizes ``(cells, kinds)`` of CSR counts."""
        return self.blocks.sums(counts, counts.values())

    def n_molecules(self, state: Tensor) -> Tensor:
        """Molecules there ``(cells, kinds)`` in dense cells."""
        return self.blocks.dense_sums(state)

    def gene_weights(self) -> Tensor | None:
        """Weights of the genes on :meth:`hidden` ``(tokens, readout_dim, genes)``, of log-rates; or nothing.

        They are centred over the genes of each kind: a constant added to the log-rates of a kind changes nothing.
        """
        weights = super().gene_weights()
        if weights is None:
            return None
        return torch.cat([part - part.mean(2, keepdim=True) for part in weights.split(self.blocks.sizes, 2)], dim=2)


def _mean_of_kinds(prediction: BlockPrediction, thinned: Thinned) -> Tensor:
    """Mean cross-entropy ``(cells,)`` over the kinds of which molecules are missing."""
    missing = (thinned.library > thinned.n_molecules).float()
    return (block_loss(prediction, thinned) * missing).sum(1) / missing.sum(1).clamp(min=1)
