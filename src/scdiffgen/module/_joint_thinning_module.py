"""Thinning of several modalities (RNA, protein tags, open chromatin) with one set of tokens."""

from collections.abc import Mapping
from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from scdiffgen._log_normalise import log_normalise
from scdiffgen.diffusion import Blocks, Thinned, to_scipy, with_values, without_blocks

from ._denoiser import Denoiser
from ._processes import Thinning
from ._thinning_module import ThinningModule


class JointThinningModule(ThinningModule):
    """Token diffusion on counts of several modalities; ``n_vars`` is by key of the counts in a minibatch."""

    def __init__(self, n_vars: Mapping[str, int], *others: Any) -> None:
        self.count_keys, self.blocks = tuple(n_vars), Blocks(tuple(n_vars.values()))
        super().__init__(sum(n_vars.values()), *others)

    def make_process(self) -> Thinning:
        return Thinning(self.blocks)

    def make_denoiser(self, features: Mapping[str, Tensor]) -> Denoiser:
        return Denoiser(self.blocks.sizes, self.specs, self.size, features)

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
