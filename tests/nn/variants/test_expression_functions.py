"""Encoders of embedded expression: against the definition, torch's attention, and what sums of logarithms cannot do."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from csr import csr
from networks import normal, random_weights
from torch import Tensor

from scdiffgen.nn import (
    CountEncoder,
    GeneAttentionEncoder,
    LinearEncoder,
    NetworkOptions,
    NetworkSize,
    ScoreNetwork,
    TokenNetwork,
)
from scdiffgen.nn._attention import rotate
from scdiffgen.nn._options import NumberKind

N_GENES = 12
SIZE = NetworkSize(n_tokens=3, token_dim=8, n_layers=1, n_heads=2, n_hidden=16, conditioning_dim=8, dropout=0)
COUNTS = np.random.default_rng(0).poisson(1.5, (6, N_GENES)) ** 2
COUNTS[2] = 0  # an empty cell, as generation starts from
CONDITION = normal(6, 8, seed=4)
EVERY_KIND = pytest.mark.parametrize("kind", get_args(NumberKind))
BOTH_ENCODERS = pytest.mark.parametrize("form", [CountEncoder, LinearEncoder])


def sized(kind: NumberKind | None, **sizes: int) -> NetworkSize:
    return replace(SIZE, options=NetworkOptions(expression_embedding=kind), **sizes)


def by_definition(encoder: CountEncoder | LinearEncoder, expression: Tensor) -> Tensor:
    """Sum over functions ``j`` and genes ``g`` of ``B_j * a_j(x_g) * W_g``, with ``a(0) = 0``."""
    functions = encoder.functions
    learned = functions.embed(expression) @ functions.to_functions.weight.T + functions.to_functions.bias
    learned[..., 0] += expression
    learned[expression == 0] = 0
    return torch.einsum("cgj,gs,js->cs", learned, encoder.weight, encoder.mix)


@EVERY_KIND
@BOTH_ENCODERS
@pytest.mark.parametrize("layout", ["sparse", "stored zeros", "dense"])
def test_sums_and_their_gradients_are_those_of_the_definition(kind: NumberKind, form: type, layout: str) -> None:
    encoder = form(N_GENES, sized(kind))
    random_weights(encoder)
    counts = csr(COUNTS, stored_zeros=layout == "stored zeros")
    weights = [weight for name, weight in encoder.named_parameters() if name.startswith(("weight", "functions", "mix"))]
    found = encoder.read(counts.to_dense() if layout == "dense" else counts)
    expected = by_definition(encoder, torch.tensor(np.log1p(COUNTS)).float())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    gradients = [torch.autograd.grad(sums.square().sum(), weights) for sums in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-2)


@EVERY_KIND
@BOTH_ENCODERS
def test_values_are_embedded_as_they_are(kind: NumberKind, form: type) -> None:
    encoder = form(N_GENES, sized(kind), "values")
    random_weights(encoder)
    values = normal(6, N_GENES, seed=3)
    torch.testing.assert_close(encoder.read(values), by_definition(encoder, values), rtol=1e-4, atol=1e-4)


@EVERY_KIND
@BOTH_ENCODERS
def test_training_starts_from_sums_of_logarithms(kind: NumberKind, form: type) -> None:
    encoder, plain = form(N_GENES, sized(kind)), form(N_GENES, sized(None))
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
@pytest.mark.parametrize("encoder", ["mlp", "linear", "cross_attention"])
def test_a_fresh_network_trains_all_weights_of_its_encoder(kind: NumberKind, encoder: str) -> None:
    torch.manual_seed(0)
    options = NetworkOptions(encoder=encoder, expression_embedding=kind)
    network = TokenNetwork(N_GENES, replace(SIZE, options=options))
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


# Attention to the genes.


def test_rotary_keys_rotate_with_the_counts_in_torchs_attention() -> None:
    encoder = GeneAttentionEncoder(N_GENES, sized("rotary"))
    random_weights(encoder)
    seen, to_keys = encoder.read(csr(COUNTS)).detach(), encoder.attention.key_value
    for cell, counts in enumerate(COUNTS):
        genes = np.flatnonzero(counts)
        sources = torch.cat([encoder.nothing[None], encoder.genes[genes]])
        keys, values = to_keys(sources).detach().unflatten(1, (2, SIZE.n_heads, -1)).permute(1, 2, 0, 3)
        angles = torch.tensor(np.log1p([0, *counts[genes]])).float()[:, None] * encoder.angles.frequencies
        queries = encoder.queries.unflatten(1, (SIZE.n_heads, -1)).transpose(0, 1)
        weights = (queries @ rotate(keys, angles).transpose(1, 2) / keys.shape[2] ** 0.5).softmax(2)
        torch.testing.assert_close(seen[cell], (weights @ values).transpose(0, 1).flatten(1), rtol=1e-4, atol=1e-5)


@EVERY_KIND
@pytest.mark.parametrize("input_kind", ["counts", "values"])
def test_attention_sees_the_numbers_of_the_genes(kind: NumberKind, input_kind: str) -> None:
    options = NetworkOptions(encoder="cross_attention", expression_embedding=kind)
    network = ScoreNetwork(N_GENES, replace(SIZE, options=options), input_kind)
    random_weights(network)
    more = np.where(COUNTS > 0, COUNTS + 2, 0)
    reads = [network.trunk.encoder.read(csr(x).to_dense()).detach() for x in (COUNTS, more)]
    moved = (reads[1] - reads[0]).abs().amax((1, 2))
    assert moved[[0, 1, 3, 4, 5]].min() > 1e-3 and moved[2] < 1e-6


def test_sinusoidal_is_what_attention_does_without_a_choice() -> None:
    encoders = [GeneAttentionEncoder(N_GENES, sized(kind)) for kind in (None, "sinusoidal")]
    encoders[1].load_state_dict(encoders[0].state_dict())
    torch.testing.assert_close(encoders[1].read(csr(COUNTS)), encoders[0].read(csr(COUNTS)))


def test_heads_too_short_to_rotate_are_named() -> None:
    with pytest.raises(ValueError, match="A head of 0 planes .* by 1 numbers. Pass a larger `token_dim`"):
        GeneAttentionEncoder(N_GENES, sized("rotary", token_dim=2))
