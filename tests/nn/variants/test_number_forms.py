"""All number embeddings against closed forms, SciPy's rank correlation and automatic differentiation."""

from typing import get_args

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

from scdiffgen.nn._embeddings import SinusoidalEmbedding, number_embedding
from scdiffgen.nn._network import rotate
from scdiffgen.nn._options import NumberKind
from scdiffgen.nn.variants._embedding_forms import (
    DirectEmbedding,
    FourierEmbedding,
    HybridEmbedding,
    RotaryEmbedding,
    number_bins,
    wavelets,
)

KINDS = sorted(get_args(NumberKind))
SMOOTH_KINDS = [kind for kind in KINDS if kind != "learned"]


def make(kind, dim):
    torch.manual_seed(0)
    return number_embedding(kind)(dim).double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 16, 31])
def test_every_dim_is_filled(kind, dim):
    if kind == "rotary" and dim == 1:
        with pytest.raises(ValueError, match="`dim` is 1, but RotaryEmbedding needs at least 2"):
            number_embedding(kind)(dim)
        return
    embedding = make(kind, dim)
    assert embedding(torch.zeros(3, 2, dtype=torch.float64)).shape == (3, 2, dim)
    varying = embedding(torch.linspace(-3, 3, 50, dtype=torch.float64)).std(0).gt(1e-3).sum()
    assert varying == (dim - dim % 2 if kind == "rotary" else dim)  # the odd component of a rotation stays


@pytest.mark.parametrize("kind", KINDS)
def test_zero_negative_tiny_and_huge_numbers_are_finite_and_of_order_one(kind):
    numbers = torch.tensor([0.0, -0.0, -1.0, 1e-38, -1e38, 1e38, torch.inf, -torch.inf])
    torch.manual_seed(0)
    vectors = number_embedding(kind)(32)(numbers)
    assert vectors.isfinite().all()
    assert vectors.abs().max() < 6
    torch.testing.assert_close(vectors[0], vectors[1])
    assert (vectors[4] - vectors[5]).abs().max() > 1e-3  # the sign of a huge number is seen


@pytest.mark.parametrize("kind", SMOOTH_KINDS)
def test_derivative_agrees_with_finite_differences_and_is_bounded(kind):
    embedding = make(kind, 32)
    # off the binary powers, where the table within "hybrid" jumps
    numbers = (torch.linspace(-6, 6, 41, dtype=torch.float64) + 1e-3).requires_grad_()
    assert torch.autograd.gradcheck(embedding, numbers)
    slopes = torch.autograd.functional.jacobian(lambda x: embedding(x).sum(0), numbers)
    assert slopes.abs().max() < 12


@pytest.mark.parametrize("kind", [kind for kind in KINDS if [*number_embedding(kind)(8).parameters()]])
def test_gradients_of_parameters_are_finite_at_zero_and_far_out(kind):
    embedding = number_embedding(kind)(8)
    embedding(torch.tensor([0.0, -1e30, torch.inf])).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in embedding.parameters())


# Measured Spearman correlation of distances in -4 .. 4, at 32 components, less a margin of 0.05.
@pytest.mark.parametrize(
    ("kind", "at_least"),
    [("sinusoidal", 0.90), ("rotary", 0.90), ("fourier", 0.90), ("direct", 0.85), ("hybrid", 0.80), ("wavelet", 0.70)],
)
def test_nearby_numbers_have_nearby_vectors(kind, at_least):
    numbers = np.linspace(-4, 4, 161)
    vectors = make(kind, 32)(torch.from_numpy(numbers)).detach().numpy()
    correlation = spearmanr(pdist(vectors), pdist(numbers[:, None])).statistic
    assert correlation > at_least, f"{kind}: rank correlation of distances {correlation:.3f}"


def test_random_fourier_features_approach_a_gaussian_kernel():
    # Bochner: E[cos(w d)] of Gaussian frequencies is exp(-(2 pi b d)^2 / 2)
    torch.manual_seed(1)
    embedding = FourierEmbedding(40_000)
    differences = torch.linspace(0, 2, 9)
    kernel = embedding(3 * differences) @ embedding(torch.zeros(1)).T / 20_000  # b is 0.1 at a third of the distance
    torch.testing.assert_close(
        kernel[:, 0], torch.exp(-((2 * torch.pi * 0.3 * differences) ** 2) / 2), atol=0.02, rtol=0
    )


def test_direct_embedding_sees_three_increasing_functions():
    embedding, seen = DirectEmbedding(4).double(), []
    embedding.mlp.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    embedding(torch.tensor([-1e5, -3, -0.2, -1e-4, 0, 1e-4, 0.2, 3, 1e5], dtype=torch.float64))
    assert seen[0][4].eq(0).all()
    assert seen[0].diff(dim=0)[:, 1].gt(0).all()  # log-magnitude: strictly
    assert seen[0].diff(dim=0).ge(0).all()


def test_bins_agree_with_numpy():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=500) * 10.0 ** rng.uniform(-3, 3, size=500)
    sign, exponent_bin, mantissa = number_bins(torch.from_numpy(numbers), n_mantissas=8)
    exponent = np.floor(np.log2(np.abs(numbers)))
    digits = np.floor((np.abs(numbers) / 2**exponent - 1) * 8)
    np.testing.assert_array_equal(sign, np.sign(numbers) + 1)
    np.testing.assert_array_equal(mantissa, digits + 1)
    np.testing.assert_array_equal(exponent_bin - exponent_bin.min(), exponent - exponent.min())


def test_hybrid_is_its_parts_side_by_side():
    embedding = HybridEmbedding(11)
    numbers = torch.linspace(-2, 2, 7)
    assert [part.dim for part in embedding.parts] == [6, 3, 2]
    torch.testing.assert_close(embedding(numbers)[:, :6], SinusoidalEmbedding(6)(numbers))


def test_wavelets_are_derivatives_of_a_gaussian():
    x = torch.linspace(-3, 3, 31, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.exp(-(x**2) / 2).sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    even, odd = wavelets(x)
    torch.testing.assert_close(even, -curvature)
    torch.testing.assert_close(odd, -slope * torch.e**0.5)


# Rotations.


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_rotation_is_complex_multiplication():
    vectors, angles = normal(5, 8), normal(5, 4, seed=1)
    turned = vectors.numpy().view(np.complex128) * np.exp(1j * angles.numpy())
    np.testing.assert_allclose(rotate(vectors, angles).numpy().view(np.complex128), turned)


@pytest.mark.parametrize("dim", [7, 8])
def test_inner_products_depend_on_the_difference_of_the_numbers_only(dim):
    embedding = RotaryEmbedding(dim).double()
    torch.nn.init.normal_(embedding.start, generator=torch.Generator().manual_seed(0))
    numbers = torch.linspace(-3, 3, 9, dtype=torch.float64)
    one, shifted = embedding(numbers), embedding(numbers + 1.7)
    torch.testing.assert_close(shifted @ shifted.T, one @ one.T)


def test_angles_are_proportional_to_the_number():
    embedding = RotaryEmbedding(6, min_period=2.0, max_period=8.0)
    for number in (1.0, -3.0):
        angles = number * 2 * torch.pi / torch.tensor([8.0, 4.0, 2.0])
        expected = rotate(embedding.start, angles)
        torch.testing.assert_close(embedding(torch.tensor(number)), expected)
