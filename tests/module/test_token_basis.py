"""Activations and loadings against scikit-learn's principal components in the space of the genes."""

from typing import NamedTuple

import numpy as np
import pytest
from sklearn.decomposition import PCA

from scdiffgen.module import HiddenMoments, TokenBasis, loadings_in_group, token_basis

CELLS, TOKENS, READOUT, GENES = 400, 3, 4, 25


class Example(NamedTuple):
    hidden: np.ndarray
    weights: np.ndarray
    basis: TokenBasis

    def contribution(self, token: int) -> np.ndarray:
        """What a token of the network adds to the log-rates, up to a constant over the genes."""
        return self.hidden[:, token] @ (self.weights[token] - self.weights[token].mean(1, keepdims=True))


@pytest.fixture
def example() -> Example:
    """Gaussian vectors whose components are correlated and of which tokens differ in size."""
    random = np.random.default_rng(0)
    mixing = random.normal(size=(TOKENS, READOUT, READOUT)) * np.array([1.0, 3.0, 0.3])[:, None, None]
    hidden = np.einsum("ctr,trs->cts", random.normal(size=(CELLS, TOKENS, READOUT)), mixing) + random.normal(
        size=READOUT
    )
    weights = random.normal(size=(TOKENS, READOUT, GENES)) + 2.0
    return Example(hidden, weights, token_basis(HiddenMoments.of(hidden), weights))


def test_activations_are_standardised(example: Example) -> None:
    activation = example.basis.activation(example.hidden)
    assert activation.shape == (CELLS, TOKENS) and activation.dtype == np.float32
    np.testing.assert_allclose(activation.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(activation.std(0), 1, atol=1e-5)


def test_the_first_direction_is_the_first_principal_component_over_the_genes(example: Example) -> None:
    activation = example.basis.activation(example.hidden)
    for token in range(TOKENS):
        pca = PCA(1).fit(example.contribution(token))
        scores = pca.transform(example.contribution(token))[:, 0]
        loading = example.basis.loadings[:, token]
        sign = np.sign(loading @ pca.components_[0])
        np.testing.assert_allclose(loading, sign * scores.std() * pca.components_[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(activation[:, token], sign * scores / scores.std(), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(example.basis.first_direction[token], pca.explained_variance_ratio_[0])


def test_what_tokens_explain_is_the_variance_of_what_they_add(example: Example) -> None:
    variances = [example.contribution(token).var(0).sum() for token in range(TOKENS)]
    np.testing.assert_allclose(HiddenMoments.of(example.hidden).explained(example.weights), variances)
    np.testing.assert_allclose(example.basis.explained, variances / np.sum(variances))


def test_tokens_in_another_order_have_the_same_basis_in_that_order(example: Example) -> None:
    order = np.array([2, 0, 1])
    permuted = token_basis(HiddenMoments.of(example.hidden).take(order), example.weights[order])
    np.testing.assert_allclose(permuted.loadings, example.basis.loadings[:, order], rtol=1e-6)
    np.testing.assert_allclose(permuted.explained, example.basis.explained[order])


def test_loadings_point_where_they_are_largest(example: Example) -> None:
    assert (third_moment(example.basis.loadings) > 0).all()
    turned = token_basis(HiddenMoments.of(-example.hidden), example.weights)
    np.testing.assert_allclose(turned.loadings, example.basis.loadings, rtol=1e-4, atol=1e-5)


def third_moment(loadings: np.ndarray) -> np.ndarray:
    return (loadings.astype(np.float64) ** 3).sum(0)


def test_how_the_network_writes_its_vectors_does_not_matter(example: Example) -> None:
    change = np.random.default_rng(2).normal(size=(TOKENS, READOUT, READOUT))
    hidden = np.einsum("ctr,trs->cts", example.hidden, change)
    weights = np.stack([np.linalg.solve(change[token], example.weights[token]) for token in range(TOKENS)])
    other = token_basis(HiddenMoments.of(hidden), weights)
    np.testing.assert_allclose(other.loadings, example.basis.loadings, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(other.activation(hidden), example.basis.activation(example.hidden), atol=1e-3)


def test_a_constant_over_the_genes_does_not_matter(example: Example) -> None:
    shifted = token_basis(HiddenMoments.of(example.hidden), example.weights + 10)
    np.testing.assert_allclose(shifted.loadings, example.basis.loadings, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(example.basis.loadings.sum(0), 0, atol=1e-4)


def test_a_constant_token_has_zero_loadings_and_activations(example: Example) -> None:
    hidden = example.hidden.copy()
    hidden[:, 1] = 5.0
    basis = token_basis(HiddenMoments.of(hidden), example.weights)
    assert basis.explained.argmin() == 1
    np.testing.assert_allclose(basis.loadings[:, 1], 0, atol=1e-4)
    assert np.isfinite(basis.loadings).all() and np.isfinite(basis.directions).all()
    np.testing.assert_allclose(basis.activation(hidden)[:, 1], 0, atol=1e-2)


def test_fewer_cells_than_dimensions_are_no_trouble(example: Example) -> None:
    few = example.hidden[:3]
    basis = token_basis(HiddenMoments.of(few), example.weights)
    np.testing.assert_allclose(basis.activation(few).std(0), 1, atol=1e-3)


def test_moments_of_parts_merge_to_those_of_the_whole(example: Example) -> None:
    merged = HiddenMoments.of(example.hidden[:130]).merge(HiddenMoments.of(example.hidden[130:]))
    for part, whole in zip(merged, HiddenMoments.of(example.hidden), strict=True):
        np.testing.assert_allclose(part, whole)


def test_loadings_within_a_group_keep_order_and_direction(example: Example) -> None:
    same = loadings_in_group(example.basis, HiddenMoments.of(example.hidden), example.weights)
    np.testing.assert_allclose(same, example.basis.loadings, rtol=1e-4, atol=1e-5)
    half = loadings_in_group(example.basis, HiddenMoments.of(example.hidden[::2]), example.weights)
    for position in range(TOKENS):
        assert np.corrcoef(half[:, position], example.basis.loadings[:, position])[0, 1] > 0.8
