"""A Gaussian copula: normal scores have a mean and deviation for each group and gene, and factors that groups share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from scipy.sparse.linalg import svds

from ._reference import Array, ReferenceDistribution, chunks, library_sizes

Groups = NDArray[np.intp]


@dataclass(frozen=True)
class GaussianCopula:
    """Standardised scores, ``(scores - means) / deviations``, are factors x loadings + noise, of variance 1 in all."""

    reference: ReferenceDistribution
    means: Array  # (groups, genes)
    deviations: Array  # (groups, genes)
    loadings: Array  # (factors, genes)

    @classmethod
    def fit(
        cls, counts: sparse.csr_matrix, groups: Groups, n_components: int = 50, *, n_rounds: int = 10, seed: int = 0
    ) -> GaussianCopula:
        """Fit counts ``(cells, genes)`` of groups ``(cells,)``, with at most so many factors, by stochastic EM.

        Scores are drawn within their intervals around the mean of the group and the factors of the cell: data
        augmentation (Albert and Chib 1993, Journal of the American Statistical Association). Then factors are fitted to
        these scores. In a single round, the independently drawn scores of zeros hide most of what genes share.
        """
        reference, rng = ReferenceDistribution.fit(counts, groups), np.random.default_rng(seed)
        fitted = reference, *fit_groups(reference, counts, groups)
        copula, residuals = cls(*fitted, np.zeros((0, counts.shape[1]))), np.zeros(counts.shape, dtype=np.float32)
        for _ in range(n_rounds):
            for cells in chunks(*counts.shape):
                residuals[cells] = copula.augment(counts[cells], groups[cells], residuals[cells], rng)
            copula = cls(*fitted, fit_loadings(residuals, n_components))
            n_components = len(copula.loadings)
        return copula

    @property
    def noise(self) -> Array:
        """Standard deviation of each gene beside the factors ``(genes,)``."""
        return np.sqrt(1 - (self.loadings**2).sum(axis=0))

    def augment(
        self, counts: sparse.csr_matrix, groups: Groups, residuals: NDArray[np.float32], rng: np.random.Generator
    ) -> Array:
        """Draw factors given standardised scores ``(cells, genes)``, and the scores anew, given factors and counts."""
        weights = (self.loadings / self.noise**2).T
        covariance = np.linalg.inv(np.eye(len(self.loadings)) + self.loadings @ weights)
        around = rng.standard_normal((len(residuals), len(covariance))) @ np.linalg.cholesky(covariance).T
        shared = (residuals @ weights @ covariance + around) @ self.loadings
        mean = self.means[groups] + self.deviations[groups] * shared
        deviation = self.deviations[groups] * self.noise
        lower, upper = self.reference.interval(counts, library_sizes(counts))
        drawn = draw_truncated((lower - mean) / deviation, (upper - mean) / deviation, rng)
        return shared + self.noise * drawn

    def draw(self, groups: Groups, library: Array, rng: np.random.Generator) -> sparse.csr_matrix:
        """Draw counts of cells of groups and library sizes ``(cells,)``."""
        drawn = []
        for cells in chunks(len(groups), len(self.noise)):
            mean, deviation = self.means[groups[cells]], self.deviations[groups[cells]]
            shared = rng.standard_normal((len(mean), len(self.loadings))) @ self.loadings
            scores = mean + deviation * (shared + self.noise * rng.standard_normal(mean.shape))
            drawn.append(self.reference.to_counts(scores, library[cells]))
        return sparse.vstack(drawn, format="csr")


def fit_groups(
    reference: ReferenceDistribution, counts: sparse.csr_matrix, groups: Groups, *, n_rounds: int = 25
) -> tuple[Array, Array]:
    """Fit means and deviations of scores ``(groups, genes)`` as interval-censored normals, by EM.

    A mean is shrunk by two pseudo-cells at 0, a variance by five at 1. Genes are taken in turn, which keeps memory low.
    """
    means, deviations = np.zeros((2, groups.max() + 1, counts.shape[1]))
    for group in np.unique(groups):
        cells = counts[groups == group].tocsc()
        library, n_cells = library_sizes(cells), cells.shape[0]
        for genes in chunks(counts.shape[1], n_cells):
            lower, upper = reference.interval(cells[:, genes], library, genes)
            mean, deviation = np.zeros(lower.shape[1]), np.ones(lower.shape[1])
            for _ in range(n_rounds):
                expected, variance = truncated_moments((lower - mean) / deviation, (upper - mean) / deviation)
                scores = mean + deviation * expected
                mean = scores.sum(axis=0) / (n_cells + 2)
                squares = (scores - mean) ** 2 + deviation**2 * variance
                deviation = np.sqrt((squares.sum(axis=0) + 5) / (n_cells + 5))
            means[group, genes], deviations[group, genes] = mean, deviation
    return means, deviations


def fit_loadings(residuals: NDArray[np.floating], n_components: int) -> Array:
    r"""Principal components ``(factors, genes)`` of standardised scores ``(cells, genes)`` that exceed noise.

    Their variance :math:`\lambda` is beyond the edge :math:`(1 + \sqrt\gamma)^2` of noise alone (Marchenko and Pastur
    1967), :math:`\gamma` genes per cell. The variance :math:`\ell` of the population solves :math:`\lambda = \ell +
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
    loadings = axes[beyond] * np.sqrt(population - 1)[:, None]
    return loadings / np.sqrt(np.maximum((loadings**2).sum(axis=0) / 0.95, 1.0))  # noise of variance .05 at least


def truncated_moments(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Means and variances of a standard normal between two ends; far out, those of the nearer end."""
    sign = np.where(lower + upper > 0, -1.0, 1.0)  # of the tail in which probabilities are precise
    mass = np.maximum(sign * (special.ndtr(sign * upper) - special.ndtr(sign * lower)), 1e-300)
    density = [np.exp(-(end**2) / 2) / np.sqrt(2 * np.pi) / mass for end in (lower, upper)]
    mean = np.clip(density[0] - density[1], lower, upper)
    variance = 1 + np.where(np.isfinite(lower), lower, 0.0) * density[0] - upper * density[1] - mean**2
    return mean, np.clip(variance, 0.0, 1.0)


def draw_truncated(lower: Array, upper: Array, rng: np.random.Generator) -> Array:
    """Draw a standard normal between two ends, by inversion in the tail in which probabilities are precise."""
    sign = np.where(lower + upper > 0, -1.0, 1.0)
    start, stop = special.ndtr(sign * lower), special.ndtr(sign * upper)
    drawn = sign * special.ndtri(np.maximum(start + rng.random(start.shape) * (stop - start), 1e-300))
    return np.clip(drawn, lower, np.nextafter(upper, -np.inf))
