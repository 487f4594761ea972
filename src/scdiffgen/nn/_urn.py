"""The urn: molecules that are there attract more of their genes."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GeneScores(NamedTuple):
    """Scores of the genes: rates are ``A * softmax(logits) + urn_weights * molecules there``, A the concentration."""

    logits: Tensor  # (cells, genes)
    log_concentration: Tensor  # (cells, 1), log A; or (cells, kinds), one for each kind of molecules
    urn_weights: Tensor  # (genes,)

    def log_rates(self) -> Tensor:
        """Log of the first term of the rates ``(cells, genes)``."""
        return self.logits.log_softmax(1) + self.log_concentration


class Urn(nn.Module):
    r"""Weigh what the tokens say against the molecules that are there.

    The rate of a gene is :math:`A \, \text{softmax}(\text{logits})_g + w_g x_g`. :math:`A > 0` is a concentration a
    cell, in units of molecules: how much the tokens' opinion weighs against the molecules that are already there, each
    of which weighs :math:`w_g \ge 0`.

    Parameters
    ----------
    n_genes
        Number of genes.
    conditioning_dim
        Length of the conditioning vector, which sets the concentration.
    n_kinds
        Kinds of molecules, each with a concentration of its own.
    """

    def __init__(self, n_genes: int, conditioning_dim: int, n_kinds: int = 1) -> None:
        super().__init__()
        self.weight_logits = nn.Parameter(torch.full((n_genes,), -3.0))
        self.concentration = nn.Linear(conditioning_dim, n_kinds)
        nn.init.zeros_(self.concentration.weight)
        nn.init.zeros_(self.concentration.bias)

    def forward(self, logits: Tensor, conditioning: Tensor, n_molecules: Tensor) -> GeneScores:
        """Scores from logits ``(cells, genes)``; ``n_molecules`` ``(cells,)``, or ``(cells, kinds)``, are there."""
        concentration = self.concentration(conditioning)
        log_concentration = concentration + torch.log1p(n_molecules).reshape(concentration.shape)
        return GeneScores(logits, log_concentration, F.softplus(self.weight_logits))
