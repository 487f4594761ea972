"""Queries and keys that numbers rotate: against complex numbers, and what must and must not be seen of the numbers."""

from dataclasses import replace
from typing import Any

import networks
import numpy as np
import pytest
import torch
from csr import csr
from networks import normal, random_weights
from torch import Tensor

from scdiffgen.conditions import Condition, ConditionSpec, NumberTransform
from scdiffgen.nn import Attention, ConditionEmbedder, NetworkOptions, TokenNetwork
from scdiffgen.nn.variants._attention_forms import PlaneAngles

N_CELLS, N_GENES, DIM, HEADS, CONDITIONING = 5, 10, 24, 2, 6
N_PLANES = DIM // HEADS // 2
SIZE = replace(networks.SIZE, token_dim=DIM, n_layers=1, conditioning_dim=CONDITIONING)
COUNTS = np.random.default_rng(0).poisson(2.0, (N_CELLS, N_GENES))
CONDITION = normal(N_CELLS, 3, CONDITIONING, seed=1)
LIBRARY = torch.tensor(COUNTS.sum(1)).float()
NUMBERS = torch.tensor([0.0, 1.0, 0.0])  # of three conditions the second has one
FORMS: dict[str, dict[str, Any]] = {
    "cross_attention": {"conditioning": "cross_attention"},
    "concat": {"conditioning": "concat"},
}
EVERY_FORM = pytest.mark.parametrize("form", FORMS)


def make(form: str, attention_numbers: str = "rotated", **size: Any) -> TokenNetwork:
    options = NetworkOptions(attention_numbers=attention_numbers, **FORMS[form])
    network = TokenNetwork(N_GENES, replace(SIZE, options=options, **size))
    random_weights(network)
    return network


def logits(network: TokenNetwork, numbers: Tensor, level: Tensor = LIBRARY, **other: Tensor) -> Tensor:
    library = other.get("library", 2 * LIBRARY)
    return network(csr(COUNTS), level, library, CONDITION, numbers.expand(N_CELLS, 3)).logits


@pytest.mark.parametrize("is_self", [True, False], ids=["self", "cross"])
def test_rotated_attention_is_that_of_complex_numbers(is_self: bool) -> None:
    """``Re(q conj(k) exp(i (a - b)))`` in each plane, summed; values are as they were."""
    attention = Attention(DIM, HEADS, None if is_self else 7)
    tokens, angles = normal(N_CELLS, 4, DIM), 3 * normal(N_CELLS, 4 if is_self else 6, N_PLANES, seed=1)
    sources = None if is_self else normal(N_CELLS, 6, 7, seed=2)
    query, key, value = (each.detach().numpy() for each in attention._heads(tokens, sources, None))
    query, key = (np.ascontiguousarray(each, dtype=np.float64).view(np.complex128) for each in (query, key))
    turns = np.exp(1j * angles.double().numpy())[:, None]
    query = query * turns if is_self else query
    scores = np.einsum("chqp,chkp->chqk", query, (key * turns).conj()).real / np.sqrt(DIM / HEADS)
    shares = np.exp(scores) / np.exp(scores).sum(3, keepdims=True)
    attended = torch.tensor((shares @ value).transpose(0, 2, 1, 3).reshape(N_CELLS, 4, DIM)).float()
    found = attention(tokens, sources, angles=angles)
    torch.testing.assert_close(found, attention.out(attended), rtol=1e-4, atol=1e-5)


def test_planes_are_dealt_out_evenly_with_the_periods_of_each_number() -> None:
    angles = PlaneAngles(7, [0.5, 1.0])
    alone = [angles(torch.tensor([2.0, 0.0])), angles(torch.tensor([0.0, 2.0]))]
    expected = [4 * np.pi / np.geomspace(50, least, n) for n, least in ((4, 0.5), (3, 1.0))]
    torch.testing.assert_close(alone[0], torch.tensor([*expected[0], 0, 0, 0]).float())
    torch.testing.assert_close(alone[1], torch.tensor([0, 0, 0, 0, *expected[1]]).float())


def test_attention_sees_differences_of_angles_only() -> None:
    """A shift of all angles of a cell is not seen, one of a single vector is."""
    attention, tokens = Attention(DIM, HEADS).double(), normal(N_CELLS, 3, DIM).double()
    angles = normal(N_CELLS, 3, N_PLANES, seed=1).double()
    before = attention(tokens, angles=angles)
    torch.testing.assert_close(attention(tokens, angles=angles + normal(N_CELLS, 1, N_PLANES, seed=2)), before)
    one = torch.eye(3)[0, :, None]
    assert (attention(tokens, angles=angles + one) - before).abs().amax((1, 2)).min() > 1e-4


@EVERY_FORM
def test_without_angles_all_is_as_if_embedded(form: str) -> None:
    rotated, embedded, nothing = make(form), make(form, "embedded"), torch.zeros(N_CELLS)
    assert rotated.state_dict().keys() == embedded.state_dict().keys()
    found = logits(rotated, 0 * NUMBERS, nothing, library=nothing)
    assert torch.equal(found, logits(embedded, 0 * NUMBERS, nothing, library=nothing))
    assert torch.equal(logits(embedded, NUMBERS), logits(embedded, 0 * NUMBERS))


@EVERY_FORM
def test_a_number_is_seen_and_its_gradient_is_finite(form: str) -> None:
    network = make(form)
    numbers = (torch.arange(N_CELLS)[:, None] * NUMBERS / 3).requires_grad_()
    found = logits(network, numbers)
    assert (found - logits(network, 0 * NUMBERS)).abs().amax(1)[1:].min() > 1e-4
    (found[:, 0].sum()).backward()
    assert numbers.grad is not None and numbers.grad.isfinite().all() and numbers.grad[:, 1].all()
    assert all(weight.grad.isfinite().all() for weight in network.parameters() if weight.grad is not None)


@EVERY_FORM
def test_a_cell_sees_no_number_of_another(form: str) -> None:
    network, numbers = make(form), NUMBERS.repeat(N_CELLS, 1)
    numbers[2, 1] = 3.0
    moved = (logits(network, numbers) - logits(network, NUMBERS)).abs().amax(1)
    assert moved[2] > 1e-3 and moved[[0, 1, 3, 4]].max() < 1e-5


@EVERY_FORM
def test_several_levels(form: str) -> None:
    network = make(form, n_levels=2)
    levels = torch.stack([LIBRARY, LIBRARY + 3], dim=1)
    assert logits(network, NUMBERS, levels, library=2 * levels).isfinite().all()


def test_numbers_of_conditions() -> None:
    log1p, standardise = NumberTransform("log1p", scale=2.0), NumberTransform("standardise", mean=10.0, scale=5.0)
    specs = [
        ConditionSpec("type", "category", n_categories=3),
        ConditionSpec("dose", "set", n_categories=3, n_slots=2, has_values=True, transform=log1p),
        ConditionSpec("age", "number", has_values=True, transform=standardise),
    ]
    embedder = ConditionEmbedder(specs, CONDITIONING, NetworkOptions())
    nan, there = float("nan"), torch.ones(5, dtype=torch.bool)
    doses = Condition(
        ids=torch.zeros(5, 2, dtype=torch.long),
        values=torch.tensor([[2.0, 6.0], [2.0, 9.0], [nan, 6.0], [nan, nan], [2.0, 2.0]]),
        mask=torch.tensor([[True, True], [True, False], [True, True], [True, True], [True, True]]),
        given=there & (torch.arange(5) < 4),
    )
    age = Condition(
        torch.zeros(5, 1).long(), torch.tensor([[10.0], [20.0], [0.0], [nan], [3.0]]), there[:, None], there
    )
    found = embedder.numbers({"dose": doses, "age": age}, 5)
    mean_dose = [np.log([2, 4]).mean(), np.log(2), np.log(4), 0, 0]
    np.testing.assert_allclose(found, np.column_stack([np.zeros(5), mean_dose, [0, 2, -2, 0, -1.4]]), rtol=1e-5)
    assert torch.equal(embedder.numbers({}, 4), torch.zeros(4, 3))


def test_too_few_planes_are_named() -> None:
    with pytest.raises(ValueError, match="A head of 2 planes .* by 4 numbers. Pass a larger `token_dim`"):
        make("concat", n_heads=6, n_levels=2)
