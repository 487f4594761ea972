"""The whole network: what must and what must not matter to a cell's scores, and that all of it learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from csr import csr
from networks import SIZE, normal, random_weights, without_gradient
from torch import Tensor

from scdiffgen.nn import GeneScores, TokenNetwork

N_GENES = 20
COUNTS = np.random.default_rng(0).poisson(1.0, (6, N_GENES))
COUNTS[4] = 0


def inputs(counts: np.ndarray = COUNTS, layout: str = "sparse") -> dict[str, Tensor]:
    state = csr(counts)
    n_molecules = torch.tensor(counts.sum(1)).float()
    condition = normal(len(counts), 8, seed=5)
    return {
        "state": state.to_dense() if layout == "dense" else state,
        "n_molecules": n_molecules,
        "library": 2 * n_molecules + 30,
        "condition": condition,
    }


@pytest.fixture
def network() -> TokenNetwork:
    """A network that is no longer fresh: every weight is random."""
    return random_weights(TokenNetwork(N_GENES, SIZE), 0.3)


def assert_same(one: GeneScores, other: GeneScores) -> None:
    for first, second in zip(one, other, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_sparse_and_dense_cells_have_the_same_scores(network: TokenNetwork) -> None:
    assert_same(network(**inputs()), network(**inputs(layout="dense")))


def test_a_cell_does_not_see_its_neighbours(network: TokenNetwork) -> None:
    together, given = network(**inputs()), inputs(layout="dense")
    for cell in range(len(COUNTS)):
        alone = network(**{name: values[cell : cell + 1] for name, values in given.items()})
        torch.testing.assert_close(alone.log_rates()[0], together.log_rates()[cell], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["state", "n_molecules", "library", "condition"])
def test_each_input_matters_to_every_cell(name: str, network: TokenNetwork) -> None:
    given = inputs(layout="dense")
    changed = {**given, name: given[name] + 3}
    moved = network(**changed).logits - network(**given).logits
    assert moved.abs().amax(dim=1).min() > 1e-4


def test_genes_may_change_places(network: TokenNetwork) -> None:
    before, order = network(**inputs()), torch.randperm(N_GENES)
    with torch.no_grad():
        network.trunk.encoder.weight.copy_(network.trunk.encoder.weight[order])
        for weights in (network.readout.gene_weights, network.readout.unit_weights):
            weights.copy_(weights[:, order])
        network.readout.bias.copy_(network.readout.bias[order])
        network.urn.weight_logits.copy_(network.urn.weight_logits[order])
    after = network(**inputs(COUNTS[:, order]))
    assert_same(after, GeneScores(before.logits[:, order], before.log_concentration, before.urn_weights[order]))


def test_tokens_lead_to_the_scores(network: TokenNetwork) -> None:
    given = inputs()
    tokens, _ = network.tokens(*given.values())
    assert tokens.shape == (6, SIZE.n_tokens, SIZE.token_dim)
    logits = network.readout(tokens)
    torch.testing.assert_close(logits, network(**given).logits)


def test_tokens_of_a_fresh_network_differ_from_each_other() -> None:
    torch.manual_seed(0)
    tokens, _ = TokenNetwork(N_GENES, SIZE).tokens(*inputs().values())
    assert torch.cdist(tokens, tokens)[:, *np.triu_indices(SIZE.n_tokens, 1)].min() > 0.1


@pytest.mark.parametrize("n_layers", [0, 2])
def test_every_parameter_learns_after_the_first_step(n_layers: int) -> None:
    """At the first step closed gates hide what is behind them."""
    torch.manual_seed(0)
    network = TokenNetwork(N_GENES, replace(SIZE, n_layers=n_layers))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    given, missing = inputs(), torch.tensor(COUNTS).float() + 0.1
    for _ in range(2):
        optimizer.zero_grad()
        scores = network(**given)
        rates = scores.log_rates().exp() + scores.urn_weights * given["state"].to_dense()
        (-(missing * (rates / rates.sum(1, keepdim=True)).log()).sum()).backward()
        optimizer.step()
    assert without_gradient(network) == []
