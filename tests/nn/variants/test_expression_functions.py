"""Encoders of embedded expression: against the definition, and what sums of logarithms cannot do."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from csr import csr
from networks import normal, random_weights
from torch import Tensor

from scdiffgen.nn import CountEncoder, NetworkOptions, NetworkSize, TokenNetwork
from scdiffgen.nn._options import NumberKind

N_GENES = 12
SIZE = NetworkSize(n_tokens=3, token_dim=8, n_layers=1, n_heads=2, n_hidden=16, conditioning_dim=8, dropout=0)
COUNTS = np.random.default_rng(0).poisson(1.5, (6, N_GENES)) ** 2
COUNTS[2] = 0  # an empty cell, as generation starts from
CONDITION = normal(6, 8, seed=4)
EVERY_KIND = pytest.mark.parametrize("kind", get_args(NumberKind))


def sized(kind: NumberKind | None, **sizes: int) -> NetworkSize:
    return replace(SIZE, options=NetworkOptions(expression_embedding=kind), **sizes)


def by_definition(encoder: CountEncoder, expression: Tensor) -> Tensor:
    """Sum over functions ``j`` and genes ``g`` of ``B_j * a_j(x_g) * W_g``, with ``a(0) = 0``."""
    functions = encoder.functions
    learned = functions.embed(expression) @ functions.to_functions.weight.T + functions.to_functions.bias
    learned[..., 0] += expression
    learned[expression == 0] = 0
    return torch.einsum("cgj,gs,js->cs", learned, encoder.weight, encoder.mix)


@EVERY_KIND
@pytest.mark.parametrize("layout", ["sparse", "stored zeros", "dense"])
def test_sums_and_their_gradients_are_those_of_the_definition(kind: NumberKind, layout: str) -> None:
    encoder = CountEncoder(N_GENES, sized(kind))
    random_weights(encoder)
    counts = csr(COUNTS, stored_zeros=layout == "stored zeros")
    weights = [weight for name, weight in encoder.named_parameters() if name.startswith(("weight", "functions", "mix"))]
    found = encoder.read(counts.to_dense() if layout == "dense" else counts)
    expected = by_definition(encoder, torch.tensor(np.log1p(COUNTS)).float())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    gradients = [torch.autograd.grad(sums.square().sum(), weights) for sums in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-2)


@EVERY_KIND
def test_values_are_embedded_as_they_are(kind: NumberKind) -> None:
    encoder = CountEncoder(N_GENES, sized(kind), "values")
    random_weights(encoder)
    values = normal(6, N_GENES, seed=3)
    torch.testing.assert_close(encoder.read(values), by_definition(encoder, values), rtol=1e-4, atol=1e-4)


@EVERY_KIND
def test_training_starts_from_sums_of_logarithms(kind: NumberKind) -> None:
    encoder, plain = CountEncoder(N_GENES, sized(kind)), CountEncoder(N_GENES, sized(None))
    plain.load_state_dict(encoder.state_dict(), strict=False)
    torch.testing.assert_close(encoder.read(csr(COUNTS)), plain.read(csr(COUNTS)), rtol=1e-5, atol=1e-5)


@EVERY_KIND
def test_genes_without_molecules_and_empty_cells_say_nothing(kind: NumberKind) -> None:
    encoder = CountEncoder(N_GENES, sized(kind))
    random_weights(encoder)
    with torch.no_grad():
        empty = [encoder.read(csr(COUNTS))[2], encoder.read(csr(COUNTS[[2]]))[0]]
        empty += [encoder.read(csr(COUNTS[[2]], stored_zeros=True))[0], encoder.read(csr(COUNTS[[2]]).to_dense())[0]]
        assert not torch.stack(empty).any()
        cell = COUNTS[:1] * (np.arange(N_GENES) % 2)
        before = encoder.read(csr(cell, stored_zeros=True))
        encoder.weight[torch.tensor(cell[0] == 0)] = 1e6
        assert torch.equal(encoder.read(csr(cell, stored_zeros=True)), before)


@EVERY_KIND
def test_a_fresh_network_trains_all_weights_of_its_encoder(kind: NumberKind) -> None:
    torch.manual_seed(0)
    network = TokenNetwork(N_GENES, sized(kind))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    counts, n_molecules = csr(COUNTS), torch.tensor(COUNTS.sum(1)).float()
    before = {name: weight.detach().clone() for name, weight in network.trunk.encoder.named_parameters()}
    losses = []
    for _ in range(8):
        scores = network(counts, n_molecules, n_molecules + 9, CONDITION).logits.log_softmax(1)
        losses.append(-(scores * counts.to_dense()).sum() / n_molecules.sum())
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    stuck = [name for name, weight in network.trunk.encoder.named_parameters() if torch.equal(weight, before[name])]
    assert stuck == []
