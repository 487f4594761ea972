"""Category embeddings: distinct, and as small as they say. `test_determinism.py` asks for the same in every process."""

import numpy as np
import pytest
import torch
from sklearn.utils import murmurhash3_32

from scdiffgen.nn._categories import CATEGORY_EMBEDDINGS
from scdiffgen.nn.variants._embedding_forms import HashedEmbedding, scramble

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
