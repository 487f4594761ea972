"""The sparse first layer against NumPy, and what must not matter to it."""

import numpy as np
import pytest
import torch
from csr import csr
from torch import Tensor

from scdiffgen.nn import CountEncoder, NetworkSize

COUNTS = np.random.default_rng(0).poisson(0.8, (6, 12))
COUNTS[2] = 0  # an empty cell, as generation starts from


@pytest.fixture
def encoder() -> CountEncoder:
    torch.manual_seed(0)
    return CountEncoder(12, NetworkSize(n_tokens=3, token_dim=4, n_hidden=8, conditioning_dim=5, dropout=0.0))


def layouts() -> list[Tensor]:
    return [csr(COUNTS), csr(COUNTS, stored_zeros=True), csr(COUNTS).to_dense()]


@pytest.mark.parametrize("counts", layouts(), ids=["sparse", "stored zeros", "dense"])
def test_the_first_layer_is_a_product_with_log_counts(counts: Tensor, encoder: CountEncoder) -> None:
    expected = np.log1p(COUNTS) @ encoder.weight.detach().numpy().astype(np.float64)
    np.testing.assert_allclose(encoder.read(counts).detach(), expected, atol=1e-6)


def test_gradients_of_sparse_and_dense_counts_agree(encoder: CountEncoder) -> None:
    gradients = [torch.autograd.grad(encoder.read(counts).square().sum(), encoder.weight)[0] for counts in layouts()]
    torch.testing.assert_close(gradients[0], gradients[2])
    torch.testing.assert_close(gradients[1], gradients[2])
