"""The additive read-out: contributions that add up, and the penalty by its formula; the urn's terms in molecules."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from networks import normal
from scipy.special import log_softmax, logsumexp

from scdiffgen.nn import AdditiveReadout, NetworkOptions, NetworkSize
from scdiffgen.nn._readouts import Urn

CELLS, GENES, TOKENS, DIM, READOUT, UNITS, CONDITIONING = 5, 9, 4, 6, 3, 7, 8
SIZE = NetworkSize(n_tokens=TOKENS, token_dim=DIM, readout_dim=READOUT, readout_units=UNITS, dropout=0.0)


def make(**options: float) -> AdditiveReadout:
    torch.manual_seed(0)
    readout = AdditiveReadout(GENES, replace(SIZE, options=NetworkOptions(**options)))
    for weights in (readout.gene_weights, readout.unit_weights, readout.unit_biases, readout.bias):
        torch.nn.init.normal_(weights)
    return readout


def test_contributions_of_the_tokens_add_up_to_the_logits() -> None:
    readout, tokens = make(), normal(CELLS, TOKENS, DIM, seed=1)
    hidden, loadings = readout.hidden(tokens).detach().numpy(), readout.loadings().detach().numpy()
    contributions = [hidden[:, k].astype(np.float64) @ loadings[k] for k in range(TOKENS)]
    logits = readout(tokens).detach()
    np.testing.assert_allclose(sum(contributions) + readout.bias.detach().numpy(), logits, rtol=2e-5, atol=2e-5)


def test_units_make_a_contribution_a_curved_function_of_its_token() -> None:
    readout, tokens = make(), normal(CELLS, TOKENS, DIM, seed=1)
    linear = AdditiveReadout(GENES, replace(SIZE, readout_units=0))
    linear.load_state_dict(
        {name: readout.state_dict()[name] for name in ("heads", "gene_weights", "bias")}, strict=False
    )
    units = torch.einsum("ctd,tdu->ctu", tokens, readout.units) + readout.unit_biases
    added = (units * units.sigmoid()).flatten(1) @ readout.unit_weights
    torch.testing.assert_close(readout(tokens), linear(tokens) + added, rtol=1e-4, atol=1e-4)
    double = linear(2 * tokens) - linear(tokens)
    torch.testing.assert_close(double, linear(tokens) - linear.bias, rtol=1e-4, atol=1e-4)


def test_the_bias_starts_from_the_average_cell() -> None:
    tokens = normal(CELLS, TOKENS, DIM, seed=1)
    readout = AdditiveReadout(GENES, SIZE)
    frequencies = np.random.default_rng(0).dirichlet(np.ones(GENES))
    frequencies[0] = 0
    readout.initialise_bias(torch.tensor(frequencies).float())
    assert torch.isfinite(readout.bias).all()
    torch.nn.init.zeros_(readout.gene_weights)
    shares = readout(tokens).softmax(1).detach()
    np.testing.assert_allclose(shares, np.tile(frequencies / frequencies.sum(), (CELLS, 1)), rtol=1e-5, atol=1e-7)


def test_fewer_tokens_are_the_leading_ones() -> None:
    made, tokens = make(), normal(7, TOKENS, DIM)
    cut = AdditiveReadout(GENES, replace(SIZE, n_tokens=2))
    cut.load_state_dict(
        {name: made.state_dict()[name][tuple(map(slice, t.shape))] for name, t in cut.state_dict().items()}
    )
    torch.testing.assert_close(made(tokens[:, :2]), cut(tokens[:, :2]))


def test_a_held_token_contributes_the_same_everywhere() -> None:
    made, contribution = make(), normal(GENES)
    one, other = normal(2, 1, TOKENS, DIM, seed=1)
    other[:, [0, 2, 3]] = one[:, [0, 2, 3]]
    others = torch.einsum("ctr,trg->cg", made.hidden(one)[:, [0, 2, 3]], made.loadings()[[0, 2, 3]])
    bias = made.bias.detach().clone()
    made.hold(1, contribution)
    torch.testing.assert_close(made(one), made(other))
    torch.testing.assert_close(made(one), bias + contribution + others)


def test_the_penalty_follows_its_formula_and_ignores_scale() -> None:
    weights = make().loadings().detach().numpy()
    unit = weights - weights.mean(2, keepdims=True)
    unit /= np.linalg.norm(unit, axis=2, keepdims=True)
    pairs = [(k, m) for k in range(TOKENS) for m in range(TOKENS) if k != m]
    cosine = np.mean([((unit[k] @ unit[m].T) ** 2).mean() for k, m in pairs])
    made = make(orthogonality=3.0)
    assert make().penalty() == 0
    assert made.penalty().item() == pytest.approx(3 * cosine, rel=1e-5)
    with torch.no_grad():
        made.gene_weights *= 7
        made.unit_weights *= 7
    assert made.penalty().item() == pytest.approx(3 * cosine, rel=1e-5)


LOGITS, CONDITIONING_VECTORS = normal(CELLS, GENES, seed=1), normal(CELLS, CONDITIONING, seed=2)
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


def test_initial_prior_strength_is_the_number_of_molecules_plus_one() -> None:
    scores = Urn(GENES, CONDITIONING)(LOGITS, CONDITIONING_VECTORS, N_MOLECULES)
    np.testing.assert_allclose(scores.log_concentration.exp().detach()[:, 0], N_MOLECULES + 1, rtol=1e-5)


def test_weights_are_never_negative_and_one_a_gene(urn: Urn) -> None:
    with torch.no_grad():
        urn.weight_logits.copy_(torch.linspace(-20, 20, GENES))
    weights = urn(LOGITS, CONDITIONING_VECTORS, N_MOLECULES).urn_weights.detach()
    np.testing.assert_allclose(weights, np.logaddexp(0, np.linspace(-20, 20, GENES)), rtol=1e-5)
