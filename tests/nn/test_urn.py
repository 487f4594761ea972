"""The urn's terms, in molecules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp

from scdiffgen.nn._readouts import Urn

CELLS, GENES, CONDITIONING = 5, 9, 7
LOGITS = torch.randn(CELLS, GENES, generator=torch.Generator().manual_seed(1))
CONDITIONING_VECTORS = torch.randn(CELLS, CONDITIONING, generator=torch.Generator().manual_seed(2))
N_MOLECULES = torch.tensor([0.0, 1.0, 10.0, 500.0, 2e4])


@pytest.fixture
def urn() -> Urn:
    torch.manual_seed(0)
    urn = Urn(GENES, CONDITIONING)
    torch.nn.init.normal_(urn.concentration.weight)
    return urn


def test_rates_of_the_tokens_sum_to_the_concentration(urn: Urn) -> None:
    scores = urn(LOGITS, CONDITIONING_VECTORS, N_MOLECULES)
    log_rates = scores.log_rates().detach().numpy()
    np.testing.assert_allclose(logsumexp(log_rates, axis=1), scores.log_concentration.detach()[:, 0], atol=1e-5)
    np.testing.assert_allclose(log_softmax(log_rates, axis=1), log_softmax(scores.logits.detach(), axis=1), atol=1e-5)


def test_at_first_the_tokens_weigh_as_much_as_the_molecules_there_and_one_more() -> None:
    scores = Urn(GENES, CONDITIONING)(LOGITS, CONDITIONING_VECTORS, N_MOLECULES)
    np.testing.assert_allclose(scores.log_concentration.exp().detach()[:, 0], N_MOLECULES + 1, rtol=1e-5)


def test_weights_are_never_negative_and_one_a_gene(urn: Urn) -> None:
    with torch.no_grad():
        urn.weight_logits.copy_(torch.linspace(-20, 20, GENES))
    weights = urn(LOGITS, CONDITIONING_VECTORS, N_MOLECULES).urn_weights.detach()
    np.testing.assert_allclose(weights, np.logaddexp(0, np.linspace(-20, 20, GENES)), rtol=1e-5)
