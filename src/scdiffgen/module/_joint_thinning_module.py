"""Cells with molecules of several modalities (RNA, protein tags, open chromatin): thinned and sampled together.

All modalities are read into one set of tokens; each has its own noise level, library size, weights in the read-out and
softmax. A modality that was not measured in a cell has the library size 0, as if it had no molecules to be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from scdiffgen._log_normalise import log_normalise
from scdiffgen.diffusion import Blocks, Thinned, to_scipy, with_values, without_blocks

from ._denoiser import Denoiser
from ._processes import BlockThinning
from ._thinning_module import ThinningModule


class JointThinningModule(ThinningModule):
    """Token diffusion on counts of several modalities; ``n_vars`` by the key of their counts in a minibatch."""

    starts_linearly = False  # one linear model of all modalities would be that of the deepest
    process: BlockThinning

    def __init__(self, n_vars: Mapping[str, int], *others: Any) -> None:
        self.count_keys, self.blocks = tuple(n_vars), Blocks(tuple(n_vars.values()))
        super().__init__(sum(n_vars.values()), *others)

    def make_process(self) -> BlockThinning:
        return BlockThinning(self.blocks)

    def make_denoiser(self, features: Mapping[str, Tensor]) -> Denoiser:
        return Denoiser(self.blocks.sizes, self.specs, self.size, features)

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
