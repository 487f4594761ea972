r"""Application of responses, changes of :math:`E \log(1 + 10^4 x / L)`, by binomial thinning and Poisson gains.

A *step* :math:`s` changes the share :math:`\pi` of a gene among all molecules: below 0 it is a relative loss,
:math:`\pi (1 + s)`, else a gain, :math:`\pi + s`. Expression curves of untreated cells map steps to log expression.
"""

import numpy as np
from scipy import sparse

from scdiffgen._log_normalise import TARGET_SUM, library_sizes

KEPT = np.array([0.0, 0.01, 0.025, 0.06, 0.13, 0.25, 0.45, 0.7])  # fractions of molecules kept
GAINED = np.geomspace(1e-6, 0.2, 16)  # shares added
STEPS = np.concatenate([KEPT - 1, [0.0], GAINED])
N_TERMS = 6  # number of terms of count distributions; the tail is evaluated at its mean
LARGEST_RATIO = 4.0  # maximum ratio of library sizes


def expression_curves(counts: sparse.csr_matrix) -> np.ndarray:
    r"""Compute mean log expression after each step, and its derivative by :math:`-\log L` ``(2, steps, genes)``."""
    cells = sparse.csr_matrix(counts, dtype=np.float64)
    library = np.maximum(library_sizes(cells), 1)
    row, scale = np.repeat(np.arange(len(library)), np.diff(cells.indptr)), TARGET_SUM / library

    def mean(values: np.ndarray) -> np.ndarray:
        return np.stack([np.bincount(cells.indices, row, cells.shape[1]) for row in values]) / len(library)

    values, value_scale = cells.data, scale[row]
    curves = [mean(_after_thinning(values, kept, value_scale)) for kept in KEPT]
    curves.append(mean(_log_and_slope(values, value_scale)))
    for gained in GAINED:
        zero = _after_gain(np.zeros_like(library), library * gained, scale)
        rest = _after_gain(values, library[row] * gained, value_scale) - zero[:, row]
        curves.append(zero.mean(1)[:, None] + mean(rest))
    return np.stack(curves, axis=1)


def shares_after(curves: np.ndarray, share: np.ndarray, change: np.ndarray, log_ratio: float) -> np.ndarray:
    """Find the shares ``(genes,)`` that change mean log expression by ``change``; they sum to the library ratio."""
    # Normalisation divides by the library size, so shares and ratio depend on each other. Bisection sets the log ratio
    # to the mean of the measured `log_ratio` and the log of the resulting sum of shares.
    if not change.any():
        return share
    untreated = curves[0, len(KEPT)]
    low, high = -np.log(LARGEST_RATIO), np.log(LARGEST_RATIO)
    while high - low > 1 / TARGET_SUM:
        ratio = (low + high) / 2
        after = shares_at(share, _invert(curves[0] - ratio * curves[1], untreated + change))
        low, high = (ratio, high) if np.log(after.sum()) > 2 * ratio - log_ratio else (low, ratio)
    return after


def depth_effect(curves: np.ndarray, log_ratio: float) -> np.ndarray:
    """Compute the change of mean log expression ``(genes,)`` by a change of library size alone (binomial thinning)."""
    log_kept = -min(abs(log_ratio), np.log(LARGEST_RATIO))
    thinned = _at_steps(curves[0] - log_kept * curves[1], np.full(curves.shape[2], np.expm1(log_kept)))
    return -np.sign(log_ratio) * (thinned - curves[0, len(KEPT)])


def mean_change(curves: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Compute the change of mean log expression ``(genes,)`` of untreated cells after a change of shares."""
    steps = np.where(after < before, after / np.maximum(before, np.finfo(float).tiny) - 1, after - before)
    curve = curves[0] - np.log(after.sum() / before.sum()) * curves[1]
    return _at_steps(curve, steps) - curves[0, len(KEPT)]


def _at_steps(curve: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Interpolate mean log expression ``(genes,)`` of curves ``(steps, genes)`` at one step per gene."""
    above = np.searchsorted(STEPS, steps).clip(1, len(STEPS) - 1)
    low, high = (np.take_along_axis(curve, at[None], axis=0)[0] for at in (above - 1, above))
    return low + ((steps - STEPS[above - 1]) / (STEPS[above] - STEPS[above - 1])).clip(0, 1) * (high - low)


def apply_response(
    counts: sparse.csr_matrix, before: np.ndarray, after: np.ndarray, rng: np.random.Generator, *, keep_library: bool
) -> sparse.csr_matrix:
    """Resample counts from shares ``before`` to ``after``; library sizes change unless ``keep_library``."""
    if keep_library:
        after = after * (before.sum() / after.sum(-1, keepdims=True))
    kept = np.divide(after, before, out=np.ones_like(after), where=before > 0).clip(max=1)
    gained = (after - before).clip(min=0)
    cells = sparse.csr_matrix(counts, dtype=np.int64, copy=True)
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
    """Compute shares after steps."""
    return np.where(steps < 0, share * (1 + steps), share + steps)


def _invert(curve: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Find the steps ``(genes,)`` at which curves ``(steps, genes)`` reach the wanted mean log expression."""
    rising = np.maximum.accumulate(curve, axis=0)
    above = (rising < wanted).sum(0).clip(1, len(STEPS) - 1)
    low, high = (np.take_along_axis(rising, at[None], axis=0)[0] for at in (above - 1, above))
    share = np.divide(wanted - low, high - low, out=np.zeros_like(wanted), where=high > low)
    return STEPS[above - 1] + share.clip(0, 1) * (STEPS[above] - STEPS[above - 1])


def _log_and_slope(counts: np.ndarray, scale: np.ndarray) -> np.ndarray:
    scaled = counts * scale
    return np.stack([np.log1p(scaled), scaled / (1 + scaled)])


def _after_thinning(counts: np.ndarray, kept: float, scale: np.ndarray) -> np.ndarray:
    """Compute expected log expression, and its derivative, of Binomial(counts, kept)."""
    growths = [(counts - k).clip(min=0) * kept / (1 - kept) for k in range(N_TERMS)]
    return _expected(0 * counts, (1 - kept) ** counts, growths, counts * kept, scale)


def _after_gain(counts: np.ndarray, gained: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Compute expected log expression, and its derivative, of counts + Poisson(gained)."""
    return _expected(counts, np.exp(-gained), [gained] * N_TERMS, gained, scale)


def _expected(
    base: np.ndarray, none: np.ndarray, growths: list[np.ndarray], mean: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Compute the expectation over base + k, with P(0) = ``none`` and P(k + 1) = P(k) growths[k] / (k + 1)."""
    probability, total, beyond, mean_beyond = none, 0.0, np.ones_like(mean), mean
    for k in range(N_TERMS):
        total = total + probability * _log_and_slope(base + k, scale)
        beyond, mean_beyond = beyond - probability, mean_beyond - k * probability
        probability = probability * growths[k] / (k + 1)
    tail = np.maximum(mean_beyond / np.maximum(beyond, np.finfo(np.float32).eps), N_TERMS)
    return total + np.maximum(beyond, 0) * _log_and_slope(base + tail, scale)
