r"""Application of responses, changes of :math:`E \log(1 + 10^4 x / L)`, by binomial thinning and Poisson gains.

A *step* :math:`s` changes the share :math:`\pi` of a gene among all molecules: below 0 it is a relative loss,
:math:`\pi (1 + s)`, else a gain, :math:`\pi + s`. Expression curves of untreated cells map steps to log expression.
"""

from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from scdiffgen._log_normalise import TARGET_SUM, library_sizes, log_normalise

from ._predictors import Prediction

KEPT = np.array([0.0, 0.01, 0.025, 0.06, 0.13, 0.25, 0.45, 0.7])  # fractions of molecules kept
GAINED = np.geomspace(1e-6, 0.2, 16)  # shares added
STEPS = np.concatenate([KEPT - 1, [0.0], GAINED])
UNEQUAL_DEPTH = 1.3  # ratio of library sizes beyond which depths differ
N_TERMS = 6  # number of terms of count distributions; the tail is evaluated at its mean


def expression_curves(counts: sparse.csr_matrix) -> np.ndarray:
    """Compute mean log expression after each step ``(steps, genes)``, at the library sizes before it."""
    cells, row, library = _with_libraries(counts)
    value_scale = TARGET_SUM / library[row]
    curves = [_mean(cells, _after_thinning(cells.data, kept, value_scale)) for kept in KEPT]
    curves.append(_mean(cells, np.log1p(cells.data * value_scale)))
    for gained in GAINED:
        zero = _after_gain(np.zeros_like(library), library * gained, TARGET_SUM / library)
        rest = _after_gain(cells.data, library[row] * gained, value_scale) - zero[row]
        curves.append(zero.mean() + _mean(cells, rest))
    return np.stack(curves)


def depth_effect(counts: sparse.csr_matrix, log_kept: float) -> np.ndarray:
    """Compute the change of mean log expression ``(genes,)`` by binomial thinning to a share of the molecules."""
    if log_kept >= 0:
        return np.zeros(counts.shape[1])
    cells, row, library = _with_libraries(counts)
    scale, kept = TARGET_SUM / library[row], np.exp(log_kept)
    return _mean(cells, _after_thinning(cells.data, kept, scale / kept) - np.log1p(cells.data * scale))


def shares_after(curves: np.ndarray, share: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Find the shares ``(genes,)`` after a change of mean log expression at equal sequencing depth."""
    if not change.any():
        return share
    wanted, rising = curves[len(KEPT)] + change, np.maximum.accumulate(curves, axis=0)
    above = (rising < wanted).sum(0).clip(1, len(STEPS) - 1)
    low, high = (np.take_along_axis(rising, at[None], axis=0)[0] for at in (above - 1, above))
    reached = np.divide(wanted - low, high - low, out=np.zeros_like(wanted), where=high > low).clip(0, 1)
    return shares_at(share, STEPS[above - 1] + reached * (STEPS[above] - STEPS[above - 1]))


def depth_factor(log_ratio: float) -> float:
    # Adding or removing molecules of all genes blurs cells more than it corrects small differences.
    return float(np.exp(log_ratio)) if abs(log_ratio) > np.log(UNEQUAL_DEPTH) else 1.0


def mean_change(curves: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Compute the change of mean log expression ``(genes,)`` by a change of shares at equal library sizes."""
    return _at_steps(curves, _steps(before, after)) - curves[len(KEPT)]


def _steps(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return np.where(after < before, after / np.maximum(before, np.finfo(float).tiny) - 1, after - before)


def responding_share(curves: np.ndarray, before: np.ndarray, after: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Find the share of cells ``(genes,)`` in which ``ratio`` times the changes give the same mean log expression."""
    steps = _steps(before, after)
    wanted, changes = _at_steps(curves, steps), ratio * steps
    low = np.where(steps < 0, -changes, changes / GAINED[-1]).clip(np.finfo(np.float32).eps, 1)
    high = np.ones_like(low)
    for _ in range(20):  # bisection, as mean log expression increases with the share
        middle = (low + high) / 2
        reached = middle * _at_steps(curves, changes / middle) + (1 - middle) * curves[len(KEPT)]
        low, high = np.where(reached < wanted, middle, low), np.where(reached < wanted, high, middle)
    return np.where(ratio == 1, 1.0, high)


def apply_response(
    counts: sparse.csr_matrix,
    before: np.ndarray,
    after: np.ndarray,
    rng: np.random.Generator,
    factor: float = 1.0,
    *,
    keep_library: bool,
) -> sparse.csr_matrix:
    """Resample counts from shares ``before`` to ``after``, and change the depth by a factor unless ``keep_library``."""
    cells = sparse.csr_matrix(counts, dtype=np.int64, copy=True)
    if keep_library:
        after = after * (before.sum() / after.sum(-1, keepdims=True))
    elif factor > 1:  # molecules are added in proportion to the counts of each cell
        cells.data += rng.poisson((factor - 1) * cells.data)
    else:
        after = after * factor
    kept = np.divide(after, before, out=np.ones_like(after), where=before > 0).clip(max=1)
    gained = (after - before).clip(min=0)
    library = np.asarray(cells.sum(1)).ravel()
    rows = np.repeat(np.arange(len(library)), np.diff(cells.indptr))
    cells.data = rng.binomial(cells.data, np.broadcast_to(kept, cells.shape)[rows, cells.indices])
    added = rng.poisson(library * gained.sum(-1) / before.sum())
    if keep_library:
        missing = library - np.asarray(cells.sum(1)).ravel()
        for row in np.flatnonzero(missing < 0):
            values = cells.data[cells.indptr[row] : cells.indptr[row + 1]]
            values[:] = rng.multivariate_hypergeometric(values, library[row])
        added = missing.clip(min=0)
    if added.any():
        chances = np.where(gained.any(-1, keepdims=True), gained, after)
        cells = cells + sparse.csr_matrix(rng.multinomial(added, chances / chances.sum(-1, keepdims=True)))
    cells.eliminate_zeros()
    return cells


def shares_at(share: np.ndarray, steps: np.ndarray) -> np.ndarray:
    return np.where(steps < 0, share * (1 + steps), share + steps)


def _at_steps(curves: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Interpolate mean log expression ``(genes,)`` of curves ``(steps, genes)`` at one step per gene."""
    above = np.searchsorted(STEPS, steps).clip(1, len(STEPS) - 1)
    low, high = (np.take_along_axis(curves, at[None], axis=0)[0] for at in (above - 1, above))
    return low + ((steps - STEPS[above - 1]) / (STEPS[above] - STEPS[above - 1])).clip(0, 1) * (high - low)


def _with_libraries(counts: sparse.csr_matrix) -> tuple[sparse.csr_matrix, np.ndarray, np.ndarray]:
    """Return counts in double precision, the row of each nonzero count, and library sizes ``(cells,)``."""
    cells = sparse.csr_matrix(counts, dtype=np.float64)
    rows = np.repeat(np.arange(cells.shape[0]), np.diff(cells.indptr))
    return cells, rows, np.maximum(library_sizes(cells), 1)


def _mean(cells: sparse.csr_matrix, values: np.ndarray) -> np.ndarray:
    """Average values of nonzero counts over cells, by gene ``(genes,)``."""
    return np.bincount(cells.indices, values, cells.shape[1]) / max(cells.shape[0], 1)


def _after_thinning(counts: np.ndarray, kept: float, scale: np.ndarray) -> np.ndarray:
    """Compute expected log expression of Binomial(counts, kept)."""
    growths = [(counts - k).clip(min=0) * kept / (1 - kept) for k in range(N_TERMS)]
    return _expected(0 * counts, (1 - kept) ** counts, growths, counts * kept, scale)


def _after_gain(counts: np.ndarray, gained: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Compute expected log expression of counts + Poisson(gained)."""
    return _expected(counts, np.exp(-gained), [gained] * N_TERMS, gained, scale)


def _expected(
    base: np.ndarray, none: np.ndarray, growths: list[np.ndarray], mean: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Compute the expectation over base + k, with P(0) = ``none`` and P(k + 1) = P(k) growths[k] / (k + 1)."""
    probability, total, beyond, mean_beyond = none, 0.0, np.ones_like(mean), mean
    for k in range(N_TERMS):
        total = total + probability * np.log1p((base + k) * scale)
        beyond, mean_beyond = beyond - probability, mean_beyond - k * probability
        probability = probability * growths[k] / (k + 1)
    tail = np.maximum(mean_beyond / np.maximum(beyond, np.finfo(np.float32).eps), N_TERMS)
    return total + np.maximum(beyond, 0) * np.log1p((base + tail) * scale)


class CellStates(NamedTuple):
    """Regression of log expression after a response on the cell state before it."""

    loadings: np.ndarray  # (genes, states)
    mean: np.ndarray  # (states,): mean state
    expression: np.ndarray  # (genes,): log expression after the response, at the mean state
    slopes: np.ndarray  # (states, genes)
    curves: np.ndarray  # (steps, genes): mean log expression after each step


class Responders(NamedTuple):
    """Cells that respond in each gene, where equal changes of all cells would give another sum of counts."""

    share: np.ndarray  # (genes,): share of the cells; a cell that responds in a gene does so in all with a larger share
    factor: np.ndarray  # (genes,): of their changes

    @classmethod
    def find(cls, curves: np.ndarray, before: np.ndarray, after: np.ndarray, ratio: np.ndarray) -> Self | None:
        """Find the cells in which ``ratio`` times the change leaves the mean log expression as it is; None for all."""
        # Only concentration is possible: it increases the sums of rising genes and those of falling ones.
        ratio = np.where(after > before, ratio.clip(min=1), ratio.clip(max=1))
        if (ratio == 1).all():
            return None
        share = responding_share(curves, before, after, ratio)
        return cls(share, ratio / share)


class Response(NamedTuple):
    """Response of the cells of a context."""

    before: np.ndarray  # (genes,): shares of genes among the molecules before the response
    after: np.ndarray  # (genes,): shares after the response, at equal sequencing depth
    mean_change: np.ndarray  # (genes,): change of mean log expression at equal sequencing depth
    prediction: Prediction
    factor: float = 1.0  # of the sequencing depth
    responders: Responders | None = None  # None if all cells respond
    states: CellStates | None = None  # None if the response does not depend on the cell state

    def apply(self, counts: sparse.csr_matrix, rng: np.random.Generator, *, keep_library: bool) -> sparse.csr_matrix:
        """Predict counts ``(cells, genes)`` after the response, in chunks, because shares of cells are dense."""
        chunks = (counts[first : first + 1_000] for first in range(0, max(counts.shape[0], 1), 1_000))
        predicted = []
        for cells in chunks:
            after = self.shares(cells)
            if self.responders is not None:  # the changes of all cells are concentrated in those that respond
                responds = rng.random((cells.shape[0], 1)) < self.responders.share
                after = (self.before + responds * self.responders.factor * (after - self.before)).clip(min=0)
            predicted.append(apply_response(cells, self.before, after, rng, self.factor, keep_library=keep_library))
        return sparse.vstack(predicted, format="csr")

    def shares(self, counts: sparse.csr_matrix) -> np.ndarray:
        """Compute shares after the response, by cell ``(cells, genes)`` or for all cells ``(genes,)``."""
        if self.states is None:
            return self.after
        loadings, mean, expression, slopes, curves = self.states
        wanted = (expression + (log_normalise(counts) @ loadings - mean) @ slopes).clip(min=0)
        steps = [np.interp(gene, curve, STEPS) for gene, curve in zip(wanted.T, curves.T, strict=True)]
        return shares_at(self.before, np.column_stack(steps))
