"""What each condition may and may not do to the prediction, and that everything learns."""

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
import torch
from csr import csr
from parts import category, chosen
from torch import Tensor

from scdiffgen.conditions import Condition, Conditions
from scdiffgen.diffusion import Thinned, UrnPrediction, thin
from scdiffgen.module import DiffusionModule, UrnDenoiser
from scdiffgen.nn._options import ConditioningKind

KINDS = get_args(ConditioningKind)
Make = Callable[..., DiffusionModule]
COUNTS = csr(np.random.default_rng(0).poisson(1.5, (4, 12)))


def thinned() -> Thinned:
    return thin(COUNTS, torch.full((4,), 0.5), torch.Generator().manual_seed(0))


def predicted(denoiser: UrnDenoiser, conditions: Conditions) -> UrnPrediction:
    corrupted = thinned()
    return denoiser.bind(conditions)(corrupted.state, corrupted.library)


def log_odds(module: DiffusionModule, conditions: Conditions) -> Tensor:
    """Log-rates against those of the first gene, the molecules there left aside."""
    with torch.no_grad():
        log_rates = predicted(module.denoiser, conditions).log_rates
    return log_rates - log_rates[:, :1]


@pytest.mark.parametrize("name", ["cell_type", "place", "age", "drug"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_condition_matters(name: str, kind: ConditioningKind, make_module: Make, conditions: Conditions) -> None:
    module = make_module(conditioning=kind)
    missing = conditions.replace({name: conditions[name]._replace(given=torch.zeros(4, dtype=torch.bool))})
    moved = log_odds(module, missing) - log_odds(module, conditions)
    assert moved.abs().amax(dim=1).min() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_condition_left_out_is_a_missing_one(
    kind: ConditioningKind, make_module: Make, conditions: Conditions
) -> None:
    module = make_module(conditioning=kind)
    for name in conditions:
        missing = conditions.replace({name: conditions[name]._replace(given=torch.zeros(4, dtype=torch.bool))})
        left_out = conditions.without([name])
        torch.testing.assert_close(log_odds(module, left_out), log_odds(module, missing))


def test_a_response_depends_on_the_context(make_module: Make, conditions: Conditions) -> None:
    module = make_module()
    untreated, other = {"drug": chosen([[]] * 4)}, {"cell_type": category([2, 0, 0, 2])}
    effect = log_odds(module, conditions) - log_odds(module, conditions.replace(untreated))
    renamed = log_odds(module, conditions.replace(other)) - log_odds(module, conditions.replace({**other, **untreated}))
    assert (renamed - effect).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_cells_do_not_see_each_other(kind: ConditioningKind, make_module: Make, conditions: Conditions) -> None:
    module = make_module(conditioning=kind)
    together = log_odds(module, conditions)
    shuffled = conditions.replace(
        {name: Condition(*(a.roll(1, 0) for a in parts)) for name, parts in conditions.items()}
    )
    for name, parts in shuffled.items():  # the first cell keeps its own
        for array, own in zip(parts, conditions[name], strict=True):
            array[0] = own[0]
    torch.testing.assert_close(log_odds(module, shuffled)[0], together[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_deep", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns_within_three_steps(
    kind: ConditioningKind, is_deep: bool, make_module: Make, conditions: Conditions
) -> None:
    denoiser = make_module(conditioning=kind, fresh=True).denoiser
    denoiser.limit.limit(torch.tensor([is_deep]))
    kept = torch.tensor([[False, True, True, True], [True] * 4, [True, False, True, True], [True, True, False, True]])
    fewer = conditions.replace(
        {n: p._replace(given=p.given & k) for (n, p), k in zip(conditions.items(), kept, strict=True)}
    )
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        (_loss(denoiser, conditions) + _loss(denoiser, fewer)).backward()
        optimizer.step()
    weights = {name: weight for name, weight in denoiser.named_parameters() if weight.numel() and weight.requires_grad}
    dead = [name for name, weight in weights.items() if weight.grad is None or not weight.grad.any()]
    broken = [name for name, weight in weights.items() if name not in dead and not weight.grad.isfinite().all()]
    assert (dead, broken) == ([], [])
    assert ("limit.log_limits" in weights) == is_deep


def _loss(denoiser: UrnDenoiser, conditions: Conditions) -> Tensor:
    return predicted(denoiser, conditions).loss(thinned()).sum()
