"""Other positions and attention across cells: against NumPy and torch, and what must not matter to them."""

from dataclasses import replace
from typing import Any

import networks
import numpy as np
import pytest
import torch
from csr import csr
from networks import normal, random_weights, torchs_attention, without_gradient
from torch import Tensor

from scdiffgen.nn import NetworkOptions, ScoreNetwork, TokenNetwork, TokenTrunk
from scdiffgen.nn._network import Conditioning
from scdiffgen.nn.variants._attention_forms import CellAttention, GatedAttention

N_CELLS, N_GENES, N_TOKENS, DIM, HEADS, CONDITIONING = 6, 12, 3, 8, 2, 8
SIZE = replace(networks.SIZE, n_layers=1)
COUNTS = np.random.default_rng(0).poisson(0.8, (N_CELLS, N_GENES))
COUNTS[2] = 0  # an empty cell, as generation starts from
VALUES = normal(N_CELLS, N_GENES, seed=3)
CONDITION = normal(N_CELLS, CONDITIONING, seed=4)
OPTIONS: list[dict[str, Any]] = [
    {"positions": "sinusoidal"},
    {"positions": "none"},
    {"attention": "across"},
    {"nested_tokens": True},
]
EVERY_OPTION = pytest.mark.parametrize("options", OPTIONS, ids=str)


def logits(network: TokenNetwork, counts: np.ndarray = COUNTS, condition: Tensor = CONDITION) -> Tensor:
    n_molecules = torch.tensor(counts.sum(1)).float()
    return network(csr(counts), n_molecules, 2 * n_molecules + 30, condition).logits.detach()


def make(**options: Any) -> TokenNetwork:
    return random_weights(TokenNetwork(N_GENES, replace(SIZE, options=NetworkOptions(**options))))


@EVERY_OPTION
def test_every_option_sees_the_cell_and_learns(options: dict[str, Any]) -> None:
    network = make(**options)
    before = logits(network)
    assert before.shape == COUNTS.shape and torch.isfinite(before).all()
    moved = logits(network, COUNTS[:, ::-1].copy()) - before
    assert moved[[0, 1, 3, 4, 5]].abs().amax(1).min() > 1e-4
    scores = network(csr(COUNTS), torch.ones(N_CELLS), torch.ones(N_CELLS), CONDITION)
    (scores.log_rates().square().sum() + scores.urn_weights.sum()).backward()
    assert without_gradient(network) == []


@EVERY_OPTION
def test_cells_see_each_other_only_with_attention_across_cells(options: dict[str, Any]) -> None:
    network = make(**options)
    together, alone = logits(network)[:1], logits(network, COUNTS[:1], CONDITION[:1])
    assert torch.allclose(together, alone, rtol=1e-4, atol=1e-4) != (options.get("attention") == "across")


@EVERY_OPTION
def test_the_order_of_cells_does_not_matter(options: dict[str, Any]) -> None:
    network, order = make(**options), torch.randperm(N_CELLS, generator=torch.Generator().manual_seed(0))
    shuffled = logits(network, COUNTS[order.numpy()], CONDITION[order])
    torch.testing.assert_close(shuffled, logits(network)[order], rtol=1e-4, atol=1e-4)


def test_values_are_read_as_well() -> None:
    network = random_weights(ScoreNetwork(N_GENES, SIZE, "values"))

    def scores(values: Tensor) -> Tensor:
        tokens, _ = network.tokens(values, torch.zeros(N_CELLS), torch.full((N_CELLS,), 90.0), CONDITION)
        return network.readout(tokens).detach()

    changed = VALUES.clone()
    changed[1, 4] *= -1
    moved = (scores(changed) - scores(VALUES)).abs().amax(1)
    assert moved[1] > 1e-4 and not moved[[0, 2, 3, 4, 5]].any()


def test_attention_to_conditions_is_torchs_behind_a_gate() -> None:
    tokens, sources = normal(N_CELLS, N_TOKENS, DIM, seed=5), normal(N_CELLS, 4, CONDITIONING, seed=6)
    layer = GatedAttention(DIM, HEADS, CONDITIONING)
    torch.testing.assert_close(layer(tokens, sources), tokens)  # a fresh one is the identity
    random_weights(layer)
    torchs = torchs_attention(layer.attention, DIM, HEADS)
    expected = tokens + layer.gate * torchs(layer.norm(tokens), sources, sources)[0]
    torch.testing.assert_close(layer(tokens, sources), expected, rtol=1e-4, atol=1e-5)


def test_attention_across_cells_is_torchs_over_one_token_of_all_cells() -> None:
    tokens, layer = normal(N_CELLS, N_TOKENS, DIM, seed=5), CellAttention(DIM, HEADS)
    torch.testing.assert_close(layer(tokens), tokens)  # a fresh one is the identity
    random_weights(layer)
    torchs = torchs_attention(layer.attention, DIM, HEADS)
    for token in range(N_TOKENS):
        cells = layer.norm(tokens[:, token])[None]
        expected = tokens[:, token] + layer.gate * torchs(cells, cells, cells)[0][0]
        torch.testing.assert_close(layer(tokens)[:, token], expected, rtol=1e-4, atol=1e-5)


def test_nested_tokens_vary_in_number_in_training_alone() -> None:
    torch.manual_seed(0)
    options = NetworkOptions(nested_tokens=True)
    trunk = TokenTrunk(10, replace(SIZE, n_tokens=4, options=options))
    arguments = torch.zeros(1, SIZE.n_hidden), Conditioning(torch.zeros(1, 8))
    numbers = np.bincount([trunk(*arguments).shape[1] for _ in range(400)], minlength=5)
    expected = 400 * np.array([0, 1 / 8, 1 / 8, 1 / 8, 5 / 8])
    assert np.abs(numbers - expected).max() < 4 * np.sqrt(400 / 4)
    assert {trunk.eval()(*arguments).shape[1] for _ in range(20)} == {4}


def test_sinusoidal_positions_are_those_of_vaswani_and_none_are_nothing() -> None:
    found = make(positions="sinusoidal").trunk.positions
    place, wave = np.arange(N_TOKENS)[:, None], np.arange(DIM // 2)
    angles = place / 10_000 ** (wave / (DIM // 2 - 1))
    np.testing.assert_allclose(found.sort(1).values, np.sort(np.hstack([np.sin(angles), np.cos(angles)])), atol=1e-4)
    assert not make(positions="none").trunk.positions.any()
