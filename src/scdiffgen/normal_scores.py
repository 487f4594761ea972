"""Gaussian copula of counts: a mean and SD of normal scores per group and gene, and factors shared by all groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from scipy.sparse.linalg import svds

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

    def interval(self, counts: sparse.spmatrix, library: Floats) -> tuple[Floats, Floats]:
        """Compute lower and upper bounds of the scores of counts, dense ``(cells, genes)``; -inf below a count of 0."""
        theta, means = self.inverse_dispersions, library[:, None] * self.shares
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
        count = largest_counts(scores[cells, genes], means[cells, genes], self.inverse_dispersions[genes])
        return sparse.csr_matrix((count, (cells, genes)), shape=scores.shape, dtype=np.float32)

    def move(
        self, counts: sparse.csr_matrix, drawn: Frame, wanted: Frame, rng: np.random.Generator
    ) -> sparse.csr_matrix:
        """Move the scores of counts ``(cells, genes)`` from one frame to another; library sizes stay."""
        library, (*at, positive) = library_sizes(counts), sparse.find(counts.astype(np.float64))
        first, kept = self.first_ends(library), tuple(at)
        reach, below = ((first - frame.means) / frame.deviations for frame in (wanted, drawn))
        rises = rng.random(first.shape) * special.ndtr(below) > special.ndtr(reach)  # of zeros
        rises[kept] = False
        risen = np.nonzero(rises)
        cells, genes = both = tuple(np.concatenate(pair) for pair in zip(kept, risen, strict=True))
        means, theta = library[cells] * self.shares[genes], self.inverse_dispersions[genes]
        n_kept = len(positive)
        own = np.array([lower_end(count, means[:n_kept], theta[:n_kept]) for count in (positive, positive + 1)])
        ends = (own - drawn.means[kept]) / drawn.deviations[kept]
        lower, upper = np.concatenate([ends, [reach[risen], below[risen]]], axis=1)
        scores = wanted.means[both] + wanted.deviations[both] * draw_truncated(lower, upper, rng)
        leaves, count = np.ones(len(cells), dtype=bool), np.concatenate([positive, np.ones(len(risen[0]))])
        leaves[:n_kept] = (scores[:n_kept] < own[0]) | (own[1] <= scores[:n_kept])
        new = largest_counts(np.minimum(scores[leaves], 37.0), means[leaves], theta[leaves])
        count[leaves] = np.where(first[both][leaves] <= scores[leaves], new, 0.0)
        return with_library(sparse.csr_matrix((count, both), counts.shape), counts, rng)

    def first_ends(self, library: Floats) -> Floats:
        """Interpolate the lower bounds of the scores of a count of 1 ``(cells, genes)`` between 16 library sizes."""
        logs = np.log(np.maximum(library, 1.0))
        nodes = np.linspace(logs.min(), logs.max(), 16)
        ends = lower_end(1.0, np.exp(nodes)[:, None] * self.shares, self.inverse_dispersions)
        place = np.interp(logs, nodes, np.arange(16.0))
        below = np.minimum(place.astype(np.intp), 14)
        return ends[below] + (place - below)[:, None] * (ends[below + 1] - ends[below])

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


def largest_counts(scores: Floats, means: Floats, inverse_dispersions: Floats) -> Floats:
    """Find the largest counts >= 1 with lower bounds below ``scores``."""

    def reached(count: Floats, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        return lower_end(count, means[at], inverse_dispersions[at]) <= scores[at]

    count, at = np.ones(len(scores)), np.arange(len(scores))
    while len(at):  # double counts that are too low ...
        at = at[reached(2 * count[at], at)]
        count[at] *= 2
    beyond = 2 * count
    while len(at := np.flatnonzero(beyond - count > 1)):  # ... and bisect
        middle = (count[at] + beyond[at]) // 2
        up = reached(middle, at)
        count[at[up]], beyond[at[~up]] = middle[up], middle[~up]
    return count


def with_library(changed: sparse.csr_matrix, counts: sparse.csr_matrix, rng: np.random.Generator) -> sparse.csr_matrix:
    """Undo changes of random molecules until cells have as many molecules as in ``counts``."""
    change = (changed - counts).astype(np.int64)
    for cell, excess in enumerate(change.sum(axis=1).A1):
        of_cell = change.data[change.indptr[cell] : change.indptr[cell + 1]]
        sign = np.sign(excess)
        if excess:
            of_cell -= sign * rng.multivariate_hypergeometric(np.maximum(sign * of_cell, 0), sign * excess)
    return counts + change


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


Groups = NDArray[np.intp]


class Frame(NamedTuple):
    """Means and standard deviations that standardise the scores of cells or groups."""

    means: Floats  # (cells, genes)
    deviations: Floats  # (cells, genes)

    def take(self, rows: Groups | slice) -> Frame:
        """Select rows."""
        return Frame(self.means[rows], self.deviations[rows])


@dataclass(frozen=True)
class FactorModel:
    """Factor analysis of standardised scores: factors x loadings + noise, with total variance 1."""

    reference: ReferenceDistribution
    loadings: Floats  # (factors, genes)

    @property
    def noise(self) -> Floats:
        """Residual standard deviation of each gene ``(genes,)``."""
        return np.sqrt(1 - (self.loadings**2).sum(axis=0))

    def posterior(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute the posterior of the factors: weights ``(genes, factors)`` for the mean, and covariance."""
        weights = (self.loadings / self.noise**2).T
        covariance = np.linalg.inv(np.eye(len(self.loadings)) + self.loadings @ weights)
        return weights @ covariance, covariance

    def draw_factors(self, scores: NDArray[np.floating], rng: np.random.Generator) -> Floats:
        """Draw factors ``(cells, factors)`` from the posterior given standardised scores ``(cells, genes)``."""
        weights, covariance = self.posterior()
        around = rng.standard_normal((len(scores), len(covariance))) @ np.linalg.cholesky(covariance).T
        return scores @ weights + around

    def ends(self, counts: sparse.csr_matrix, frame: Frame) -> Floats:
        """Compute lower and upper bounds ``(2, cells, genes)`` of the standardised scores of counts."""
        return (np.array(self.reference.interval(counts, library_sizes(counts))) - frame.means) / frame.deviations

    def draw_scores(self, ends: NDArray[np.floating], factors: Floats, rng: np.random.Generator) -> Floats:
        """Draw standardised scores ``(cells, genes)`` within their bounds, given the factors ``(cells, factors)``."""
        shared, noise = factors @ self.loadings, self.noise
        lower, upper = (ends - shared) / noise
        return shared + noise * draw_truncated(lower, upper, rng)

    def draw_counts(self, frame: Frame, library: Floats, rng: np.random.Generator) -> sparse.csr_matrix:
        """Draw counts ``(cells, genes)`` of new cells in their frame, at library sizes ``(cells,)``."""
        shared = rng.standard_normal((len(library), len(self.loadings))) @ self.loadings
        scores = frame.means + frame.deviations * (shared + self.noise * rng.standard_normal(shared.shape))
        return self.reference.to_counts(scores, library)

    def expect_scores(self, ends: Floats, n_rounds: int = 8) -> Floats:
        """Estimate expected standardised scores ``(cells, genes)`` within their bounds by mean-field inference."""
        (weights, _), noise = self.posterior(), self.noise
        expected, _ = truncated_moments(*ends)
        for _ in range(n_rounds):
            shared = expected @ weights @ self.loadings
            expected = shared + noise * truncated_moments(*((ends - shared) / noise))[0]
        return expected


@dataclass(frozen=True)
class GaussianCopula(FactorModel):
    """Factor model of scores that are standardised by the mean and SD of the cell's group."""

    groups: Frame  # (groups, genes)

    @classmethod
    def fit(
        cls, counts: sparse.csr_matrix, groups: Groups, n_components: int = 50, *, n_rounds: int = 10, seed: int = 0
    ) -> GaussianCopula:
        """Fit counts ``(cells, genes)`` of groups ``(cells,)``, with at most ``n_components`` factors."""
        reference = ReferenceDistribution.fit(counts, groups)
        frame = fit_groups(reference, counts, groups)
        model, _ = fit_factors(reference, counts, frame.take(groups), n_components, n_rounds=n_rounds, seed=seed)
        return cls(reference, model.loadings, frame)

    def draw(self, groups: Groups, library: Floats, rng: np.random.Generator) -> sparse.csr_matrix:
        """Draw counts of cells with given groups ``(cells,)`` and library sizes ``(cells,)``."""
        parts = chunks(len(groups), len(self.noise))
        drawn = [self.draw_counts(self.groups.take(groups[cells]), library[cells], rng) for cells in parts]
        return sparse.vstack(drawn, format="csr")


def fit_groups(
    reference: ReferenceDistribution,
    counts: sparse.csr_matrix,
    groups: Groups,
    prior: Frame | None = None,
    *,
    n_rounds: int = 8,
) -> Frame:
    """Fit means and SDs of scores ``(groups, genes)`` as interval-censored normal variables, by accelerated EM.

    Means are shrunk by two pseudo-cells at the prior (0 by default), variances by five (1). Genes are processed in
    chunks to limit memory. EM alone would need hundreds of steps for sparse genes, of which a cell says little.
    """
    shape = groups.max() + 1, counts.shape[1]
    prior = Frame(np.zeros(shape), np.ones(shape)) if prior is None else prior
    fitted = Frame(*(part.copy() for part in prior))
    for group in np.unique(groups):
        cells = (counts if (own := groups == group).all() else counts[own]).tocsc()
        library = library_sizes(cells)
        for genes in chunks(counts.shape[1], len(library)):
            intervals = Intervals.tally(reference, cells[:, genes], library, genes)
            first, spread = (part[group, genes] for part in prior)
            step = partial(intervals.em_step, first=first, spread=spread)
            mean, log_deviation = accelerated(step, np.array([first, np.log(spread)]), n_rounds)
            fitted.means[group, genes], fitted.deviations[group, genes] = mean, np.exp(log_deviation)
    return fitted


@dataclass(frozen=True)
class Intervals:
    """Intervals of scores of a group, each with its gene and its number of cells."""

    lower: Floats  # (intervals,)
    upper: Floats  # (intervals,)
    gene: Groups  # (intervals,)
    n_cells: Groups  # (intervals,)

    @classmethod
    def tally(cls, reference: ReferenceDistribution, counts: sparse.csc_matrix, library: Floats, genes: slice) -> Self:
        """Count the cells with equal counts ``(cells, genes)`` of a gene and similar library sizes ``(cells,)``.

        At most 16 mean library sizes stand for those of all cells, each for an interval of logarithms of equal width.
        """
        size = np.log(np.maximum(library, 1.0))
        if len(size) > 16:
            size = np.ceil(16 * (size - size.min()) / max(np.ptp(size), 1e-9))
        size = np.unique(size, return_inverse=True)[1]
        cell, gene, count = sparse.find(counts)
        n_sizes, above = size.max() + 1, int(count.max(initial=0)) + 1
        place = gene * n_sizes + size[cell]  # a gene and a library size
        n_zeros = np.tile(np.bincount(size), counts.shape[1])
        n_zeros -= np.bincount(place, minlength=len(n_zeros))
        found, n_positive = np.unique(place * above + count.astype(np.intp), return_counts=True)
        place, count = np.divmod(np.concatenate([np.flatnonzero(n_zeros) * above, found]), above)
        gene, size_of = np.divmod(place, n_sizes)
        means = (np.bincount(size, library) / np.bincount(size))[size_of] * reference.shares[genes][gene]
        theta = reference.inverse_dispersions[genes][gene]
        lower = np.where(count > 0, lower_end(np.maximum(count, 1.0), means, theta), -np.inf)
        upper = lower_end(count + 1.0, means, theta)
        return cls(lower, upper, gene, np.concatenate([n_zeros[n_zeros > 0], n_positive]))

    def em_step(self, point: Floats, first: Floats, spread: Floats) -> Floats:
        """Update means and log SDs ``(2, genes)``, from a prior mean and SD."""
        total = partial(np.bincount, self.gene, minlength=len(first))
        mean, deviation = point[0][self.gene], np.exp(point[1])[self.gene]
        expected, variance = truncated_moments((self.lower - mean) / deviation, (self.upper - mean) / deviation)
        scores, n_cells = mean + deviation * expected, total(self.n_cells)
        new = (total(self.n_cells * scores) + 2 * first) / (n_cells + 2)
        squares = (scores - new[self.gene]) ** 2 + deviation**2 * variance
        variances = (total(self.n_cells * squares) + 5 * spread**2) / (n_cells + 5)
        return np.array([new, np.log(variances) / 2])


def accelerated(step: Callable[[Floats], Floats], start: Floats, n_rounds: int) -> Floats:
    """Find fixed points of ``step``, one for each column, by squared extrapolation.

    Varadhan and Roland 2008, Scandinavian Journal of Statistics, with their third length of a step, at most 16.
    """
    point = start
    for _ in range(n_rounds):
        first = step(point)
        change, bend = first - point, step(first) - 2 * first + point
        length = np.linalg.norm(change, axis=0) / np.maximum(np.linalg.norm(bend, axis=0), 1e-300)
        length = np.clip(length, 1.0, 16.0)  # 1: two plain steps
        point = step(point + 2 * length * change + length**2 * bend)
    return point


def fit_factors(
    reference: ReferenceDistribution,
    counts: sparse.csr_matrix,
    frame: Frame,
    n_components: int,
    *,
    n_rounds: int = 10,
    seed: int = 0,
) -> tuple[FactorModel, NDArray[np.float32]]:
    """Fit at most ``n_components`` factors by stochastic EM; also return the last draw of scores ``(cells, genes)``.

    Each round draws scores within their intervals given the group means and the factors of the cell (data augmentation,
    Albert and Chib 1993, Journal of the American Statistical Association), then fits factors to these scores. A single
    round is not enough: independently drawn scores of zeros hide most of the covariance between genes.
    """
    rng, scores = np.random.default_rng(seed), np.zeros(counts.shape, dtype=np.float32)
    model = FactorModel(reference, np.zeros((0, counts.shape[1])))
    places = [*chunks(*counts.shape)]
    all_ends = [model.ends(counts[cells], frame.take(cells)).astype(np.float32) for cells in places]
    for _ in range(n_rounds):
        for cells, ends in zip(places, all_ends, strict=True):
            scores[cells] = model.draw_scores(ends, model.draw_factors(scores[cells], rng), rng)
        model = FactorModel(reference, fit_loadings(scores, n_components))
        n_components = len(model.loadings)
    return model, scores


def fit_loadings(residuals: NDArray[np.floating], n_components: int) -> Floats:
    r"""Fit the principal components ``(factors, genes)`` of standardised scores ``(cells, genes)`` that exceed noise.

    Their variance :math:`\lambda` exceeds the edge :math:`(1 + \sqrt\gamma)^2` of pure noise (Marchenko and Pastur
    1967), with :math:`\gamma` genes per cell. The population variance :math:`\ell` solves :math:`\lambda = \ell +
    \gamma \ell / (\ell - 1)` (Baik and Silverstein 2006, Journal of Multivariate Analysis).
    """
    n_cells, n_genes = residuals.shape
    n_tried = min(n_components, n_cells - 1, n_genes - 1)
    if n_tried < 1:
        return np.zeros((0, n_genes))
    start = np.random.default_rng(0).standard_normal(min(n_cells, n_genes), dtype=np.float32)
    _, singular, axes = svds(residuals - residuals.mean(axis=0), n_tried, v0=start)
    ratio, variances = n_genes / n_cells, singular.astype(np.float64) ** 2 / n_cells
    beyond = variances > (1 + np.sqrt(ratio)) ** 2
    sums = variances[beyond] + 1 - ratio
    population = (sums + np.sqrt(sums**2 - 4 * variances[beyond])) / 2
    return bounded(axes[beyond] * np.sqrt(population - 1)[:, None])


def bounded(loadings: Floats) -> Floats:
    """Scale loadings down such that each gene has a noise variance of at least 0.05."""
    return loadings / np.sqrt(np.maximum((loadings**2).sum(axis=0) / 0.95, 1.0))


def truncated_moments(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Compute means and variances of standard normals truncated to intervals; stable in the far tails."""
    density = _normal_density(upper) / np.maximum(special.ndtr(upper), 1e-300)
    mean = np.minimum(-density, upper)  # of all that is below, as of most counts
    variance = 1 - upper * density - mean**2
    both = np.isfinite(lower)
    mean[both], variance[both] = _moments_between(lower[both], upper[both])
    return mean, np.clip(variance, 0.0, 1.0)


def _moments_between(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    sign = np.where(lower + upper > 0, -1.0, 1.0)  # flip to the lower tail, where probabilities are precise
    mass = np.maximum(sign * (special.ndtr(sign * upper) - special.ndtr(sign * lower)), 1e-300)
    above, below = (_normal_density(end) / mass for end in (lower, upper))
    mean = np.clip(above - below, lower, upper)
    return mean, 1 + lower * above - upper * below - mean**2


def _normal_density(x: Floats) -> Floats:
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def draw_truncated(lower: Floats, upper: Floats, rng: np.random.Generator) -> Floats:
    """Draw truncated standard normals by inversion in the lower tail, where probabilities are precise."""
    sign = np.where(lower + upper > 0, -1.0, 1.0)
    start, stop = special.ndtr(sign * lower), special.ndtr(sign * upper)
    drawn = sign * special.ndtri(np.maximum(start + rng.random(start.shape) * (stop - start), 1e-300))
    return np.clip(drawn, lower, np.nextafter(upper, -np.inf))
