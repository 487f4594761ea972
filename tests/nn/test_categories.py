"""Category embeddings: distinct, and as small as they say. `test_determinism.py` asks for the same in every process."""

from typing import get_args

import numpy as np
import pytest
import torch
from sklearn.utils import murmurhash3_32

from scdiffgen.nn._categories import CATEGORY_EMBEDDINGS, FeatureEmbedding, HashedEmbedding, scramble
from scdiffgen.nn._options import CategoryKind

KINDS = sorted(CATEGORY_EMBEDDINGS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_categories", [1, 2, 7, 3000])
def test_distinct_ids_have_distinct_vectors_of_order_one(kind, n_categories):
    torch.manual_seed(0)
    vectors = CATEGORY_EMBEDDINGS[kind](n_categories, 16).double()(torch.arange(n_categories))
    assert len(vectors.unique(dim=0)) == n_categories
    assert vectors.abs().max() < 4


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_any_shape_and_none_out_of_range(kind):
    embedding = CATEGORY_EMBEDDINGS[kind](5, 8)
    ids = torch.tensor([[0, 4, 0], [2, 1, 3]])
    torch.testing.assert_close(embedding(ids)[0, 0], embedding(torch.tensor([0]))[0])
    for outside in (-1, 5):
        with pytest.raises(IndexError):
            embedding(torch.tensor([outside]))


def test_scramble_is_the_finaliser_of_murmurhash3():
    # Of a four-byte key, MurmurHash3 is a fixed rotation of the key followed by the finaliser; undo that rotation.
    def rotate_left(word, n):
        return ((word << n) | (word >> (32 - n))) & 0xFFFFFFFF

    for key in (0, 1, 77, 123_456_789, 2**31 - 1):
        mixed = rotate_left(key * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        body = (rotate_left(mixed, 13) * 5 + 0xE6546B64 & 0xFFFFFFFF) ^ 4
        expected = murmurhash3_32(np.int32(key), seed=0, positive=True)
        assert scramble(torch.tensor(body), salt=0).item() == expected


def test_hashed_rows_are_spread_evenly():
    rows = HashedEmbedding(20_000, 2).rows
    counts = np.bincount(rows.numpy().ravel())
    chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    n_free = len(counts) - 1
    assert abs(chi2 - n_free) < 5 * np.sqrt(2 * n_free)  # mean and variance of the chi-squared distribution


def test_parameters_stay_few():
    n_parameters = {kind: sum(p.numel() for p in CATEGORY_EMBEDDINGS[kind](20_000, 64).parameters()) for kind in KINDS}
    assert n_parameters["table"] == 20_000 * 64
    assert n_parameters["hashed"] < 0.05 * n_parameters["table"]
    assert n_parameters["code"] == 64 * 64 + 64


@pytest.mark.parametrize("kind", KINDS)
def test_every_vector_can_be_fitted(kind):
    torch.manual_seed(0)
    embedding = CATEGORY_EMBEDDINGS[kind](12, 4)
    target = torch.randn(12, 4)
    optimiser = torch.optim.Adam(embedding.parameters(), lr=0.05)
    for _ in range(300):
        loss = (embedding(torch.arange(12)) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 1e-2


def test_every_name_that_may_be_chosen_is_an_embedding():
    assert list(CATEGORY_EMBEDDINGS) == list(get_args(CategoryKind))


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


def test_features_come_back_with_the_state():
    torch.manual_seed(0)
    saved, loaded = FeatureEmbedding(4, 3), FeatureEmbedding(4, 3)
    saved.extend(torch.randn(5, 4))
    saved.extend(torch.randn(2, 4))
    loaded.load_state_dict(saved.state_dict())
    torch.testing.assert_close(loaded(torch.arange(7)), saved(torch.arange(7)), rtol=0, atol=0)


def test_missing_features_raise_and_never_count_as_zero():
    embedding = FeatureEmbedding(4, 3)
    with pytest.raises(RuntimeError, match="No feature vectors were given"):
        embedding(torch.tensor([0]))
    with pytest.raises(ValueError, match="one row of 4 values"):
        embedding.extend(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"not finite in rows \[1\]"):
        embedding.extend(torch.tensor([[0.0, 0, 0, 0], [0, torch.nan, 0, 0]]))
