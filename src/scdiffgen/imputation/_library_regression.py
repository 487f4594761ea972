"""Ridge regression of the log library size of a modality on the tokens of other modalities."""

from typing import NamedTuple, Self

import numpy as np

N_COMPONENTS = 50
PENALTIES = np.logspace(-2, 5, 8)


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

        n_components = min(N_COMPONENTS, features.shape[1], max(len(features) // 5, 1))
        pca = PCA(n_components, whiten=True, svd_solver="randomized", random_state=0)
        scores = pca.fit_transform(features.astype(np.float64))
        logs, ridge = np.log(library), RidgeCV(PENALTIES)
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
