"""Vocabularies of one size for any number of categories, which still tell all categories apart."""

import numpy as np
import pytest
import torch
from torch import nn

from scdiffgen.nn._options import VocabularyKind
from scdiffgen.nn.variants import VARIANTS, variant
from scdiffgen.nn.variants._embedding_forms import HALF, scramble

KINDS: list[VocabularyKind] = [*VARIANTS["vocabulary"]]


def make(kind: VocabularyKind, n_categories: int, dim: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return variant("vocabulary", kind)(n_categories, dim)


@pytest.mark.parametrize("salt", [0, 1, 2])
def test_scramble_is_a_permutation(salt: int) -> None:
    words = scramble(torch.arange(1 << 2 * HALF), salt)
    assert torch.equal(words.sort().values, torch.arange(1 << 2 * HALF))


@pytest.mark.parametrize("kind", KINDS)
def test_distinct_categories_have_distinct_vectors_of_order_one(kind: VocabularyKind) -> None:
    vectors = make(kind, 20_000).double()(torch.arange(20_000)).detach()
    assert len(vectors.unique(dim=0)) == 20_000
    assert 0.3 < vectors.square().sum(1).mean() ** 0.5 < 3


@pytest.mark.parametrize("kind", KINDS)
def test_size_does_not_depend_on_the_number_of_categories(kind: VocabularyKind) -> None:
    few, many = (make(kind, n).state_dict() for n in (3, 1_000_000))
    assert {name: weight.shape for name, weight in few.items()} == {name: w.shape for name, w in many.items()}
    assert sum(weight.numel() for weight in many.values()) <= 2 * 1024 * 16


def test_hashed_tables_are_two_and_their_rows_are_used_evenly() -> None:
    assert [name for name, _ in make("hashed", 5).named_children()] == ["first", "second"]
    words = scramble(torch.arange(20_000)).numpy()
    for rows in (words >> HALF, words & ((1 << HALF) - 1)):
        counts = np.bincount(rows, minlength=1 << HALF)
        chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        n_free = len(counts) - 1
        assert chi2 < n_free + 5 * np.sqrt(2 * n_free)  # mean and variance of the chi-squared distribution


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_any_shape_and_gradients(kind: VocabularyKind) -> None:
    vocabulary, ids = make(kind, 5), torch.tensor([[0, 4, 0], [2, 1, 3]])
    torch.testing.assert_close(vocabulary(ids)[0, 0], vocabulary(torch.tensor([0]))[0])
    vocabulary(ids).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in vocabulary.parameters())
