r"""Nystroem kernel ridge regression of a few columns with high counts, such as protein tags.

With inputs :math:`x` of a cell (log-normalised expression, log depth and tokens) and counts :math:`y`,
:math:`\mathbb E \log (1 + y) = b + \sum_l w_l \exp(-\lVert u - u_l \rVert^2)`, :math:`u = (V^\top x, \; B^\top x)`,
with singular vectors :math:`V` of the inputs, their ridge regression :math:`B^\top x` and landmark cells :math:`u_l`.
Hyperparameters are cross-validated. Draws add residuals of similar left-out cells (Schenker & Taylor 1996).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from scdiffgen._log_normalise import TARGET_SUM, log_normalise

if TYPE_CHECKING:
    from sklearn.model_selection import KFold

N_COMPONENTS, N_FIRST = 200, 20  # singular vectors of the linear regression, and of the kernel
TOKEN_SCALE = 0.3  # relative to expression, because the tokens of training cells overfit the target a little
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0)
N_LANDMARKS, N_FOLDS, N_NEAR = 500, 5, 100
PENALTIES, KERNEL_PENALTIES = np.logspace(-2, 5, 15), np.logspace(-4, 2, 13)
EPSILON = 1e-6  # lower bound of standard deviations and variances


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

        spread = np.maximum(self.predicted.std(0), EPSILON)
        near = NearestNeighbors(n_neighbors=min(N_NEAR, len(self.predicted))).fit(self.predicted / spread)
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
    scale = np.where(is_token, TOKEN_SCALE * np.sqrt(ratio), 1.0)
    svd = TruncatedSVD(min(N_COMPONENTS, inputs.shape[1], len(values) // 2), random_state=0)
    components, linear = svd.fit_transform(inputs @ sparse.diags(scale)), RidgeCV(PENALTIES)
    predicted = cross_val_predict(linear, components, values, cv=folds).reshape(values.shape)
    linear.fit(components, values)

    first = components[:, :N_FIRST]
    variances = [np.full(block.shape[1], block.var(0).sum()) for block in (first, predicted)]
    unit = 1 / np.sqrt(np.maximum(np.concatenate(variances), EPSILON))
    maps = np.hstack([np.eye(svd.n_components)[:, :N_FIRST], linear.coef_.reshape(values.shape[1], -1).T])
    offset = np.concatenate([np.zeros(first.shape[1]), np.atleast_1d(linear.intercept_)])
    return np.hstack([first, predicted]) * unit, scale[:, None] * (svd.components_.T @ maps) * unit, offset * unit
