"""The additive read-out: contributions that add up."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from scdiffgen.nn import AdditiveReadout, NetworkSize

CELLS, GENES, TOKENS, DIM, READOUT = 5, 9, 4, 6, 3
SIZE = NetworkSize(n_tokens=TOKENS, token_dim=DIM, readout_dim=READOUT)


@pytest.fixture
def readout() -> AdditiveReadout:
    torch.manual_seed(0)
    readout = AdditiveReadout(GENES, SIZE)
    torch.nn.init.normal_(readout.gene_weights)
    torch.nn.init.normal_(readout.bias)
    return readout


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(CELLS, TOKENS, DIM, generator=torch.Generator().manual_seed(1))


def test_contributions_of_the_tokens_add_up_to_the_logits(readout: AdditiveReadout, tokens: Tensor) -> None:
    hidden, loadings = readout.hidden(tokens).detach().numpy(), readout.loadings().detach().numpy()
    contributions = [hidden[:, k].astype(np.float64) @ loadings[k] for k in range(TOKENS)]
    logits = readout(tokens).detach()
    np.testing.assert_allclose(sum(contributions) + readout.bias.detach().numpy(), logits, rtol=2e-5, atol=2e-5)


def test_a_token_contributes_whatever_the_others_are(readout: AdditiveReadout, tokens: Tensor) -> None:
    changed, alone = tokens.clone(), torch.zeros_like(tokens)
    changed[:, 2] += 1.0
    alone[:, 2] = 1.0
    nothing = torch.zeros_like(tokens)
    torch.testing.assert_close(
        readout(changed) - readout(tokens), readout(alone) - readout(nothing), rtol=1e-4, atol=1e-4
    )


def test_the_bias_starts_from_the_average_cell(tokens: Tensor) -> None:
    readout = AdditiveReadout(GENES, SIZE)
    frequencies = np.random.default_rng(0).dirichlet(np.ones(GENES))
    frequencies[0] = 0
    readout.initialise_bias(torch.tensor(frequencies).float())
    assert torch.isfinite(readout.bias).all()
    torch.nn.init.zeros_(readout.gene_weights)
    shares = readout(tokens).softmax(1).detach()
    np.testing.assert_allclose(shares, np.tile(frequencies / frequencies.sum(), (CELLS, 1)), rtol=1e-5, atol=1e-7)
