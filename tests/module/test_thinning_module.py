"""The method against multinomial distributions, which it is when tokens say nothing and there is no urn."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
import torch
from csr import csr
from networks import seeded
from parts import category, unconditional
from scipy import stats
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import MoleculePredictor
from scdiffgen.module import DiffusionModule, Guidance, _diffusion_module

Make = Callable[..., DiffusionModule]
SHARES = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
UNIFORM = np.full(5, 0.2)


def test_the_loss_of_a_uniform_prediction_is_the_log_of_the_number_of_genes(make_multinomial: Make) -> None:
    module, counts = make_multinomial(UNIFORM), csr(np.random.default_rng(0).poisson(30_000, (50, 5)))
    nothing = unconditional(50)
    assert module.loss(counts, nothing).n_obs_minibatch == 50
    np.testing.assert_allclose(module.loss(counts, nothing).loss.detach(), np.log(5), rtol=1e-5)
    np.testing.assert_allclose(module.validation_loss(counts, nothing, seeded()).loss, np.log(5), rtol=1e-5)


def test_each_draw_of_the_bound_is_exact_for_a_uniform_multinomial(make_multinomial: Make) -> None:
    cells = np.array([[3, 0, 1, 9, 2], [1, 0, 0, 0, 0], [400, 300, 2_000, 150, 7]])
    exact = -stats.multinomial.logpmf(cells, cells.sum(1), UNIFORM)
    for seed in range(5):
        bound = make_multinomial(UNIFORM).nll_bound(csr(cells), unconditional(3), seeded(seed))
        np.testing.assert_allclose(bound, exact, rtol=1e-5, atol=1e-5)


def test_the_bound_is_unbiased_for_any_multinomial(make_multinomial: Make) -> None:
    cell, n_draws = np.array([3, 0, 1, 2, 1]), 20_000
    draws = (
        make_multinomial(SHARES).nll_bound(csr(np.tile(cell, (n_draws, 1))), unconditional(n_draws), seeded()).numpy()
    )
    exact = -stats.multinomial.logpmf(cell, cell.sum(), SHARES)
    assert abs(draws.mean() - exact) < 4 * draws.std() / np.sqrt(n_draws)


@pytest.mark.parametrize("n_steps", [1, 8])
def test_cells_are_drawn_from_the_multinomial(n_steps: int, make_multinomial: Make) -> None:
    library = torch.full((400,), 50.0)
    cells = make_multinomial(SHARES).generate(unconditional(400), library, n_steps=n_steps, generator=seeded()).numpy()
    np.testing.assert_array_equal(cells.sum(1), 50)
    assert stats.chisquare(cells.sum(0), cells.sum() * SHARES).pvalue > 1e-3
    variance = 50 * SHARES[0] * (1 - SHARES[0])
    assert 0.75 < cells[:, 0].var() / variance < 1.3  # s.e. 0.07


def test_drawn_cells_are_matched_to_the_means_of_the_training_cells(make_multinomial: Make) -> None:
    """Those that are drawn are off by up to a quarter."""
    rng, n_cells = np.random.default_rng(0), 4000
    truth = rng.dirichlet(np.full(40, 5.0))
    module = make_multinomial(truth * np.exp(rng.uniform(-0.25, 0.25, 40)))
    cells, library = csr(rng.multinomial(20, truth, n_cells)), torch.full((n_cells,), 20.0)

    def distance() -> float:
        drawn = module.generate(unconditional(n_cells), library, n_steps=4, generator=seeded())
        np.testing.assert_array_equal(drawn.sum(1), library)
        return float(np.abs(np.log(drawn.sum(0).numpy() / (20 * n_cells * truth))).mean())

    before = distance()
    module.match_genes([(cells, unconditional(n_cells))], n_drawn=4_000)
    assert distance() < 0.5 * before


def test_deep_cells_are_matched_on_few_molecules(make_multinomial: Make) -> None:
    """Cells of a hundred thousand molecules are compared at five thousand, where equal scores are smaller changes."""
    rng, n_cells, n_genes, depth = np.random.default_rng(0), 200, 1_000, 100_000
    truth = rng.dirichlet(np.full(n_genes, 5.0))
    off = rng.uniform(-0.25, 0.25, n_genes)
    cells, given = csr(rng.multinomial(depth, truth, n_cells)), unconditional(n_cells)
    left = []
    for most in (5_000, depth):
        module = make_multinomial(truth * np.exp(off))
        with (
            patch.object(_diffusion_module, "MOST_MOLECULES", most),
            patch.object(module.path, "reverse", wraps=module.path.reverse) as drawn,
        ):
            module.match_genes([(cells, given)], n_drawn=800)
        assert 0.9 * most < drawn.call_args.args[2].mean() < 1.1 * most
        matched = module.generate(given, torch.full((n_cells,), float(depth)), n_steps=4, generator=seeded())
        left.append(np.log(matched.mean(0).numpy() / (depth * truth)))
    assert np.polyfit(off, left[0], 1)[0] < 0.8 and np.abs(left[1]).mean() < 0.02
    assert np.corrcoef(off, left[0] - off)[0, 1] < -0.9


def test_expected_expression_is_the_prediction_for_the_whole_cell(make_multinomial: Make) -> None:
    expression = make_multinomial(SHARES).expression(csr([[3, 0, 1, 2, 1], [0, 0, 0, 0, 1]]), unconditional(2))
    np.testing.assert_allclose(expression, np.tile(SHARES, (2, 1)), rtol=1e-4)


def test_validation_is_repeatable_and_withholds_nothing(make_module: Make, conditions: Conditions) -> None:
    module, counts = make_module(condition_dropout=1.0), csr(np.random.default_rng(0).poisson(5, (4, 12)))
    state = torch.get_rng_state()
    first, again = (module.validation_loss(counts, conditions, seeded()).loss for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(first, module.validation_loss(counts, conditions, seeded(1)).loss)
    assert not torch.equal(first, module.validation_loss(counts, unconditional(4), seeded()).loss)


def test_training_drops_conditions(make_module: Make) -> None:
    specs = (ConditionSpec("cell_type", "category", registry_key="labels", n_categories=3),)
    counts = csr(np.random.default_rng(0).poisson(5, (4, 12)))
    typed = Conditions({"cell_type": category([0, 1, 2, 1])}, 4)
    losses = []
    for rate, given in ((1.0, typed), (0.0, unconditional(4)), (0.0, typed)):
        module = make_module(specs=specs, condition_dropout=rate)
        torch.manual_seed(0)
        if not given:
            torch.rand(4)  # what dropping one condition draws
        losses.append(module.loss(counts, given).loss.detach())
    torch.testing.assert_close(losses[0], losses[1])
    assert not torch.isclose(losses[0], losses[2])


def log_prob(predictor: MoleculePredictor) -> Tensor:
    state = torch.tensor(np.random.default_rng(1).poisson(1.0, (4, 12))).float()
    return predictor(state, state.sum(1) + 40).log_prob(state)


@torch.no_grad()
def test_guidance_is_a_straight_line_in_log_space(make_module: Make, conditions: Conditions) -> None:
    module = make_module()
    without, given, guided = (
        log_prob(module.bind(*each)) for each in ((unconditional(4),), (conditions,), (conditions, Guidance(2.5)))
    )
    torch.testing.assert_close(guided, (without + 2.5 * (given - without)).log_softmax(1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(log_prob(module.bind(conditions, Guidance(0.0))), without, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_condition_has_a_scale_of_its_own_and_the_others_hold_on_both_sides(
    make_module: Make, conditions: Conditions
) -> None:
    module = make_module()
    rest = conditions.without(["age"])
    without, given = (log_prob(module.bind(each)) for each in (rest, conditions))
    guided = log_prob(module.bind(conditions, Guidance({"age": 3.0})))
    torch.testing.assert_close(guided, (without + 3 * (given - without)).log_softmax(1), rtol=1e-4, atol=1e-4)


def test_the_averaged_network_generates_and_judges(make_module: Make, conditions: Conditions) -> None:
    module, counts = make_module(), csr(np.random.default_rng(0).poisson(5, (4, 12)))

    def everything() -> list[Tensor]:
        return [
            module.generate(conditions, torch.full((4,), 30.0), n_steps=4, generator=seeded()),
            module.nll_bound(counts, conditions, seeded()),
            module.expression(counts, conditions),
            module.hidden(counts, conditions),
            module.validation_loss(counts, conditions, seeded()).loss,
        ]

    before = everything()
    with torch.no_grad():
        for weight in module.denoiser.parameters():
            weight.zero_()
    assert all(torch.equal(one, other) for one, other in zip(before, everything(), strict=True))


def test_the_averaged_network_starts_as_a_copy_that_is_not_trained(make_module: Make) -> None:
    module = make_module(fresh=True)
    for slow, fast in zip(module.ema_denoiser.parameters(), module.denoiser.parameters(), strict=True):
        assert torch.equal(slow, fast) and fast.requires_grad and not slow.requires_grad


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_minibatch_is_unpacked_whichever_way_it_was_loaded(layout: str, make_module: Make) -> None:
    specs = (ConditionSpec("cell_type", "category", registry_key="labels", n_categories=3),)
    dense = torch.tensor(np.random.default_rng(0).poisson(1.0, (4, 12))).float()
    batch = {"X": dense if layout == "dense" else dense.to_sparse_csr(), "labels": torch.tensor([[0.0], [2], [1], [0]])}
    counts, conditions = make_module(specs=specs).unpack(batch)
    assert counts.layout == torch.sparse_csr
    torch.testing.assert_close(counts.to_dense(), dense)
    assert conditions["cell_type"].ids.flatten().tolist() == [0, 2, 1, 0]
