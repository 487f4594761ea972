"""The additive read-out: contributions that add up, and the urn's terms in molecules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp
from torch import Tensor

from scdiffgen.nn import AdditiveReadout

CELLS, GENES, TOKENS, DIM, READOUT, CONDITIONING = 5, 9, 4, 6, 3, 7


@pytest.fixture
def readout() -> AdditiveReadout:
    torch.manual_seed(0)
    readout = AdditiveReadout(GENES, TOKENS, DIM, READOUT, CONDITIONING)
    torch.nn.init.normal_(readout.gene_weights)
    torch.nn.init.normal_(readout.bias)
    torch.nn.init.normal_(readout.concentration.weight)
    return readout


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(CELLS, TOKENS, DIM, generator=torch.Generator().manual_seed(1))


CONDITIONING_VECTORS = torch.randn(CELLS, CONDITIONING, generator=torch.Generator().manual_seed(2))
N_MOLECULES = torch.tensor([0.0, 1.0, 10.0, 500.0, 2e4])


def test_contributions_of_the_tokens_add_up_to_the_logits(readout: AdditiveReadout, tokens: Tensor) -> None:
    hidden, loadings = readout.hidden(tokens).detach().numpy(), readout.loadings().detach().numpy()
    contributions = [hidden[:, k].astype(np.float64) @ loadings[k] for k in range(TOKENS)]
    logits = readout(tokens, CONDITIONING_VECTORS, N_MOLECULES).logits.detach()
    np.testing.assert_allclose(sum(contributions) + readout.bias.detach().numpy(), logits, rtol=2e-5, atol=2e-5)


def test_a_token_contributes_whatever_the_others_say(readout: AdditiveReadout, tokens: Tensor) -> None:
    def logits(given: Tensor) -> Tensor:
        return readout(given, CONDITIONING_VECTORS, N_MOLECULES).logits

    changed, alone = tokens.clone(), torch.zeros_like(tokens)
    changed[:, 2] += 1.0
    alone[:, 2] = 1.0
    nothing = torch.zeros_like(tokens)
    torch.testing.assert_close(logits(changed) - logits(tokens), logits(alone) - logits(nothing), rtol=1e-4, atol=1e-4)


def test_rates_of_the_tokens_sum_to_the_concentration(readout: AdditiveReadout, tokens: Tensor) -> None:
    scores = readout(tokens, CONDITIONING_VECTORS, N_MOLECULES)
    log_rates = scores.log_rates().detach().numpy()
    np.testing.assert_allclose(logsumexp(log_rates, axis=1), scores.log_concentration.detach()[:, 0], atol=1e-5)
    np.testing.assert_allclose(log_softmax(log_rates, axis=1), log_softmax(scores.logits.detach(), axis=1), atol=1e-5)


def test_at_first_the_tokens_weigh_as_much_as_the_molecules_there_and_one_more(tokens: Tensor) -> None:
    fresh = AdditiveReadout(GENES, TOKENS, DIM, READOUT, CONDITIONING)
    scores = fresh(tokens, CONDITIONING_VECTORS, N_MOLECULES)
    np.testing.assert_allclose(scores.log_concentration.exp().detach()[:, 0], N_MOLECULES + 1, rtol=1e-5)


def test_urn_weights_are_never_negative_and_one_a_gene(readout: AdditiveReadout, tokens: Tensor) -> None:
    with torch.no_grad():
        readout.urn_logits.copy_(torch.linspace(-20, 20, GENES))
    weights = readout(tokens, CONDITIONING_VECTORS, N_MOLECULES).urn_weights.detach()
    np.testing.assert_allclose(weights, np.logaddexp(0, np.linspace(-20, 20, GENES)), rtol=1e-5)


def test_the_bias_starts_from_the_average_cell(tokens: Tensor) -> None:
    readout = AdditiveReadout(GENES, TOKENS, DIM, READOUT, CONDITIONING)
    frequencies = np.random.default_rng(0).dirichlet(np.ones(GENES))
    frequencies[0] = 0
    readout.initialise_bias(torch.tensor(frequencies).float())
    assert torch.isfinite(readout.bias).all()
    torch.nn.init.zeros_(readout.gene_weights)
    shares = readout(tokens, CONDITIONING_VECTORS, N_MOLECULES).logits.softmax(1).detach()
    np.testing.assert_allclose(shares, np.tile(frequencies / frequencies.sum(), (CELLS, 1)), rtol=1e-5, atol=1e-7)
