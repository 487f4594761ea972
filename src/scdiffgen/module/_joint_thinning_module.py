"""Cells with molecules of several modalities (RNA, protein tags, open chromatin): thinned and sampled together.

All modalities are read into one set of tokens; each has its own noise level, library size, weights in the read-out and
softmax. A modality that was not measured in a cell has the library size 0, as if it had no molecules to be found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from scdiffgen._log_normalise import log_normalise
from scdiffgen.conditions import ConditionSpec
from scdiffgen.diffusion import BlockPrediction, Blocks, Thinned, to_scipy, with_values, without_blocks
from scdiffgen.nn import GeneScores, NetworkSize, PriorLimit

from ._denoiser import Denoiser
from ._processes import BlockThinning
from ._thinning_module import ThinningModule


class JointDenoiser(Denoiser):
    """Predict the missing molecules of each modality."""

    def __init__(
        self, blocks: Blocks, specs: Sequence[ConditionSpec], size: NetworkSize, features: Mapping[str, Tensor]
    ) -> None:
        size = replace(size, n_levels=len(blocks.sizes))
        super().__init__(sum(blocks.sizes), specs, size, features)
        self.blocks = blocks
        self.limit = PriorLimit(blocks.sizes)

    def prediction(self, scores: GeneScores) -> BlockPrediction:
        shares = [logits.log_softmax(1) for logits in scores.logits.split(self.blocks.sizes, 1)]
        expected = zip(shares, scores.log_concentration.split(1, 1), strict=True)
        log_expected = torch.cat([share + total for share, total in expected], dim=1)
        log_rates, weights = self.limit(log_expected, scores.urn_weights)
        return BlockPrediction(log_rates, weights, self.limit.which, self.blocks)

    def library(self, counts: Tensor) -> Tensor:
        """Molecules ``(cells, modalities)`` of CSR counts."""
        return self.blocks.sums(counts, counts.values())


class JointThinningModule(ThinningModule):
    """Token diffusion on counts of several modalities; ``n_vars`` by the key of their counts in a minibatch."""

    starts_linearly = False  # one linear model of all modalities would be that of the deepest
    process: BlockThinning
    denoiser: JointDenoiser
    ema_denoiser: JointDenoiser

    def __init__(self, n_vars: Mapping[str, int], *others: Any) -> None:
        self.count_keys, self.blocks = tuple(n_vars), Blocks(tuple(n_vars.values()))
        super().__init__(sum(n_vars.values()), *others)

    def make_process(self) -> BlockThinning:
        return BlockThinning(self.blocks)

    def make_denoiser(self, features: Mapping[str, Tensor]) -> JointDenoiser:
        return JointDenoiser(self.blocks, self.specs, self.size, features)

    def corrupt(self, counts: Tensor) -> Thinned:
        """Corrupt training cells, after modality dropout: at the rate of condition dropout, each is as if missing."""
        dropped = without_blocks(self.library(counts), self.withhold_rate)
        return super().corrupt(self.without(counts, dropped))

    def is_deep(self, modality: int) -> bool:
        """Whether a modality has so many molecules a column that its priors are limited."""
        return self.denoiser.limit.which[modality]

    def without(self, counts: Tensor, modalities: Tensor) -> Tensor:
        """CSR counts of cells as if some ``modalities`` ``(cells, modalities)`` had not been measured."""
        there = ~modalities.flatten()[self.blocks.places(counts)]
        return with_values(counts, counts.values() * there)

    def log_expression(self, counts: Tensor) -> sparse.csr_matrix:
        ends, cells = np.cumsum(self.blocks.sizes), to_scipy(counts)
        parts = [cells[:, end - n : end] for n, end in zip(self.blocks.sizes, ends, strict=True)]
        return sparse.hstack([log_normalise(part) for part in parts], format="csr")

    def gene_weights(self) -> Tensor | None:
        """Weights of the genes, centred over those of each modality: a constant added to all changes nothing."""
        weights = super().gene_weights()
        if weights is None:
            return None
        return torch.cat([part - part.mean(2, keepdim=True) for part in weights.split(self.blocks.sizes, 2)], dim=2)
