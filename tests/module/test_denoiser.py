"""What each condition may and may not do to the prediction, and that everything learns."""

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from csr import csr
from parts import category, chosen, unconditional
from torch import Tensor

from scdiffgen.conditions import Condition, Conditions
from scdiffgen.diffusion import Thinned, UrnPrediction, molecule_loss, thin
from scdiffgen.module import Denoiser, ThinningModule
from scdiffgen.nn._options import ConditioningKind

KINDS = get_args(ConditioningKind)
Make = Callable[..., ThinningModule]
COUNTS = csr(np.random.default_rng(0).poisson(1.5, (4, 12)))


def thinned() -> Thinned:
    return thin(COUNTS, torch.full((4,), 0.5), torch.Generator().manual_seed(0))


def predicted(denoiser: Denoiser, conditions: Conditions, **options: Any) -> UrnPrediction:
    corrupted = thinned()
    return denoiser.bind(conditions, **options)(corrupted.state, corrupted.library)


def log_odds(module: ThinningModule, conditions: Conditions) -> Tensor:
    """Log-rates against those of the first gene, the molecules there left aside."""
    with torch.no_grad():
        log_rates = predicted(module.denoiser, conditions).log_rates
    return log_rates - log_rates[:, :1]


@pytest.mark.parametrize("name", ["cell_type", "place", "age", "drug"])
@pytest.mark.parametrize("intervention", ["effect", "embedding"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_condition_matters(
    name: str, intervention: str, kind: ConditioningKind, make_module: Make, conditions: Conditions
) -> None:
    module = make_module(intervention=intervention, conditioning=kind)
    missing = conditions.replace({name: conditions[name]._replace(given=torch.zeros(4, dtype=torch.bool))})
    moved = log_odds(module, missing) - log_odds(module, conditions)
    assert moved.abs().amax(dim=1).min() > 1e-4


@pytest.mark.parametrize("intervention", ["effect", "embedding"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_condition_left_out_is_a_missing_one(
    intervention: str, kind: ConditioningKind, make_module: Make, conditions: Conditions
) -> None:
    module = make_module(intervention=intervention, conditioning=kind)
    for name in conditions:
        missing = conditions.replace({name: conditions[name]._replace(given=torch.zeros(4, dtype=torch.bool))})
        left_out = conditions.without([name])
        torch.testing.assert_close(log_odds(module, left_out), log_odds(module, missing))


@pytest.mark.parametrize("kind", KINDS)
def test_the_effect_of_an_intervention_is_the_same_whatever_the_cell_is_called(
    kind: ConditioningKind, make_module: Make, conditions: Conditions
) -> None:
    module = make_module(intervention="effect", conditioning=kind)

    def effect(called: Conditions) -> Tensor:
        untreated = called.replace({"drug": chosen([[]] * 4)})
        return log_odds(module, called) - log_odds(module, untreated)

    other = conditions.replace({"cell_type": category([2, 0, 0, 2]), "place": chosen([[1], [1], [0, 2], [0, 3]])})
    torch.testing.assert_close(effect(other), effect(conditions), rtol=1e-3, atol=1e-5)
    assert effect(conditions)[[0, 2, 3]].abs().amax(dim=1).min() > 1e-3
    assert not effect(conditions)[1].any()  # the control


def test_embedded_interventions_are_not_blind(make_module: Make, conditions: Conditions) -> None:
    module = make_module(intervention="embedding")
    untreated, other = {"drug": chosen([[]] * 4)}, {"cell_type": category([2, 0, 0, 2])}
    effect = log_odds(module, conditions) - log_odds(module, conditions.replace(untreated))
    renamed = log_odds(module, conditions.replace(other)) - log_odds(module, conditions.replace({**other, **untreated}))
    assert (renamed - effect).abs().max() > 1e-3


def test_the_scale_of_an_effect_multiplies_its_scores(make_module: Make, conditions: Conditions) -> None:
    denoiser = make_module(intervention="effect").denoiser

    def odds(scale: float) -> Tensor:
        log_rates = predicted(denoiser, conditions, effect_scale=scale).log_rates
        return (log_rates - log_rates[:, :1]).detach()

    torch.testing.assert_close(odds(2.5) - odds(0.0), 2.5 * (odds(1.0) - odds(0.0)), rtol=1e-3, atol=1e-5)


def test_effects_learn_from_the_cells_that_train_them_alone(make_module: Make, conditions: Conditions) -> None:
    denoiser = make_module(intervention="effect").denoiser

    def gradients(chosen: Tensor, trains_effects: Tensor | None) -> dict[str, Tensor]:
        denoiser.zero_grad()
        losses = molecule_loss(predicted(denoiser, conditions, trains_effects=trains_effects), thinned())
        losses[chosen].sum().backward()
        return {n: w.grad.clone() for n, w in denoiser.named_parameters() if w.grad is not None}

    trains_effects = torch.tensor([True, False, False, True])
    of_all, masked = (
        gradients(torch.ones(4, dtype=torch.bool), None),
        gradients(torch.ones(4, dtype=torch.bool), trains_effects),
    )
    of_trainers = gradients(trains_effects, None)
    for name, gradient in masked.items():
        expected = of_trainers if name.startswith("effects.") else of_all
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("intervention", ["effect", "embedding"])
@pytest.mark.parametrize("kind", KINDS)
def test_cells_do_not_see_each_other(
    intervention: str, kind: ConditioningKind, make_module: Make, conditions: Conditions
) -> None:
    module = make_module(intervention=intervention, conditioning=kind)
    together = log_odds(module, conditions)
    shuffled = conditions.replace(
        {name: Condition(*(a.roll(1, 0) for a in parts)) for name, parts in conditions.items()}
    )
    for name, parts in shuffled.items():  # the first cell keeps its own
        for array, own in zip(parts, conditions[name], strict=True):
            array[0] = own[0]
    torch.testing.assert_close(log_odds(module, shuffled)[0], together[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_deep", [False, True])
@pytest.mark.parametrize("intervention", ["effect", "embedding"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns_within_three_steps(
    intervention: str, kind: ConditioningKind, is_deep: bool, make_module: Make, conditions: Conditions
) -> None:
    denoiser = make_module(intervention=intervention, conditioning=kind, fresh=True).denoiser
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


def _loss(denoiser: Denoiser, conditions: Conditions) -> Tensor:
    return molecule_loss(predicted(denoiser, conditions), thinned()).sum()


def test_the_base_starts_from_cells_without_an_intervention(make_module: Make, conditions: Conditions) -> None:
    drug = conditions["drug"]
    treated = drug.given & drug.mask.any(1)
    assert treated.any() and not treated.all()
    all_treated = drug._replace(
        values=torch.ones_like(drug.values), mask=torch.ones_like(drug.mask), given=torch.ones(4, dtype=torch.bool)
    )
    module, dense = make_module(), COUNTS.to_dense().numpy()
    for given, cells in [
        (conditions, dense[~treated.numpy()]),
        (Conditions({"drug": drug._replace(values=torch.zeros_like(drug.values))}, 4), dense),  # dose 0
        (unconditional(4), dense),
        (Conditions({"drug": all_treated}, 4), dense),
    ]:
        module.initialise([(COUNTS, given)])
        shares = module.denoiser.network.readout.bias.detach().exp().numpy()
        np.testing.assert_allclose(shares, (cells.sum(0) + 0.5) / (cells.sum(0) + 0.5).sum(), rtol=1e-5)
