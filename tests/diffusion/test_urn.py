"""The urn's predictive rule, the likelihood bound and growing against SciPy's Dirichlet-multinomial."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from csr import csr
from scipy import stats
from torch import Tensor

from scdiffgen.diffusion import (
    BlockPrediction,
    Blocks,
    MoleculePredictor,
    Thinned,
    UrnPrediction,
    grow_molecules,
    likelihood_bound,
    thin_to,
)
from scdiffgen.diffusion._draws import draw_by_gamma, draw_from_urn
from scdiffgen.diffusion._molecules import add_molecules
from scdiffgen.module import guide

ALPHA = np.array([0.4, 2.0, 1.1, 0.7])


def polya_urn(alpha: np.ndarray, weight: float = 1.0) -> MoleculePredictor:
    """Predictive rule of bags of genes whose shares are Dirichlet (weight 1) or fixed (weight 0)."""

    def predict(state: Tensor, library: Tensor) -> UrnPrediction:
        log_rates = torch.tensor(np.log(alpha)).float().expand(state.shape)
        return UrnPrediction(log_rates, torch.full((len(alpha),), weight))

    return predict


def bags(n: int, n_genes: int) -> Iterator[tuple[int, ...]]:
    return (bag for bag in product(range(n + 1), repeat=n_genes) if sum(bag) == n)


def expected_loss(cell: np.ndarray, predictor: MoleculePredictor) -> float:
    """Loss over all ways to thin a cell, the number of molecules left being uniform on 0 to library - 1."""
    states = np.array([s for s in product(*(range(count + 1) for count in cell)) if sum(s) < cell.sum()])
    probability = [stats.multivariate_hypergeom.pmf(state, cell, sum(state)) / cell.sum() for state in states]
    left, whole = csr(states, stored_zeros=True), csr(np.tile(cell, (len(states), 1)), stored_zeros=True)
    thinned = Thinned(left, whole.values() - left.values(), left.to_dense().sum(1), whole.to_dense().sum(1))
    return float(predictor(left, thinned.library).loss(thinned) @ torch.tensor(probability).float())


@pytest.mark.parametrize("cell", [[2, 0, 3, 1], [1, 0, 0, 0], [0, 4, 1, 0]])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_bound_is_exact_for_a_multinomial_and_a_dirichlet_multinomial(cell: list[int], weight: float) -> None:
    bound = likelihood_bound(torch.tensor([expected_loss(np.array(cell), polya_urn(ALPHA, weight))]), csr([cell]))
    law = stats.dirichlet_multinomial(ALPHA, sum(cell)) if weight else stats.multinomial(sum(cell), ALPHA / ALPHA.sum())
    np.testing.assert_allclose(bound, -law.logpmf(cell), rtol=2e-6)


def test_the_bound_lies_above_for_a_predictor_that_depends_on_the_order() -> None:
    """Weights that differ between genes make no urn; over all cells the bound still is one."""

    def predict(state: Tensor, library: Tensor) -> UrnPrediction:
        return UrnPrediction(torch.tensor(np.log(ALPHA[:2])).float().expand(state.shape), torch.tensor([6.0, 0.1]))

    total = 0.0
    for bag in bags(3, 2):
        total += float(likelihood_bound(torch.tensor([expected_loss(np.array(bag), predict)]), csr([bag])).neg().exp())
    assert 0.5 < total < 0.999  # exp(-bound) <= p, and p sums to 1


def test_draws_of_the_bound_are_unbiased() -> None:
    cell, n_draws, generator = np.array([2, 0, 3, 1]), 20_000, torch.Generator().manual_seed(0)
    counts = csr(np.tile(cell, (n_draws, 1)))
    left = torch.randint(0, int(cell.sum()), (n_draws,), generator=generator)
    thinned = thin_to(counts, left, generator)
    draws = polya_urn(ALPHA)(thinned.state, thinned.library).bound(thinned, counts).numpy()
    exact = -stats.dirichlet_multinomial.logpmf(cell, ALPHA, cell.sum())
    assert abs(draws.mean() - exact) < 4 * draws.std() / np.sqrt(n_draws)


def test_the_bound_keeps_its_digits_for_deep_cells() -> None:
    cell = np.random.default_rng(0).multinomial(60_000, np.full(200, 1 / 200))
    loss = np.log(200)  # of the uniform multinomial, whatever is left of the cell
    exact = -stats.multinomial.logpmf(cell, cell.sum(), np.full(200, 1 / 200))
    np.testing.assert_allclose(
        likelihood_bound(torch.tensor([loss], dtype=torch.float64), csr([cell])), exact, rtol=1e-10
    )


@pytest.mark.parametrize("n_steps", [1, 2, 6])
def test_growing_in_any_number_of_steps_draws_from_the_dirichlet_multinomial(n_steps: int) -> None:
    alpha, n, n_cells = ALPHA[:3], 6, 20_000
    grown = grow_molecules(
        polya_urn(alpha),
        torch.full((n_cells,), float(n)),
        torch.zeros(n_cells, 3),
        n_steps=n_steps,
        generator=torch.Generator().manual_seed(0),
    ).numpy()
    assert_fits(grown, {bag: stats.dirichlet_multinomial.pmf(bag, alpha, n) for bag in bags(n, 3)})


def assert_fits(cells: np.ndarray, law: dict[tuple[int, ...], float]) -> None:
    observed, expected = [(cells == bag).all(1).sum() for bag in law], np.array(list(law.values()))
    assert stats.chisquare(observed, expected / expected.sum() * len(cells)).pvalue > 1e-3


def urn_by_hand(rates: np.ndarray, weights: np.ndarray, n: int) -> dict[tuple[int, ...], float]:
    """Probabilities of all bags of molecules from an urn, one molecule after the other."""
    law = {(0,) * len(rates): 1.0}
    for _ in range(n):
        following: dict[tuple[int, ...], float] = {}
        for bag, probability in law.items():
            now = rates + weights * np.array(bag)
            for gene, share in enumerate(now / now.sum()):
                more = (*bag[:gene], bag[gene] + 1, *bag[gene + 1 :])
                following[more] = following.get(more, 0.0) + probability * share
        law = following
    return law


@pytest.mark.parametrize("weights", [[0.0, 2.0, 0.5], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0], [40.0, 1.0, 5.0]])
def test_molecules_of_an_urn_are_drawn_as_if_one_after_the_other(weights: list[float]) -> None:
    rates, n, n_cells = np.array([0.5, 1.5, 1.0]), 5, 20_000
    n_molecules = torch.full((n_cells,), n)
    n_molecules[::2] = 1  # cells of other sizes in between
    drawn = draw_from_urn(
        torch.tensor(rates).float().expand(n_cells, 3),
        torch.tensor(weights),
        n_molecules,
        torch.Generator().manual_seed(0),
    )
    cells = torch.bincount(drawn, minlength=3 * n_cells).view(n_cells, 3).numpy()
    np.testing.assert_array_equal(cells.sum(1), n_molecules)
    for of_size, size in ((cells[1::2], n), (cells[::2], 1)):
        assert_fits(of_size, urn_by_hand(rates, np.array(weights), size))


@pytest.mark.parametrize("weights", [[0.0, 2.0, 0.5], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0], [40.0, 1.0, 5.0]])
@pytest.mark.parametrize("is_normalised", [False, True])
def test_compiled_urns_draw_as_if_one_molecule_after_the_other(weights: list[float], is_normalised: bool) -> None:
    rates, present, n_cells = np.array([0.5, 1.5, 1.0]), np.array([1, 0, 2]), 20_000
    logits = torch.tensor(np.log(rates)).float().expand(n_cells, 3)
    urn = UrnPrediction(logits, torch.tensor(weights))
    if is_normalised:  # then a constant of each cell changes nothing
        shifts = torch.linspace(-50, 50, n_cells)
        urn = UrnPrediction(logits + shifts[:, None], urn.weights, logits.logsumexp(1))
    n_molecules = torch.arange(n_cells) % 4  # cells without new ones are among them
    state = csr(np.tile(present, (n_cells, 1)))
    drawn = add_molecules(urn, state, n_molecules, torch.Generator().manual_seed(0)).to_dense().numpy() - present
    np.testing.assert_array_equal(drawn.sum(1), n_molecules)
    for n in (1, 3):
        law = urn_by_hand(rates + np.array(weights) * present, np.array(weights), n)
        assert_fits(drawn[n_molecules == n], law)


def test_compiled_urns_of_many_genes_have_the_moments_of_the_dirichlet_multinomial() -> None:
    random, n_cells, n = np.random.default_rng(0), 4000, 300
    alpha, weight, present = random.gamma(0.3, size=90) + 0.01, 0.4, random.poisson(1.0, 90)
    urn = UrnPrediction(torch.tensor(np.log(alpha)).expand(n_cells, 90), torch.full((90,), weight))
    state, n_molecules = csr(np.tile(present, (n_cells, 1))), torch.full((n_cells,), n)
    grown = add_molecules(urn, state, n_molecules, torch.Generator().manual_seed(0))
    assert all(len(set(row)) == len(row) for row in np.split(grown.col_indices(), grown.crow_indices()[1:-1])[:50])
    drawn, law = grown.to_dense().numpy() - present, stats.dirichlet_multinomial(alpha / weight + present, n)
    deviations = (drawn.mean(0) - law.mean()) / np.sqrt(law.var() / n_cells)
    assert np.abs(deviations).max() < 4.5 and 0.7 < (deviations**2).mean() < 1.3
    common = law.mean() > 3
    np.testing.assert_allclose(drawn.var(0)[common], law.var()[common], rtol=0.25)
    assert drawn.var(0).sum() == pytest.approx(law.var().sum(), rel=0.03)


def test_compiled_urns_and_rates_agree_in_cells_that_differ() -> None:
    """Cells of other priors, sizes and present molecules: means against the path of GPUs, in one step."""
    random, n_repeats = np.random.default_rng(1), 8000
    logits, present = random.normal(size=(3, 6)), random.poisson(2.0, (3, 6))
    urn = UrnPrediction(
        torch.tensor(logits).repeat(n_repeats, 1), torch.tensor(random.gamma(1.0, size=6)), torch.ones(3 * n_repeats)
    )
    state, n_molecules = csr(np.tile(present, (n_repeats, 1))), torch.tensor([4, 0, 9]).repeat(n_repeats)
    compiled = add_molecules(urn, state, n_molecules, torch.Generator().manual_seed(0)).to_dense().numpy()
    drawn = urn.draw(urn.rates_at(state.to_dense().double()), n_molecules, torch.Generator().manual_seed(0))
    by_rates = np.bincount(drawn, minlength=compiled.size).reshape(compiled.shape) + np.tile(present, (n_repeats, 1))
    one, other = (cells.reshape(n_repeats, 3, 6) for cells in (compiled, by_rates))
    error = np.sqrt((one.var(0) + other.var(0)) / n_repeats)
    assert (np.abs(one.mean(0) - other.mean(0)) <= 4 * error).all()
    np.testing.assert_allclose(one.var(0), other.var(0), rtol=0.15)


@pytest.mark.parametrize("shift", [-1e4, -200.0, 200.0, 1e4])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_compiled_urns_of_any_rates_draw_by_prior_or_molecules_present(shift: float, weight: float) -> None:
    """Beside larger rates molecules count for nothing, and reversed."""
    logs, n = torch.tensor([[0.0, 1.0, 2.0]]), 100_000
    for present in ([0, 0, 0], [1, 1, 0]):
        urn, state = UrnPrediction(logs + shift, torch.full((3,), weight)), csr([present])
        drawn = add_molecules(urn, state, torch.tensor([n]), torch.Generator().manual_seed(0)).to_dense()[0]
        assert drawn.sum() == n + sum(present)
        if weight == 0 or shift > 0:
            torch.testing.assert_close(drawn / n, logs[0].softmax(0), atol=0.02, rtol=0)
        elif any(present):
            assert drawn[2] == 0
        else:  # the first molecule is from the prior, and all others copy it
            assert sorted(drawn.tolist()) == [0, 0, n]


@pytest.mark.parametrize("logits", [[[0.0]], [[torch.nan, 0.0]], [[torch.inf, 0.0]], [[-torch.inf, 0.0]]])
def test_compiled_urns_draw_genes_that_exist_whatever_the_logits(logits: list[list[float]]) -> None:
    n_genes = len(logits[0])
    for weight in (0.0, 1.0, torch.nan, torch.inf):
        urn = UrnPrediction(torch.tensor(logits), torch.full((n_genes,), weight))
        for n_present in (0, 2):
            grown = add_molecules(urn, csr(n_present * np.eye(1, n_genes)), torch.tensor([20]))
            assert grown.values().sum() == 20 + n_present
            assert 0 <= grown.col_indices().min() and grown.col_indices().max() < n_genes


def test_compiled_urns_depend_on_the_generator_not_on_threads() -> None:
    urn, state = polya_urn(ALPHA)(torch.zeros(700, 4), torch.zeros(700)), csr(np.zeros((700, 4)))
    before, of_torch, grown = torch.get_num_threads(), torch.get_rng_state(), []
    try:
        for threads, seed in ((1, 0), (3, 0), (1, 1)):
            torch.set_num_threads(threads)
            generator = torch.Generator().manual_seed(seed)
            grown.append(add_molecules(urn, state, torch.full((700,), 9), generator).to_dense())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(grown[0], grown[1]) and not torch.equal(grown[0], grown[2])
    assert torch.equal(of_torch, torch.get_rng_state())


def test_equal_weights_of_each_cell_are_the_urn() -> None:
    n, n_cells, weight = 5, 20_000, 0.8
    urn = UrnPrediction(torch.tensor(ALPHA).log().expand(n_cells, 4), torch.full((n_cells, 4), weight))
    drawn = urn.draw(urn.log_rates.exp(), torch.full((n_cells,), n), torch.Generator().manual_seed(0))
    cells = torch.bincount(drawn, minlength=4 * n_cells).view(n_cells, 4).numpy()
    assert_fits(cells, {bag: stats.dirichlet_multinomial.pmf(bag, ALPHA / weight, n) for bag in bags(n, 4)})


def gamma_multinomial(rates: np.ndarray, weights: np.ndarray, n: int) -> dict[tuple[int, ...], float]:
    """Probabilities of all bags of molecules whose shares are those of NumPy's gamma variables."""
    scales = np.maximum(weights, 1e-9)
    drawn = np.random.default_rng(1).gamma(rates / scales, scales, (100_000, len(rates)))
    shares = drawn / drawn.sum(1, keepdims=True)
    return {bag: float(stats.multinomial.pmf(bag, n, shares).mean()) for bag in bags(n, len(rates))}


@pytest.mark.parametrize("weights", [[0.2, 2.0, 0.5], [0.0, 0.0, 0.0], [0.0, 0.3, 0.0], [8.0, 1.0, 5.0]])
def test_molecules_are_drawn_by_gamma_variables(weights: list[float]) -> None:
    rates, n, n_cells = np.array([0.5, 1.5, 1.0]), 5, 20_000
    n_molecules = torch.full((n_cells,), n)
    n_molecules[::2] = 1  # cells of other sizes in between
    n_molecules[::5] = 0
    of_cells = torch.tensor(weights).float().expand(n_cells, 3)
    rng = torch.Generator().manual_seed(0)
    drawn = draw_by_gamma(torch.tensor(rates).float().expand(n_cells, 3), of_cells, n_molecules, rng)
    cells = torch.bincount(drawn, minlength=3 * n_cells).view(n_cells, 3).numpy()
    np.testing.assert_array_equal(cells.sum(1), n_molecules)
    for size in (1, n):
        assert_fits(cells[n_molecules == size], gamma_multinomial(rates, np.array(weights), size))


def test_guided_urns_of_equal_weights_are_an_urn_of_their_mixed_rates() -> None:
    """Grown from nothing in one step; the rates of an urn guided by 2 are its own squared over the other's."""
    rates, n, n_cells = np.array([[0.5, 1.5, 1.0], [1.0, 0.4, 0.8]]), 4, 20_000

    def urn(of: int) -> MoleculePredictor:
        log_rates = torch.tensor(np.log(rates[of])).float().expand(n_cells, 3)
        return lambda state, library: UrnPrediction(log_rates, torch.full((3,), 0.7))

    grown = grow_molecules(
        guide(urn(0), [urn(1)], [2.0]),
        torch.full((n_cells,), float(n)),
        torch.zeros(n_cells, 3),
        n_steps=1,
        generator=torch.Generator().manual_seed(0),
    ).numpy()
    assert_fits(grown, urn_by_hand(rates[1] ** 2 / rates[0], np.full(3, 0.7), n))


@pytest.fixture
def prediction() -> tuple[UrnPrediction, np.ndarray]:
    random = np.random.default_rng(0)
    log_rates, weights = random.normal(size=(20, 7)), random.gamma(1.0, size=7)
    return UrnPrediction(torch.tensor(log_rates), torch.tensor(weights)), random.poisson(0.8, (20, 7))


def test_probabilities_are_rates_over_their_sum(prediction: tuple[UrnPrediction, np.ndarray]) -> None:
    urn, state = prediction
    rates = np.exp(urn.log_rates.numpy()) + urn.weights.numpy() * state
    np.testing.assert_allclose(urn.log_prob(torch.tensor(state)).exp(), rates / rates.sum(1, keepdims=True))


@pytest.mark.parametrize("stored_zeros", [False, True])
def test_probabilities_at_stored_positions_are_the_same(
    prediction: tuple[UrnPrediction, np.ndarray], stored_zeros: bool
) -> None:
    urn, state = prediction
    stored = csr(state, stored_zeros=stored_zeros).double()
    rows = np.repeat(np.arange(len(state)), np.diff(stored.crow_indices()))
    at_stored = urn.log_prob(torch.tensor(state))[rows, stored.col_indices()]
    torch.testing.assert_close(urn.log_prob_at(stored), at_stored)


@pytest.mark.parametrize("level", [-200.0, 200.0])
@pytest.mark.parametrize("blocks", [None, Blocks((1, 3))])
def test_far_rates_have_finite_probabilities_and_gradients(level: float, blocks: Blocks | None) -> None:
    """Exponentials of such rates are no numbers; beside the larger ones weights count for nothing, and reversed."""
    counts = csr([[1, 0, 2, 0], [0, 3, 0, 1]], stored_zeros=True)
    log_rates = (level + torch.arange(8.0).reshape(2, 4)).requires_grad_()
    weights = torch.full((2, 4), 0.5)
    if blocks is None:
        found = UrnPrediction(log_rates, weights[0]).log_prob_at(counts).reshape(2, 4)
    else:
        found = BlockPrediction(log_rates, weights, [False, False], blocks).log_prob_at(counts).reshape(2, 4)
    widths = 4 if blocks is None else blocks.sizes
    parts = (of_all.split(widths, 1) for of_all in (found, log_rates, counts.to_dense()))
    for part, logs, there in zip(*parts, strict=True):
        by_rates, by_molecules = logs.detach().log_softmax(1).exp(), there / there.sum(1, keepdim=True)
        is_empty = there.sum(1) == 0
        expected = torch.where(is_empty[:, None] | (level > 0), by_rates, by_molecules)
        torch.testing.assert_close(part.detach().exp(), expected)
    found.sum().backward()
    assert torch.isfinite(log_rates.grad).all()


def test_a_whole_cell_has_no_loss_and_finite_gradients() -> None:
    counts = csr([[1, 0, 2, 0], [0, 3, 0, 1]], stored_zeros=True)
    log_rates = torch.zeros(2, 4, requires_grad=True)
    weights = torch.ones(4, requires_grad=True)
    whole = thin_to(counts, torch.tensor([3, 1]))
    loss = UrnPrediction(log_rates, weights).loss(whole)
    loss.sum().backward()
    assert loss[0] == 0 and loss[1] > 0
    assert torch.isfinite(log_rates.grad).all() and torch.isfinite(weights.grad).all()
    assert not log_rates.grad[0].any()


def test_gradients_of_weights_are_the_same_whatever_threads_do() -> None:
    """Sums in the order in which threads come by would differ in their last digits, and so would trained models."""
    random, before = torch.Generator().manual_seed(0), torch.get_num_threads()
    counts = (torch.rand(256, 500, generator=random) < 0.5).float().to_sparse_csr()
    log_rates = torch.randn(256, 500, generator=random)
    torch.set_num_threads(4)
    try:
        found = []
        for _ in range(10):
            weights = torch.rand(500, generator=torch.Generator().manual_seed(1)).requires_grad_()
            UrnPrediction(log_rates, weights).log_prob_at(counts).sum().backward()
            found.append(weights.grad)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(gradient, found[0]) for gradient in found)
