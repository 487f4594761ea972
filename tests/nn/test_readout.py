"""The additive read-out: contributions that add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from scdiffgen.nn import AdditiveReadout, NetworkSize

CELLS, GENES, TOKENS, DIM, READOUT, UNITS = 5, 9, 4, 6, 3, 7
SIZE = NetworkSize(n_tokens=TOKENS, token_dim=DIM, readout_dim=READOUT, readout_units=UNITS, dropout=0.0)


@pytest.fixture
def readout() -> AdditiveReadout:
    torch.manual_seed(0)
    readout = AdditiveReadout(GENES, SIZE)
    for weights in (readout.gene_weights, readout.unit_weights, readout.unit_biases, readout.bias):
        torch.nn.init.normal_(weights)
    return readout


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(CELLS, TOKENS, DIM, generator=torch.Generator().manual_seed(1))


def test_contributions_of_the_tokens_add_up_to_the_logits(readout: AdditiveReadout, tokens: Tensor) -> None:
    hidden, loadings = readout.hidden(tokens).detach().numpy(), readout.loadings().detach().numpy()
    contributions = [hidden[:, k].astype(np.float64) @ loadings[k] for k in range(TOKENS)]
    logits = readout(tokens).detach()
    np.testing.assert_allclose(sum(contributions) + readout.bias.detach().numpy(), logits, rtol=2e-5, atol=2e-5)


def test_units_make_a_contribution_a_curved_function_of_its_token(readout: AdditiveReadout, tokens: Tensor) -> None:
    linear = AdditiveReadout(GENES, replace(SIZE, readout_units=0))
    linear.load_state_dict(
        {name: readout.state_dict()[name] for name in ("heads", "gene_weights", "bias")}, strict=False
    )
    units = torch.einsum("ctd,tdu->ctu", tokens, readout.units) + readout.unit_biases
    added = (units * units.sigmoid()).flatten(1) @ readout.unit_weights
    torch.testing.assert_close(readout(tokens), linear(tokens) + added, rtol=1e-4, atol=1e-4)
    double = linear(2 * tokens) - linear(tokens)
    torch.testing.assert_close(double, linear(tokens) - linear.bias, rtol=1e-4, atol=1e-4)


def test_weights_without_units_are_read_as_what_they_were(readout: AdditiveReadout, tokens: Tensor) -> None:
    linear = AdditiveReadout(GENES, replace(SIZE, readout_units=0))
    earlier = {name: weight for name, weight in linear.state_dict().items() if not name.startswith("unit")}
    readout.requires_grad_(False).load_state_dict(earlier)
    torch.testing.assert_close(readout(tokens), linear(tokens).detach())
    assert not any(weight.requires_grad for weight in readout.parameters())  # as those of averaged weights


def test_the_bias_starts_from_the_average_cell(tokens: Tensor) -> None:
    readout = AdditiveReadout(GENES, SIZE)
    frequencies = np.random.default_rng(0).dirichlet(np.ones(GENES))
    frequencies[0] = 0
    readout.initialise_bias(torch.tensor(frequencies).float())
    assert torch.isfinite(readout.bias).all()
    torch.nn.init.zeros_(readout.gene_weights)
    shares = readout(tokens).softmax(1).detach()
    np.testing.assert_allclose(shares, np.tile(frequencies / frequencies.sum(), (CELLS, 1)), rtol=1e-5, atol=1e-7)
