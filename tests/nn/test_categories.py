"""Embeddings of given feature vectors; those of ids are tested in `variants`."""

import numpy as np
import pytest
import torch

from scdiffgen.nn._embeddings import FeatureEmbedding


def test_features_are_an_affine_map_of_the_given_vectors():
    torch.manual_seed(0)
    vectors = torch.randn(12, 5, dtype=torch.float64) * 30 + 100
    embedding = FeatureEmbedding(5, 3).double()
    embedding.extend(vectors)
    embedded = embedding(torch.arange(12)).detach().numpy()
    _, residual, *_ = np.linalg.lstsq(np.c_[vectors, np.ones(12)], embedded, rcond=None)
    assert residual == pytest.approx(np.zeros(3), abs=1e-12)
    assert np.abs(embedded).max() < 4  # order one, whatever the scale of the vectors
    assert [name for name, _ in embedding.named_parameters()] == ["projection.weight", "projection.bias"]


def test_features_of_further_categories_leave_the_known_ones_alone():
    torch.manual_seed(0)
    embedding, vectors = FeatureEmbedding(4, 3), torch.randn(5, 4)
    embedding.extend(vectors)
    before = embedding(torch.arange(5))
    embedding.extend(torch.cat([vectors[2:3], 9 * torch.ones(1, 4)]))
    torch.testing.assert_close(embedding(torch.arange(5)), before)
    torch.testing.assert_close(embedding(torch.tensor(5)), before[2])  # the same vector, the same embedding
    with pytest.raises(IndexError):
        embedding(torch.tensor(7))


@pytest.mark.parametrize("vectors", [torch.zeros(1, 3), torch.ones(4, 3)])
def test_features_without_spread_are_finite(vectors):
    embedding = FeatureEmbedding(3, 2)
    embedding.extend(vectors)
    assert embedding(torch.tensor(0)).isfinite().all()


def test_missing_features_raise_and_never_count_as_zero():
    embedding = FeatureEmbedding(4, 3)
    with pytest.raises(RuntimeError, match="No feature vectors were given"):
        embedding(torch.tensor([0]))
