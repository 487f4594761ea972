r"""Response curves: mean log expression of untreated cells after a change of fourth roots of shares.

A *step* of at least 0 is a difference of fourth roots, one below 0 a ratio less 1. Down-regulation keeps
:math:`\mathrm{Binomial}(x, r)` of :math:`x` molecules, up-regulation adds :math:`\mathrm{Poisson}(L (\pi' - \pi))`,
with library size :math:`L` and expected shares :math:`\pi, \pi'`, as in maximal coupling.
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
N_TERMS = 6  # of the distributions of counts; what is beyond stands at its mean


def response_curves(
    module: ThinningModule,
    batches: Iterable[tuple[Tensor, Conditions[Tensor]]],
    group_of: np.ndarray,  # -1 for no group
    log_correction: np.ndarray,  # (groups, genes), added to the expected log expression
) -> np.ndarray:
    """Compute curves and derivatives with log(1 / L) ``(groups, steps, genes)`` of the first untreated cells."""
    n_groups, n_genes = log_correction.shape
    curves = torch.zeros(2, n_groups, len(STEPS), n_genes, device=module.device, dtype=torch.float64)
    corrections, n_seen = torch.from_numpy(log_correction).float().to(module.device), np.zeros(n_groups)
    for groups, counts, given in first_cells(batches, group_of, n_groups):
        which = torch.from_numpy(groups).to(module.device)
        n_seen += np.bincount(groups, minlength=n_groups)
        log_prob = module.expression(counts.to_sparse_csr(), given).log() + corrections[which]
        for step, expected in enumerate(_expected_at_steps(counts, log_prob.softmax(1))):
            curves[:, :, step].index_add_(1, which, expected.double())
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
    """Invert curves ``(steps, genes)``: steps ``(genes,)`` at which mean log expression changes by ``change``."""
    rising = np.maximum.accumulate(curve.astype(np.float64), axis=0)
    wanted = rising[len(RATIOS)] + change
    above = np.clip((rising < wanted).sum(0), 1, len(STEPS) - 1)
    low, high = (np.take_along_axis(rising, at[None], axis=0)[0] for at in (above - 1, above))
    share = np.divide(wanted - low, high - low, out=np.zeros_like(wanted), where=high > low)
    steps = STEPS[above - 1] + share.clip(0, 1) * (STEPS[above] - STEPS[above - 1])
    return np.where(change == 0, 0.0, steps)


def at_steps(curve: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Mean log expression ``(genes,)`` at a step of each gene."""
    above = np.searchsorted(STEPS, steps).clip(1, len(STEPS) - 1)
    low, high = (np.take_along_axis(curve, at[None], axis=0)[0] for at in (above - 1, above))
    share = (steps - STEPS[above - 1]) / (STEPS[above] - STEPS[above - 1])
    return low + share.clip(0, 1) * (high - low)


def moved(root: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Fourth roots of shares after steps."""
    return np.where(steps < 0, root * (1 + steps), root + steps)


def _expected_at_steps(counts: Tensor, share: Tensor) -> Iterator[Tensor]:
    """Expected log expression of each cell, and its derivative, dense ``(2, cells, genes)``, step after step."""
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
    """Expected log(1 + scale (base + k)) and its derivative; P(0) = ``none``, P(k + 1) = P(k) growths[k] / (k + 1)."""
    probability, total = none, base.new_zeros(2, *base.shape)
    beyond, mean_beyond = torch.ones_like(base), mean

    def of(numbers: Tensor) -> Tensor:
        scaled = scale * numbers
        return torch.stack([scaled.log1p(), scaled / (1 + scaled)])

    for k in range(N_TERMS):
        total = total + probability * of(base + k)
        beyond, mean_beyond = beyond - probability, mean_beyond - k * probability
        probability = probability * growths[k] / (k + 1)
    beyond = beyond.clamp(min=0)
    at = (mean_beyond / beyond.clamp(min=1e-6)).clamp(min=N_TERMS)
    return total + beyond * of(base + at)
