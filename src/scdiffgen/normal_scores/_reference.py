"""Reference distribution, which maps counts to intervals of a standard normal variable and back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ReferenceDistribution:
    r"""Negative binomial distribution of each gene with mean library size x share.

    A count x is the interval :math:`[\Phi^{-1}F(x-1), \Phi^{-1}F(x))` of a latent standard normal variable, where F is
    the distribution function at the library size of the cell. Scores are capped at 37.
    """

    shares: Floats  # (genes,): fraction of all molecules
    inverse_dispersions: Floats  # (genes,): theta, with variance mean + mean^2 / theta

    @classmethod
    def fit(cls, counts: sparse.csr_matrix, groups: NDArray[np.intp]) -> Self:
        """Estimate shares from all cells, and dispersions by moments within groups ``(cells,)``.

        Counts are winsorised at eight standard deviations (for theta = 1) above the mean of their group.
        """
        library = library_sizes(counts)
        one_hot = sparse.csr_matrix((np.ones(len(groups)), (groups, np.arange(len(groups)))))
        total = np.asarray(counts.sum(axis=0, dtype=np.float64)).ravel()
        shares = (total + 0.5) / (total.sum() + 0.5 * len(total))
        of_group = ((one_hot @ counts).toarray() + 0.5 * shares) / ((one_hot @ library) + 0.5)[:, None]
        squares, excess = np.zeros((2, len(total)))
        for cells in chunks(*counts.shape):
            means = library[cells, None] * of_group[groups[cells]]
            highest = np.maximum(np.ceil(means + 8 * np.sqrt(means + means**2)), 3)
            squares += (means**2).sum(axis=0)
            excess += ((np.minimum(counts[cells].toarray(), highest) - means) ** 2 - means).sum(axis=0)
        return cls(shares, np.clip(squares / np.maximum(excess, 1e-12), 0.3, 1e4))

    def interval(self, counts: sparse.spmatrix, library: Floats, genes: slice = slice(None)) -> tuple[Floats, Floats]:
        """Compute lower and upper bounds of the scores of counts, dense ``(cells, genes)``; -inf below a count of 0."""
        theta, means = self.inverse_dispersions[genes], library[:, None] * self.shares[genes]
        lower, upper = np.full(means.shape, -np.inf), lower_end(1.0, means, theta)
        *at, positive = sparse.find(counts.astype(np.float64))
        lower[tuple(at)], upper[tuple(at)] = (
            lower_end(k, means[tuple(at)], theta[at[1]]) for k in (positive, positive + 1)
        )
        return lower, upper

    def to_counts(self, scores: Floats, library: Floats) -> sparse.csr_matrix:
        """Convert scores ``(cells, genes)`` to counts at library sizes ``(cells,)``."""
        scores = np.minimum(scores, 37.0)
        means = library[:, None] * self.shares
        cells, genes = np.nonzero(lower_end(1.0, means, self.inverse_dispersions) <= scores)
        wanted, of_gene = scores[cells, genes], (means[cells, genes], self.inverse_dispersions[genes])

        def reached(count: Floats, at: NDArray[np.intp]) -> NDArray[np.bool_]:
            return lower_end(count, *(values[at] for values in of_gene)) <= wanted[at]

        count, at = np.ones(len(cells)), np.arange(len(cells))
        while len(at):  # double counts that are too low ...
            at = at[reached(2 * count[at], at)]
            count[at] *= 2
        beyond = 2 * count
        while len(at := np.flatnonzero(beyond - count > 1)):  # ... and bisect
            middle = (count[at] + beyond[at]) // 2
            up = reached(middle, at)
            count[at[up]], beyond[at[~up]] = middle[up], middle[~up]
        return sparse.csr_matrix((count, (cells, genes)), shape=scores.shape, dtype=np.float32)

    def expected_counts(self, means: Floats, deviations: Floats, library: Floats) -> Floats:
        """Compute expected counts ``(cells, genes)`` at library sizes ``(cells,)`` from means and SDs of scores.

        The expectation is the sum of P(count >= k) over k = 1, 2, ...; above 30, in steps of a tenth of the count.
        """
        expected, of_cells = np.zeros(means.shape), library[:, None] * self.shares
        at, count = np.nonzero(np.ones(means.shape, dtype=bool)), 1.0
        while len(at[0]):
            step = max(1.0, np.floor(count / 10) if count > 30 else 1.0)
            ends = lower_end(count + (step - 1) / 2, of_cells[at], self.inverse_dispersions[at[1]])
            more = special.ndtr((means[at] - ends) / deviations[at])
            expected[at] += step * more
            at, count = tuple(index[more > 1e-4] for index in at), count + step
        return expected


def lower_end(counts: Floats | float, means: Floats, inverse_dispersions: Floats) -> Floats:
    """Compute the lower bounds of the scores of ``counts`` >= 1, precise beyond 8 by use of the smaller tail."""
    log_zero = -inverse_dispersions * np.log1p(means / inverse_dispersions)
    at_least, less = -np.expm1(log_zero), np.exp(log_zero)
    if np.any(counts > 1):
        above = np.broadcast_to(counts, means.shape) > 1
        total = means + inverse_dispersions
        special.betainc(counts, inverse_dispersions, means / total, out=at_least, where=above)
        low = above & (at_least > 0.5)
        special.betainc(inverse_dispersions, counts, inverse_dispersions / total, out=less, where=low)
    sign = np.where(at_least > 0.5, 1.0, -1.0)
    return sign * special.ndtri(np.maximum(np.where(sign > 0, less, at_least), 1e-300))


def library_sizes(counts: sparse.csr_matrix) -> Floats:
    """Count the molecules of each cell ``(cells,)``."""
    return np.asarray(counts.sum(axis=1, dtype=np.float64)).ravel()


def chunks(length: int, width: int) -> Iterator[slice]:
    """Split rows into slices of at most a million elements of a dense array with ``width`` columns."""
    step = max(1, 1_000_000 // max(width, 1))
    return (slice(start, start + step) for start in range(0, length, step))
