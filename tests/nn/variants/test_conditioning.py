"""Three ways in which conditions reach the tokens, and the embedding of the noise level."""

from dataclasses import replace
from typing import get_args

import networks
import numpy as np
import pytest
import torch
from csr import csr
from networks import normal, random_weights, without_gradient
from torch import Tensor, nn

from scdiffgen.nn import NetworkOptions, NetworkSize, TokenNetwork
from scdiffgen.nn._network import TokenTransformer
from scdiffgen.nn._options import ConditioningKind, NumberKind

DIM, CONDITIONING, N_GENES, N_CELLS, N_CONDITIONS = 8, 6, 10, 5, 3
SIZE = replace(networks.SIZE, n_tokens=4, conditioning_dim=CONDITIONING)
KINDS = get_args(ConditioningKind)
IN_SEQUENCE = [kind for kind in KINDS if kind != "adaln"]
COUNTS = np.random.default_rng(0).poisson(2.0, (N_CELLS, N_GENES))


def of_kind(kind: ConditioningKind) -> NetworkSize:
    return replace(SIZE, options=NetworkOptions(conditioning=kind))


def conditions_of(kind: ConditioningKind, n_conditions: int = N_CONDITIONS) -> Tensor:
    shape = (N_CELLS, CONDITIONING) if kind == "adaln" else (N_CELLS, n_conditions, CONDITIONING)
    return normal(*shape, seed=1)


def scores(network: nn.Module, condition: Tensor) -> Tensor:
    library = torch.tensor(COUNTS.sum(1)).float()
    return network(csr(COUNTS), library, 2 * library, condition).log_rates()


def test_concatenated_conditions_are_tokens_until_the_end() -> None:
    joined = random_weights(TokenTransformer(of_kind("concat")))
    plain = TokenTransformer(SIZE)
    plain.load_state_dict({name: joined.state_dict()[name] for name in plain.state_dict()})
    tokens, level = normal(N_CELLS, 4, DIM), normal(N_CELLS, CONDITIONING)
    sequence = normal(N_CELLS, N_CONDITIONS, CONDITIONING)
    further = sequence @ joined.to_token.weight.T + joined.to_token.bias
    expected = plain(torch.cat([tokens, further], dim=1), level)[:, :4]
    torch.testing.assert_close(joined(tokens, level, sequence), expected)


@pytest.mark.parametrize("kind", IN_SEQUENCE)
def test_the_order_of_a_sequence_of_conditions_does_not_matter(kind: ConditioningKind) -> None:
    network, sequence = random_weights(TokenNetwork(N_GENES, of_kind(kind))), conditions_of(kind)
    torch.testing.assert_close(scores(network, sequence.flip(1)), scores(network, sequence), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", IN_SEQUENCE)
@pytest.mark.parametrize("condition", range(N_CONDITIONS))
def test_each_condition_matters_to_its_own_cell_alone(kind: ConditioningKind, condition: int) -> None:
    network, sequence = random_weights(TokenNetwork(N_GENES, of_kind(kind))), conditions_of(kind)
    changed = sequence.clone()
    changed[2, condition] += 1
    moved = (scores(network, changed) - scores(network, sequence)).abs().amax(1)
    assert moved[2] > 1e-3
    assert moved[[0, 1, 3, 4]].max() < 1e-5


@pytest.mark.parametrize("kind", IN_SEQUENCE)
def test_without_conditions_the_level_is_all_there_is(kind: ConditioningKind) -> None:
    network = random_weights(TokenNetwork(N_GENES, of_kind(kind)))
    assert scores(network, conditions_of(kind, n_conditions=0)).isfinite().all()


def test_concatenating_no_conditions_is_no_conditioning() -> None:
    """The network of another kind that has the same weights, and nothing in its condition."""
    joined = random_weights(TokenNetwork(N_GENES, of_kind("concat")))
    plain = TokenNetwork(N_GENES, SIZE)
    weights = {name: value for name, value in joined.state_dict().items() if "transformer.to_token" not in name}
    first = weights["trunk.join.0.weight"]
    weights["trunk.join.0.weight"] = torch.cat([first, torch.zeros(CONDITIONING, CONDITIONING)], dim=1)
    plain.load_state_dict(weights)
    nothing = conditions_of("concat", n_conditions=0)
    torch.testing.assert_close(scores(joined, nothing), scores(plain, conditions_of("adaln")), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", get_args(NumberKind))
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns_once_the_gates_are_open(kind: ConditioningKind, level: str) -> None:
    torch.manual_seed(0)
    network = TokenNetwork(N_GENES, replace(SIZE, options=NetworkOptions(conditioning=kind, level_embedding=level)))
    condition = conditions_of(kind).requires_grad_()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    target = torch.tensor(COUNTS).float().log1p()
    for _ in range(2):
        optimizer.zero_grad()
        (scores(network, condition) - target).square().sum().backward()
        optimizer.step()
    # the urn is no part of the first term of the rates
    assert without_gradient(network) == ["urn.weight_logits"]
    assert condition.grad is not None and condition.grad.abs().amax(-1).min() > 0


@pytest.mark.parametrize("level", get_args(NumberKind))
def test_the_level_matters_from_the_empty_cell_to_millions_of_molecules(level: str) -> None:
    network = random_weights(TokenNetwork(N_GENES, replace(SIZE, options=NetworkOptions(level_embedding=level))))
    n_molecules = torch.tensor([0.0, 1.0, 30.0, 1e3, 1e6])
    empty, library = torch.zeros(5, N_GENES), torch.full((5,), 1e6)
    found = network(empty, n_molecules, library, torch.zeros(5, CONDITIONING)).logits
    assert found.isfinite().all()
    assert torch.pdist(found).min() > 1e-4
