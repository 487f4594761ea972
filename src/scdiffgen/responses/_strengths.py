"""Responsiveness: the gamma-distributed factor, of mean 1, by which the response of a cell is multiplied.

Log expression of responding genes is projected on their change. The covariance between different genes is the variance
of this score without sampling noise; its excess over untreated cells with equal responses, over the squared slope of
the score, estimates the variance, which is pooled over contexts (DerSimonian & Laird 1986) and shrunk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy.special import gammaincinv
from torch import Tensor

from scdiffgen._log_normalise import log_normalise
from scdiffgen.conditions import Conditions, have_exactly

from ._response_curves import POWER, STEPS, first_cells, moved, solved

if TYPE_CHECKING:
    from scdiffgen.module import ThinningModule

    from ._pseudobulks import Pseudobulks

LEAST_Z = 4.5  # of genes that respond
FEWEST, FEWEST_GENES = 40, 4  # cells of a group in which strengths are measured, and genes that respond, if alike
MOST_GENES = 100  # that respond most, of which scores are made
LEAST_SLOPE, LARGEST = 0.5, 1.0  # of scores on strengths; variance of strengths
N_NODES = 15  # strengths over which means are taken


class Pair(NamedTuple):
    """Treated cells of a context, and untreated ones of the same."""

    untreated: int  # group
    genes: np.ndarray  # positions of those that respond (responding,)
    direction: np.ndarray  # scores are products of log expression with it (responding,)
    steps: np.ndarray  # (responding,), as of response_curves
    slope: float  # of the score on the strength
    alone: float  # share of squared scores that is of single genes


def strength_variances(
    module: ThinningModule,
    batches: Iterable[tuple[Tensor, Conditions[Tensor]]],
    bulks: Pseudobulks,
    group_of: np.ndarray,
    treatment_of: np.ndarray,
) -> np.ndarray:
    """Variance of responsiveness by the treatment of each group ``(groups,)``; 0 where unknown."""
    pairs, rng = _pairs(bulks), np.random.default_rng(0)
    scores: dict[tuple[int, bool], list[np.ndarray]] = {(row, real): [] for row in pairs for real in (True, False)}
    wanted = {row: pair.untreated for row, pair in pairs.items()}
    kept = np.isin(group_of, [*wanted, *wanted.values()])
    for groups, counts, given in first_cells(batches, np.where(kept, group_of, -1), len(bulks.n_cells)):
        whole = counts.cpu().numpy()
        for row in np.unique(groups).tolist():
            cells = np.flatnonzero(groups == row)
            if row in pairs:
                here = pairs[row]
                there = whole[np.ix_(cells, here.genes)]
                scores[row, True].append(_expression(there, whole[cells].sum(1)))
                continue
            taken = torch.from_numpy(cells).to(counts.device)
            expected = module.expression(counts[taken].to_sparse_csr(), given.take(taken)).cpu().numpy()
            share = expected * (bulks.counts[row] + 0.5) / (bulks.expected[row] + 0.5)
            share /= share.sum(1, keepdims=True)
            for treated in (each for each, untreated in wanted.items() if untreated == row):
                here, library = pairs[treated], whole[cells].sum(1)
                there = _moved(whole[np.ix_(cells, here.genes)], share[:, here.genes], library, here.steps, rng)
                scores[treated, False].append(_expression(there, library))
    values, errors = np.zeros((2, len(bulks.n_cells)))
    for row, pair in pairs.items():
        (real, error), (alike, other) = (
            _shared_variance(np.concatenate(scores[row, each]), pair.direction) for each in (True, False)
        )
        scale = pair.slope**2 * (1 - pair.alone)
        values[row], errors[row] = (real - alike) / scale, (error + other) / scale**2
    return _by_treatment(values, errors, np.array([*pairs], dtype=int), treatment_of)


def nodes(variance: float) -> np.ndarray:
    """Strengths that stand for their distribution."""
    if variance <= 0:
        return np.ones(1)
    found = gammaincinv(1 / variance, (np.arange(N_NODES) + 0.5) / N_NODES)
    return found / found.mean()


def drawn_strengths(variance: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A strength of each cell ``(cells,)``; nothing is drawn if all are 1."""
    if not (variance > 0).any():
        return torch.ones_like(variance)
    uniform = torch.rand(len(variance), generator=generator, device=variance.device, dtype=torch.float64).cpu().numpy()
    shape = 1 / np.maximum(variance.cpu().numpy().astype(float), 1e-6)
    drawn = np.where(shape < 1e6, gammaincinv(shape, uniform) / shape, 1.0)
    return torch.from_numpy(drawn).to(variance)


def _pairs(bulks: Pseudobulks) -> dict[int, Pair]:
    """Treated groups with enough cells and a response, and untreated ones of the same identity."""
    untreated = np.flatnonzero(have_exactly(bulks.interventions, []))
    pairs = {}
    for row in np.setdiff1d(np.flatnonzero(bulks.n_cells >= FEWEST), untreated):
        same = np.flatnonzero((bulks.identity[untreated] == bulks.identity[row]).all(1))
        if not len(same) or bulks.n_cells[untreated[same[0]]] < FEWEST:
            continue
        rows = [row, untreated[same[0]]]
        change = bulks.log_mean[rows[0]].astype(float) - bulks.log_mean[rows[1]]
        chance = (bulks.log_variance[rows] / bulks.n_cells[rows, None]).sum(0)
        genes = np.flatnonzero(np.abs(change) > LEAST_Z * np.sqrt(chance + np.finfo(float).tiny))
        genes = genes[np.argsort(-np.abs(change[genes]), kind="stable")[:MOST_GENES]]
        change = change[genes]
        alone = (change**4).sum() / max((change**2).sum() ** 2, np.finfo(float).tiny)
        if len(genes) and alone < 1 / FEWEST_GENES:
            curve = bulks.curves[same[0]][:, genes]
            direction, steps = change / (change @ change), solved(curve, change)
            weak, strong = (
                direction @ [np.interp(strength * step, STEPS, one) for step, one in zip(steps, curve.T, strict=True)]
                for strength in (0.7, 1.3)
            )
            slope = max((strong - weak) / 0.6, LEAST_SLOPE)
            pairs[int(row)] = Pair(int(rows[1]), genes, direction, steps, slope, alone)
    return pairs


def _moved(
    counts: np.ndarray, share: np.ndarray, library: np.ndarray, steps: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Counts ``(cells, responding)`` after steps, the expected shares before being ``share``."""
    kept = rng.binomial(counts.astype(int), np.minimum(1 + steps, 1) ** (1 / POWER))
    risen = moved(share**POWER, np.maximum(steps, 0)) ** (1 / POWER)
    return kept + rng.poisson(library[:, None] * np.maximum(risen - share, 0))


def _expression(counts: np.ndarray, library: np.ndarray) -> np.ndarray:
    """Log expression, and behind it the logarithm of the library size ``(cells, responding + 1)``."""
    expression = log_normalise(counts, library=library, dtype=np.float32)
    return np.column_stack([expression, np.log(np.maximum(library, 1), dtype=np.float32)])


def _shared_variance(cells: np.ndarray, direction: np.ndarray) -> tuple[float, float]:
    """Variance of scores that genes share, at a given library size, and its squared standard error."""
    size = np.vander(cells[:, -1] - cells[:, -1].mean(), 3)
    parts = (cells[:, :-1] - size @ np.linalg.lstsq(size, cells[:, :-1], rcond=None)[0]) * direction
    products = parts.sum(1) ** 2 - (parts**2).sum(1)
    return products.sum() / (len(size) - 3), products.var() / (len(size) - 3)


def _by_treatment(values: np.ndarray, errors: np.ndarray, rows: np.ndarray, treatment_of: np.ndarray) -> np.ndarray:
    """Variances of all groups, pooled over those of a treatment and shrunk, from those that were measured."""
    treatments, which = np.unique(treatment_of[rows], return_inverse=True)
    variances = np.zeros(len(treatment_of))
    if len(rows):
        groups = [rows[which == each] for each in range(len(treatments))]
        own, error = np.array([_pooled(values[group], errors[group])[:2] for group in groups]).T
        mean, _, between = _pooled(own, error)
        drawn = (between * own + error * mean) / (between + error)
        certain = np.where(own > 0, np.maximum(1 - error / np.maximum(own, 1e-12) ** 2, 0), 0)
        for treatment, variance in zip(treatments, np.clip(certain * drawn, 0, LARGEST), strict=True):
            variances[treatment_of == treatment] = variance
    return variances


def _pooled(values: np.ndarray, errors: np.ndarray) -> tuple[float, float, float]:
    """Mean, its squared error, and the variance between values with squared errors (random effects)."""
    weights = 1 / np.maximum(errors, 1e-12)
    apart = weights @ (values - np.average(values, weights=weights)) ** 2 - (len(values) - 1)
    scale = weights.sum() - (weights**2).sum() / weights.sum()
    between = max(apart / scale, 0.0) if len(values) > 1 else 0.0
    weights = 1 / (1 / weights + between)
    return float(np.average(values, weights=weights)), float(1 / weights.sum()), between
