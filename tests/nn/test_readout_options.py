"""Forms of the read-out, against SciPy and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scdiffgen.nn import AdditiveReadout, NetworkOptions, NetworkSize, ReadoutOptions
from scdiffgen.nn._network import Conditioning, TokenTrunk

N_GENES, N_TOKENS, DIM, WIDTH, UNITS = 30, 4, 6, 3, 5


def size(n_tokens: int, **options: object) -> NetworkSize:
    form = NetworkOptions(readout=ReadoutOptions(**options))
    return NetworkSize(
        n_tokens=n_tokens, token_dim=DIM, readout_dim=WIDTH, readout_units=UNITS, dropout=0.0, options=form
    )


def readout(**options: object) -> AdditiveReadout:
    torch.manual_seed(0)
    made = AdditiveReadout(N_GENES, size(N_TOKENS, **options))
    for weights in (made.gene_weights, made.unit_weights, made.unit_biases, made.bias):
        torch.nn.init.normal_(weights)
    return made


def test_fewer_tokens_are_the_leading_ones() -> None:
    made, tokens = readout(), torch.randn(7, N_TOKENS, DIM)
    cut = AdditiveReadout(N_GENES, size(2))
    cut.load_state_dict(
        {name: made.state_dict()[name][tuple(map(slice, t.shape))] for name, t in cut.state_dict().items()}
    )
    torch.testing.assert_close(made(tokens[:, :2]), cut(tokens[:, :2]))


def test_a_held_token_contributes_the_same_everywhere() -> None:
    made, contribution = readout(), torch.randn(N_GENES)
    one, other = torch.randn(2, 1, N_TOKENS, DIM)
    other[:, [0, 2, 3]] = one[:, [0, 2, 3]]
    others = torch.einsum("ctr,trg->cg", made.hidden(one)[:, [0, 2, 3]], made.loadings()[[0, 2, 3]])
    bias = made.bias.detach().clone()
    made.hold(1, contribution)
    torch.testing.assert_close(made(one), made(other))
    torch.testing.assert_close(made(one), bias + contribution + others)


def test_the_penalty_follows_its_formula_and_ignores_scale() -> None:
    weights = readout().loadings().detach().numpy()
    unit = weights - weights.mean(2, keepdims=True)
    unit /= np.linalg.norm(unit, axis=2, keepdims=True)
    pairs = [(k, m) for k in range(N_TOKENS) for m in range(N_TOKENS) if k != m]
    cosine = np.mean([((unit[k] @ unit[m].T) ** 2).mean() for k, m in pairs])
    made = readout(orthogonality=3.0)
    assert readout().penalty() == 0
    assert made.penalty().item() == pytest.approx(3 * cosine, rel=1e-5)
    with torch.no_grad():
        made.gene_weights *= 7
        made.unit_weights *= 7
    assert made.penalty().item() == pytest.approx(3 * cosine, rel=1e-5)


def test_nested_tokens_vary_in_number_in_training_alone() -> None:
    torch.manual_seed(0)
    nested = NetworkSize(n_tokens=4, token_dim=8, n_heads=2, n_hidden=8, conditioning_dim=8, nested_tokens=True)
    trunk = TokenTrunk(10, nested)
    arguments = torch.zeros(1, 8), Conditioning(torch.zeros(1, 8))
    numbers = np.bincount([trunk(*arguments).shape[1] for _ in range(400)], minlength=5)
    expected = 400 * np.array([0, 1 / 8, 1 / 8, 1 / 8, 5 / 8])
    assert np.abs(numbers - expected).max() < 4 * np.sqrt(400 / 4)
    assert {trunk.eval()(*arguments).shape[1] for _ in range(20)} == {4}
