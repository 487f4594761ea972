"""Columns predicted from inputs: against kernel ridge regression in closed form, and a simulated truth and noise."""

import anndata
import numpy as np
import pytest
import scanpy
from scipy import sparse
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from scdiffgen.imputation import CountRegression, regression_inputs

N_TOKENS = 6


def simulated(n_cells: int, seed: int = 0) -> tuple[sparse.csr_matrix, np.ndarray, np.ndarray]:
    """Inputs, the expected ``log1p`` of three columns, and that with noise, which they share and which rises."""
    random = np.random.default_rng(seed)
    state = random.normal(size=(n_cells, 3))
    loadings = np.random.default_rng(99).normal(size=(3, 40 + N_TOKENS))
    inputs = state @ loadings + random.normal(0, 0.3, (n_cells, 40 + N_TOKENS))
    mean = np.column_stack([5 + np.tanh(3 * state[:, 0]), 5 + state[:, 1], 4 + np.abs(state[:, 2])])
    common = random.normal(size=(n_cells, 1))
    noise = np.hstack([0.2 * np.exp(0.8 * np.tanh(3 * state[:, :1])) * common, 0.3 * common, 0.3 * common])
    return sparse.csr_matrix(inputs), mean, mean + noise + random.normal(0, 0.05, mean.shape)


@pytest.fixture(scope="module")
def fitted() -> CountRegression:
    inputs, _, values = simulated(1_500)
    return CountRegression.fit(inputs, N_TOKENS, np.expm1(values))


def test_with_every_cell_a_landmark_it_is_kernel_ridge_regression() -> None:
    inputs, _, values = simulated(150)
    model, others = CountRegression.fit(inputs, N_TOKENS, np.expm1(values)), simulated(40, seed=1)[0]
    features, new = (matrix @ model.projection + model.offset for matrix in (inputs, others))
    # The features of the landmarks are those of left-out cells, which a fit on all cells comes close to.
    assert np.corrcoef(np.sort(features, 0).ravel(), np.sort(model.landmarks, 0).ravel())[0, 1] > 0.99
    kernel, centre = rbf_kernel(model.landmarks, gamma=1), values.mean(0)
    predicted = rbf_kernel(new, model.landmarks, gamma=1) @ model.weights + model.intercept
    np.testing.assert_allclose(model.log_mean(others), np.maximum(predicted, 0), rtol=1e-5)
    order = np.random.RandomState(0).permutation(len(model.landmarks))  # that of scikit-learn's Nystroem
    errors, found = [], kernel @ model.weights + model.intercept
    centred = kernel - kernel.mean(0) - kernel.mean(0)[:, None] + kernel.mean()
    for penalty in np.logspace(-4, 2, 13):
        exact = KernelRidge(alpha=penalty, kernel="precomputed").fit(centred, values[order] - centre)
        errors.append(np.abs(exact.predict(centred) + centre - found).max())
    assert min(errors) < 0.02 < max(errors)


def test_a_curved_truth_is_found(fitted: CountRegression) -> None:
    inputs, mean, _ = simulated(800, seed=1)
    found = fitted.log_mean(inputs)
    for column in range(3):
        assert np.corrcoef(found[:, column], mean[:, column])[0, 1] > 0.93
    assert np.abs(found.mean(0) - mean.mean(0)).max() < 0.05


def test_draws_spread_as_new_cells_do_at_each_level_and_together(fitted: CountRegression) -> None:
    inputs, mean, values = simulated(800, seed=2)
    random, logs = np.random.default_rng(0), fitted.log_mean(inputs)
    draws = np.stack([np.log1p(fitted.draw(logs, random)) for _ in range(200)])
    low, high = np.quantile(draws, [0.1, 0.9], axis=0)
    inside = (values >= low) & (values <= high)
    assert (np.abs(inside.mean(0) - 0.8) < 0.06).all()
    is_high = mean[:, 0] > 5.5  # where the noise of the first column is large
    spread = draws.std(0)[:, 0]
    assert spread[is_high].mean() > 2 * spread[mean[:, 0] < 4.5].mean()
    np.testing.assert_allclose(
        np.corrcoef((draws[0] - logs).T)[0, 1:], np.corrcoef((values - logs).T)[0, 1:], atol=0.15
    )


def test_one_column_that_never_varies_stays_what_it_is() -> None:
    inputs = simulated(120)[0]
    model = CountRegression.fit(inputs, N_TOKENS, np.full((120, 1), 7.0))
    logs = model.log_mean(inputs)
    np.testing.assert_allclose(np.expm1(logs), 7, rtol=1e-4)
    assert (model.draw(logs, np.random.default_rng(0)) == 7).all()


def test_inputs_are_what_scanpy_makes_of_counts_and_the_depth_of_each_modality() -> None:
    random = np.random.default_rng(0)
    blocks = [sparse.csr_matrix(random.poisson(2, (9, width)).astype(np.float32)) for width in (5, 3)]
    tokens = random.normal(size=(9, 4))
    inputs = regression_inputs(blocks, tokens).toarray()
    for block, columns in zip(blocks, (slice(0, 5), slice(5, 8)), strict=True):
        cells = anndata.AnnData(block.copy())
        scanpy.pp.normalize_total(cells, target_sum=1e4)
        scanpy.pp.log1p(cells)
        np.testing.assert_allclose(inputs[:, columns], cells.X.toarray(), rtol=1e-5)
    depths = np.hstack([block.sum(1) for block in blocks])
    np.testing.assert_allclose(np.exp(inputs[:, 8:10]) * 1e4, depths, rtol=1e-6)
    np.testing.assert_allclose(inputs[:, 10:], tokens)
