"""Linear initialisation: principal components of the training cells that replicate in other cells."""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import block_diag
from scipy.sparse.linalg import ArpackError
from sklearn.decomposition import PCA
from torch import nn

from scdiffgen._log_normalise import log_normalise
from scdiffgen.diffusion import Blocks
from scdiffgen.nn import ScoreNetwork


class LinearModel(NamedTuple):
    """Principal components of log-normalised expression, largest first."""

    axes: NDArray[np.float64]  # (components, genes), orthonormal
    spread: NDArray[np.float64]  # (components,): standard deviation along the axes, without sampling noise


def linear_model(counts: sparse.csr_matrix, n_components: int) -> LinearModel:
    """Fit at most ``n_components`` components that replicate in other cells :cite:p:`batson2019molecular`."""
    n_components = min(n_components, counts.shape[0] // 2 - 1, counts.shape[1] - 1)
    if n_components > 0:
        with suppress(ArpackError):  # raised if all cells are equal
            return _returning(counts, n_components)
    return LinearModel(np.zeros((0, counts.shape[1])), np.zeros(0))


def linear_model_of_blocks(counts: sparse.csr_matrix, blocks: Blocks, n_components: int) -> LinearModel:
    """Fit components of each modality separately and interleave at most ``n_components``."""
    models = [
        linear_model(cells[np.flatnonzero(cells.sum(1))], n_components // len(blocks.sizes))
        for cells in blocks.split(counts)
    ]
    turns = np.argsort(np.concatenate([np.arange(len(part.axes)) for part in models]), kind="stable")
    axes, spread = block_diag(*(part.axes for part in models)), np.concatenate([part.spread for part in models])
    return LinearModel(axes[turns], spread[turns])


def _returning(counts: sparse.csr_matrix, n_components: int) -> LinearModel:
    rng = np.random.default_rng(0)
    pca = fit_pca(log_normalise(counts), n_components)
    half, variance = rng.permutation(counts.shape[0]) < counts.shape[0] // 2, np.zeros(n_components)
    for fitted in (half, ~half):
        axes, other = fit_pca(log_normalise(counts[fitted]), n_components).components_.T, counts[~fitted]
        first, second = other.copy(), other.copy()
        first.data = rng.binomial(other.data.astype(np.int64), 0.5).astype(other.dtype)
        second.data = other.data - first.data
        one, two = (np.asarray(log_normalise(part) @ axes) for part in (first, second))
        variance += ((one - one.mean(0)) * (two - two.mean(0))).mean(0).clip(min=0) / 2
    spread = np.sqrt(np.minimum(variance, pca.explained_variance_))
    returns = spread >= 0.3 * np.sqrt(pca.explained_variance_)  # minimum part that must replicate
    n_kept = n_components if returns.all() else int(np.argmin(returns))
    return LinearModel(pca.components_[:n_kept].copy(), spread[:n_kept])


def varimax(loadings: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotate loadings ``(factors, genes)`` by :cite:t:`kaiser1958varimax`; the heavier tail of each is positive."""
    columns, rotation, before = loadings.T, np.eye(len(loadings)), 0.0
    for _ in range(100):
        rotated = columns @ rotation
        gradient = columns.T @ (rotated**3 - rotated * (rotated**2).mean(0))
        left, singular, right = np.linalg.svd(gradient)
        rotation = left @ right
        if singular.sum() < before * (1 + 1e-6):
            break
        before = singular.sum()
    rotated = (columns @ rotation).T
    return rotated * np.where((rotated**3).sum(1, keepdims=True) < 0, -1, 1)


def linear_weights(network: ScoreNetwork) -> dict[str, nn.Parameter]:
    """Return gene weights of ``"readout"`` and ``"encoder"``, which can be initialised by components."""
    return {"readout": network.readout.gene_weights, "encoder": network.trunk.encoder.weight}


@torch.no_grad()
def start_linearly(network: ScoreNetwork, model: LinearModel) -> None:
    """Set gene weights to components: varimax-rotated in the read-out, with both signs in the encoder."""
    if not len(model.axes):
        return
    heads, (loaded, weight) = network.readout.heads, linear_weights(network).values()
    n_tokens = len(heads)
    loadings = model.axes * model.spread[:, None]
    loadings[:n_tokens] = varimax(loadings[:n_tokens])
    rows = loaded.unflatten(0, (n_tokens, -1))
    for component, loading in enumerate(loadings[: len(loaded)]):
        rows[component % n_tokens, component // n_tokens] = torch.from_numpy(loading)
    heads.zero_()
    axes = torch.from_numpy(model.axes[: weight.shape[1] // 2].T).to(weight)
    weight.zero_()
    weight[:, : 2 * axes.shape[1]] = torch.cat([axes, -axes], dim=1)


def fit_pca(expression: sparse.csr_matrix, n_components: int) -> PCA:
    """Fit principal components of expression ``(cells, genes)``; raise ArpackError for equal cells."""
    with np.errstate(invalid="ignore"):
        pca = PCA(n_components, svd_solver="arpack", random_state=0).fit(expression)
    if pca.explained_variance_[0] <= np.finfo(np.float32).eps:  # SciPy before 1.17 does not raise
        raise ArpackError(-9)
    return pca
