"""Rotations against complex multiplication, and what attention needs of them."""

import numpy as np
import pytest
import torch

from scdiffgen.nn._rotary import RotaryEmbedding, rotate


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def normal(*shape, generator):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_rotation_is_complex_multiplication(generator):
    vectors, angles = normal(5, 8, generator=generator), normal(5, 4, generator=generator)
    turned = vectors.numpy().view(np.complex128) * np.exp(1j * angles.numpy())
    np.testing.assert_allclose(rotate(vectors, angles).numpy().view(np.complex128), turned)


@pytest.mark.parametrize("dim", [2, 7, 8])
def test_rotation_keeps_norms(dim, generator):
    vectors, angles = normal(5, dim, generator=generator), normal(5, dim // 2, generator=generator)
    torch.testing.assert_close(rotate(vectors, angles).norm(dim=1), vectors.norm(dim=1))


@pytest.mark.parametrize("dim", [7, 8])
def test_attention_scores_depend_on_the_difference_of_the_numbers_only(dim, generator):
    embedding = RotaryEmbedding(dim).double()
    query, key = normal(dim, generator=generator), normal(dim, generator=generator)
    numbers = torch.linspace(-3, 3, 9, dtype=torch.float64)
    angles, shifted = embedding.code(numbers).angles, embedding.code(numbers + 1.7).angles
    scores = rotate(query, angles) @ rotate(key, angles).T
    torch.testing.assert_close(rotate(query, shifted) @ rotate(key, shifted).T, scores)


def test_angles_are_proportional_to_the_number():
    embedding = RotaryEmbedding(6, min_period=2.0, max_period=8.0)
    angles = embedding.code(torch.tensor([1.0, -3.0])).angles
    torch.testing.assert_close(angles[0], 2 * torch.pi / torch.tensor([8.0, 4.0, 2.0]))
    torch.testing.assert_close(angles[1], -3 * angles[0])


def test_wrong_number_of_angles_is_named():
    with pytest.raises(ValueError, match="`angles` has 3 of them, but vectors of length 8 have 4"):
        rotate(torch.zeros(2, 8), torch.zeros(2, 3))
