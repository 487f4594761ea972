"""Rotations against complex multiplication, and vectors that they turn."""

import numpy as np
import pytest
import torch

from scdiffgen.nn._numbers import RotaryEmbedding, rotate


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
def test_inner_products_depend_on_the_difference_of_the_numbers_only(dim, generator):
    embedding = RotaryEmbedding(dim).double()
    torch.nn.init.normal_(embedding.start, generator=generator)
    numbers = torch.linspace(-3, 3, 9, dtype=torch.float64)
    one, shifted = embedding(numbers), embedding(numbers + 1.7)
    torch.testing.assert_close(shifted @ shifted.T, one @ one.T)


def test_angles_are_proportional_to_the_number():
    embedding = RotaryEmbedding(6, min_period=2.0, max_period=8.0)
    for number in (1.0, -3.0):
        angles = number * 2 * torch.pi / torch.tensor([8.0, 4.0, 2.0])
        expected = rotate(embedding.start, angles)
        torch.testing.assert_close(embedding(torch.tensor(number)), expected)
