r"""Regressions of one modality on others: high counts, library sizes, and calibration of shares.

High counts of a few columns, such as protein tags, have a Nystroem kernel ridge regression. With inputs :math:`x` of a
cell (log-normalised expression, log depth and tokens) and counts :math:`y`,
:math:`\mathbb E \log (1 + y) = b + \sum_l w_l \exp(-\lVert u - u_l \rVert^2)`, :math:`u = (V^\top x, \; B^\top x)`,
with singular vectors :math:`V` of the inputs, their ridge regression :math:`B^\top x` and landmark cells :math:`u_l`.
Hyperparameters are cross-validated. Draws add residuals of similar left-out cells (Schenker & Taylor 1996).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from scipy import sparse
from scipy.special import log_softmax, softmax

from scdiffgen._log_normalise import TARGET_SUM, log_normalise

if TYPE_CHECKING:
    from sklearn.model_selection import KFold

N_COMPONENTS = 200  # singular vectors of the linear regression
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0)
N_LANDMARKS, N_FOLDS = 500, 5
PENALTIES, KERNEL_PENALTIES = np.logspace(-2, 5, 15), np.logspace(-4, 2, 13)
EPSILON = 1e-6  # lower bound of standard deviations and variances
SIZE_PENALTIES = np.logspace(-2, 5, 8)
PRIOR = 10.0  # prior information of a slope of 1, added to that of left-out cells


class CountRegression(NamedTuple):
    """Kernel ridge regression of ``log1p`` counts, with its residuals in left-out training cells."""

    projection: np.ndarray  # (inputs, features)
    offset: np.ndarray  # (features,)
    landmarks: np.ndarray  # (landmarks, features)
    weights: np.ndarray  # (landmarks, columns)
    intercept: np.ndarray  # (columns,)
    predicted: np.ndarray  # (left-out cells, columns)
    residuals: np.ndarray  # (left-out cells, columns)

    @classmethod
    def fit(cls, inputs: sparse.csr_matrix, n_tokens: int, counts: np.ndarray) -> CountRegression:
        """Fit counts ``(cells, columns)`` on inputs ``(cells, inputs)``; the last ``n_tokens`` inputs are tokens."""
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import Ridge, RidgeCV
        from sklearn.model_selection import KFold, cross_val_predict
        from sklearn.pipeline import make_pipeline

        values, folds = np.log1p(counts), KFold(N_FOLDS, shuffle=True, random_state=0)
        spread = np.maximum(values.std(0), EPSILON)
        features, projection, offset = _kernel_features(inputs, n_tokens, values / spread, folds)
        fits = []
        for gamma in BANDWIDTHS:
            basis = Nystroem(gamma=gamma, n_components=min(N_LANDMARKS, len(values)), random_state=0)
            fits.append(make_pipeline(basis, RidgeCV(KERNEL_PENALTIES)).fit(features, values / spread))
        basis, ridge = max(fits, key=lambda fit: fit[-1].best_score_)
        best = make_pipeline(basis, Ridge(ridge.alpha_)).fit(features, values)
        width, weights = np.sqrt(basis.gamma), basis.normalization_.T @ best[-1].coef_.reshape(len(spread), -1).T
        kernel = projection * width, offset * width, basis.components_ * width, weights, best[-1].intercept_
        best.set_params(nystroem__n_components=min(N_LANDMARKS, len(values) // N_FOLDS * (N_FOLDS - 1)))
        predicted = cross_val_predict(best, features, values, cv=folds).reshape(values.shape).clip(0)
        return cls(*(np.asarray(part, dtype=np.float32) for part in (*kernel, predicted, values - predicted)))

    def log_mean(self, inputs: sparse.csr_matrix) -> np.ndarray:
        """Predict the expected ``log1p`` counts ``(cells, columns)``, at least 0."""
        from sklearn.metrics.pairwise import rbf_kernel

        features = inputs @ self.projection + self.offset
        return np.maximum(rbf_kernel(features, self.landmarks, gamma=1) @ self.weights + self.intercept, 0)

    def draw(self, log_mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw integer counts ``(cells, columns)`` around expected ``log1p`` counts, by local residuals."""
        from sklearn.neighbors import NearestNeighbors

        spread, n_near = np.maximum(self.predicted.std(0), EPSILON), min(100, len(self.predicted))
        near = NearestNeighbors(n_neighbors=n_near).fit(self.predicted / spread)
        rows = near.kneighbors(log_mean / spread, return_distance=False)
        chosen = rows[np.arange(len(rows)), rng.integers(rows.shape[1], size=len(rows))]
        return np.expm1(np.maximum(log_mean + self.residuals[chosen], 0)).round()


def regression_inputs(counts: Sequence[sparse.csr_matrix], tokens: np.ndarray) -> sparse.csr_matrix:
    """Join log-normalised counts and log depths of modalities with tokens ``(cells, features)``."""
    totals = [np.maximum(np.asarray(block.sum(1), dtype=np.float64), 1) for block in counts]
    depths = sparse.csr_matrix(np.log(np.hstack(totals) / TARGET_SUM))
    return sparse.hstack([*map(log_normalise, counts), depths, sparse.csr_matrix(tokens)], format="csr")


def _kernel_features(
    inputs: sparse.csr_matrix, n_tokens: int, values: np.ndarray, folds: KFold
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute scaled SVD scores and ridge predictions ``(cells, features)``, with their projection and offset."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import cross_val_predict
    from sklearn.preprocessing import StandardScaler

    variance = StandardScaler(with_mean=False).fit(inputs).var_
    is_token = np.arange(inputs.shape[1]) >= inputs.shape[1] - n_tokens
    ratio = variance[~is_token].sum() / max(variance[is_token].sum(), EPSILON)
    # tokens count less than expression, because those of training cells overfit the target a little
    scale, n_first = np.where(is_token, 0.3 * np.sqrt(ratio), 1.0), 20  # the kernel has the first singular vectors
    svd = TruncatedSVD(min(N_COMPONENTS, inputs.shape[1], len(values) // 2), random_state=0)
    components, linear = svd.fit_transform(inputs @ sparse.diags(scale)), RidgeCV(PENALTIES)
    predicted = cross_val_predict(linear, components, values, cv=folds).reshape(values.shape)
    linear.fit(components, values)

    first = components[:, :n_first]
    variances = [np.full(block.shape[1], block.var(0).sum()) for block in (first, predicted)]
    unit = 1 / np.sqrt(np.maximum(np.concatenate(variances), EPSILON))
    maps = np.hstack([np.eye(svd.n_components)[:, :n_first], linear.coef_.reshape(values.shape[1], -1).T])
    offset = np.concatenate([np.zeros(first.shape[1]), np.atleast_1d(linear.intercept_)])
    return np.hstack([first, predicted]) * unit, scale[:, None] * (svd.components_.T @ maps) * unit, offset * unit


def draw_missing(
    counts: np.ndarray, missing: np.ndarray, others: Sequence[sparse.csr_matrix], *, fewest: int, most: int
) -> np.ndarray:
    """Draw missing features in counts ``(cells, columns)`` of a modality, given other modalities of the cells.

    Features that are missing in the same cells are regressed together, on the features that no cell misses, in at most
    ``most`` cells; fewer cells than ``fewest`` give their mean, no cell gives zeros.
    """
    complete, rng = counts.copy(), np.random.default_rng(0)
    is_measured = counts.any(axis=1)
    inputs = regression_inputs(
        [sparse.csr_matrix(counts[:, ~missing.any(axis=0)]), *others], np.zeros((len(counts), 0))
    )
    for pattern in np.unique(missing[:, missing.any(axis=0)], axis=1).T:
        columns = np.flatnonzero((missing == pattern[:, None]).all(axis=0))
        known, unknown = np.flatnonzero(is_measured & ~pattern), np.flatnonzero(is_measured & pattern)
        known = rng.permutation(known)[:most]
        if not len(known):
            continue
        if len(known) < fewest:
            complete[np.ix_(unknown, columns)] = counts[np.ix_(known, columns)].mean(axis=0).round()
            continue
        regression = CountRegression.fit(inputs[known], 0, counts[np.ix_(known, columns)])
        complete[np.ix_(unknown, columns)] = regression.draw(regression.log_mean(inputs[unknown]), rng)
    return complete


class LibraryRegression(NamedTuple):
    """Log-normal linear model of library sizes given tokens."""

    weights: np.ndarray  # (features, modalities)
    intercept: np.ndarray  # (modalities,)
    residual_sd: np.ndarray  # (modalities,)

    @classmethod
    def fit(cls, features: np.ndarray, library: np.ndarray) -> Self:
        """Regress log library sizes ``(cells, modalities)`` on principal components of tokens ``(cells, features)``."""
        from sklearn.decomposition import PCA
        from sklearn.linear_model import RidgeCV
        from sklearn.model_selection import cross_val_predict

        n_components = min(50, features.shape[1], max(len(features) // 5, 1))
        pca = PCA(n_components, whiten=True, svd_solver="randomized", random_state=0)
        scores = pca.fit_transform(features.astype(np.float64))
        logs, ridge = np.log(library), RidgeCV(SIZE_PENALTIES)
        coefficients = ridge.fit(scores, logs).coef_.reshape(logs.shape[1], -1)
        weights = (pca.components_ / np.sqrt(pca.explained_variance_)[:, None]).T @ coefficients.T
        residuals = logs - cross_val_predict(ridge, scores, logs).reshape(logs.shape)
        return cls(weights, ridge.intercept_ - pca.mean_ @ weights, residuals.std(0))

    def mean(self, features: np.ndarray) -> np.ndarray:
        """Predict expected library sizes ``(cells, modalities)``."""
        return np.maximum(np.exp(self._log(features) + self.residual_sd**2 / 2), 1)

    def sample(self, features: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw integer library sizes ``(cells, modalities)``, at least 1."""
        log_sizes = self._log(features)
        noise = rng.standard_normal(log_sizes.shape) * self.residual_sd
        return np.maximum(np.exp(log_sizes + noise).round(), 1)

    def _log(self, features: np.ndarray) -> np.ndarray:
        return features.astype(np.float64) @ self.weights + self.intercept


class ShareCalibration(NamedTuple):
    r"""Calibration of imputed shares by label: their mean, and the slope of deviations from it.

    The last row is for cells without a label. Over the training cells of a label, the ratio of observed molecules
    :math:`x_g` to expected molecules :math:`e_g` has the gamma-Poisson posterior mean :math:`(x_g + k) / (e_g + k)`,
    with :math:`k` estimated for the label by moments: :math:`\mathbb E \sum_g ((x_g - e_g)^2 / e_g - 1) =
    \sum_g e_g / k`. The deviation of a cell from its label mean is multiplied by the slope of a weighted regression
    over left-out cells, between 0 and 1.
    """

    log_ratios: np.ndarray  # (labels + 1, columns)
    log_means: np.ndarray  # (labels + 1, columns)
    slopes: np.ndarray  # (labels + 1,)

    @classmethod
    def fit(cls, observed: np.ndarray, expected: np.ndarray) -> Self:
        """Fit label means by sums ``(labels + 1, columns)`` over training cells; empty labels use the last row."""
        sums = np.stack([observed, expected])
        sums[:, :-1][:, sums[1, :-1].sum(1) == 0] = sums[:, -1:]
        least = 1e-9  # lower bound of denominators
        observed, expected = sums[0], np.maximum(sums[1], least)
        overdispersion = ((observed - expected) ** 2 / expected - 1).sum(1, keepdims=True)
        precision = expected.sum(1, keepdims=True) / np.maximum(overdispersion, least)
        log_ratios = np.log((observed + precision) / (expected + precision))
        log_means = log_softmax(np.log(expected) + log_ratios, axis=1)
        return cls(log_ratios.astype(np.float32), log_means.astype(np.float32), np.ones(len(observed), np.float32))

    def shares(self, log_shares: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Calibrate log shares ``(cells, columns)`` of cells with labels ``(cells,)``."""
        slopes = self.slopes[labels, None]
        return softmax(slopes * (log_shares + self.log_ratios[labels]) + (1 - slopes) * self.log_means[labels], axis=1)

    def with_slope(self, counts: np.ndarray, log_shares: np.ndarray, labels: np.ndarray) -> Self:
        """Fit the slope of labelled cells to left-out cells; for cells without a label it is 1."""
        means, sizes = np.exp(self.log_means[labels]), counts.sum(1, keepdims=True)
        deviations = self.shares(log_shares, labels) / means - 1
        has_label = labels < len(self.slopes) - 1
        covariance = (deviations * (counts - sizes * means))[has_label].sum()
        information = (sizes * means * deviations**2)[has_label].sum()
        slope = np.clip((covariance + PRIOR) / (information + PRIOR), 0, 1)
        return self._replace(slopes=np.append(np.full(len(self.slopes) - 1, slope), 1.0).astype(np.float32))
