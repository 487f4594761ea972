r"""How far the molecules of cells must be moved for their mean log expression to change by so much.

A gene that rises does so by the same difference of fourth roots of its share in all cells, one that falls in the same
ratio: a *step* of at least 0 is such a difference, one below 0 the ratio of fourth roots less 1. Of a molecule count
:math:`x` falls leave :math:`\mathrm{Binomial}(x, r)`, and rises add :math:`\mathrm{Poisson}(L (\pi' - \pi))`,
:math:`L` the molecules of the cell and :math:`\pi, \pi'` the shares that are expected of it, as in maximal coupling.
The curve of a gene is the mean of :math:`\log(1 + 10^4 x' / L)` over untreated training cells at each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from scdiffgen._log_normalise import TARGET_SUM
from scdiffgen.conditions import Conditions

if TYPE_CHECKING:
    from scdiffgen.module import ThinningModule

POWER = 0.25
LEAST_RATIO = 0.1  # of the fourth root of a share to what it was before
RATIOS = (LEAST_RATIO, 0.4, 0.6, 0.75, 0.85, 0.93)
RISES = (0.0, 0.01, 0.02, 0.04, 0.06, 0.09, 0.13, 0.18, 0.25, 0.35, 0.5)
STEPS = np.array([*(ratio - 1 for ratio in RATIOS), *RISES])
N_CELLS = 300  # of a group, of which curves are computed
LARGEST_EXCESS, N_HALVINGS = 1e3, 40  # of the search for steps that keep the number of molecules
N_TERMS = 6  # of the distributions of counts; what is beyond stands at its mean


def response_curves(
    module: ThinningModule,
    batches: Iterable[tuple[Tensor, Conditions[Tensor]]],
    group_of: np.ndarray,
    log_correction: np.ndarray,
) -> np.ndarray:
    """Mean log expression ``(groups, steps, genes)``, of the first cells of each group of untreated ones.

    ``group_of`` is -1 for cells in none of them ``(cells,)``; of what the network expects of a group, its log-ratio
    to what there is ``log_correction`` ``(groups, genes)`` is added.
    """
    n_groups, n_genes = log_correction.shape
    curves = torch.zeros(n_groups, len(STEPS), n_genes, device=module.device, dtype=torch.float64)
    corrections, n_seen = torch.from_numpy(log_correction).float().to(module.device), np.zeros(n_groups)
    for groups, counts, given in first_cells(batches, group_of, n_groups):
        which = torch.from_numpy(groups).to(module.device)
        n_seen += np.bincount(groups, minlength=n_groups)
        log_prob = module.expression(counts.to_sparse_csr(), given).log() + corrections[which]
        for step, expected in enumerate(_expected_at_steps(counts, log_prob.softmax(1))):
            curves[:, step].index_add_(0, which, expected.double())
    return (curves / torch.from_numpy(n_seen).to(curves).clamp(min=1)[:, None, None]).float().cpu().numpy()


def first_cells(
    batches: Iterable[tuple[Tensor, Conditions[Tensor]]], group_of: np.ndarray, n_groups: int
) -> Iterator[tuple[np.ndarray, Tensor, Conditions[Tensor]]]:
    """The first cells of each group in minibatches: their groups, dense counts and conditions; -1 is no group."""
    n_seen, first = np.zeros(n_groups, dtype=int), 0
    for there, given in batches:
        groups = group_of[first : first + len(there)]
        first += len(there)
        chosen = np.zeros(len(there), dtype=bool)
        for group in np.unique(groups[groups >= 0]):
            rows = np.flatnonzero(groups == group)[: N_CELLS - n_seen[group]]
            chosen[rows], n_seen[group] = True, n_seen[group] + len(rows)
        if chosen.any():
            taken = torch.from_numpy(np.flatnonzero(chosen)).to(there.device)
            yield groups[chosen], there.to_dense()[taken], given.take(taken)


def solved(curve: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Steps ``(genes,)`` at which the mean log expression has changed by so much; curves are ``(steps, genes)``."""
    rising = np.maximum.accumulate(curve.astype(np.float64), axis=0)
    wanted = rising[len(RATIOS)] + change
    above = np.clip((rising < wanted).sum(0), 1, len(STEPS) - 1)
    low, high = (np.take_along_axis(rising, at[None], axis=0)[0] for at in (above - 1, above))
    share = np.divide(wanted - low, high - low, out=np.zeros_like(wanted), where=high > low)
    steps = STEPS[above - 1] + share.clip(0, 1) * (STEPS[above] - STEPS[above - 1])
    return np.where(change == 0, 0.0, steps)


def balanced(curve: np.ndarray, root: np.ndarray, change: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    """Steps ``(genes,)`` at which shares, whose fourth roots were ``root``, still sum to 1.

    Cells are moved by the steps times one of their ``strengths`` each, and means are over these.

    Where the changes ask for more molecules than a cell has, or for fewer, each is missed in proportion to the fourth
    root of the share, so that large genes, which make up for many, change by more than small ones.
    """

    def at(excess: float) -> tuple[np.ndarray, float]:
        steps = solved(curve, change - excess * root)
        each = np.maximum(strengths[:, None] * steps, STEPS[0])
        return steps, (moved(root, each) ** (1 / POWER)).mean(0).sum()

    if not change.any():
        return np.zeros_like(change)
    at_steps = [np.interp(np.outer(strengths, STEPS), STEPS, one).mean(0) for one in np.eye(len(STEPS))]
    curve = np.stack(at_steps, 1) @ curve
    low, high = -LARGEST_EXCESS, LARGEST_EXCESS
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle)[1] > 1 else (low, middle)
    return at((low + high) / 2)[0]


def moved(root: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Fourth roots of shares after steps."""
    return np.where(steps < 0, root * (1 + steps), root + steps)


def _expected_at_steps(counts: Tensor, share: Tensor) -> Iterator[Tensor]:
    """Expected log expression of each cell, dense ``(cells, genes)``, step after step."""
    library = counts.sum(1, keepdim=True)
    scale, root = TARGET_SUM / library.clamp(min=1), share**POWER
    for ratio in RATIOS:
        kept, odds = ratio ** (1 / POWER), 1 / (ratio ** (-1 / POWER) - 1)
        growths = [(counts - k).clamp(min=0) * odds for k in range(N_TERMS)]
        yield _expected_log(torch.zeros_like(counts), (1 - kept) ** counts, growths, counts * kept, scale)
    for rise in RISES:
        added = library * ((root + rise) ** (1 / POWER) - share)
        yield _expected_log(counts, (-added).exp(), [added] * N_TERMS, added, scale)


def _expected_log(base: Tensor, none: Tensor, growths: Sequence[Tensor], mean: Tensor, scale: Tensor) -> Tensor:
    """Expected log(1 + scale (base + k)), where P(k = 0) is ``none`` and P(k + 1) = P(k) growths[k] / (k + 1)."""
    probability, total = none, torch.zeros_like(base)
    beyond, mean_beyond = torch.ones_like(base), mean
    for k in range(N_TERMS):
        total = total + probability * torch.log1p(scale * (base + k))
        beyond, mean_beyond = beyond - probability, mean_beyond - k * probability
        probability = probability * growths[k] / (k + 1)
    beyond = beyond.clamp(min=0)
    at = (mean_beyond / beyond.clamp(min=1e-6)).clamp(min=N_TERMS)
    return total + beyond * torch.log1p(scale * (base + at))
