"""Molecules of several modalities: each modality by itself is what it is alone, and together they are a product."""

from itertools import product

import numpy as np
import pytest
import torch
from csr import csr
from networks import seeded
from scipy import sparse, stats
from torch import Tensor

from scdiffgen.diffusion import (
    BlockPrediction,
    Blocks,
    MoleculePredictor,
    Thinned,
    UrnPrediction,
    block_levels,
    grow_molecules,
    side_by_side,
    thin,
    thin_to,
    without_blocks,
)

ALPHA = (np.array([0.4, 2.0, 1.1]), np.array([3.0, 0.5]))
BLOCKS = Blocks((3, 2))
CELLS = np.array([[2, 0, 3, 1, 4], [0, 0, 1, 0, 0], [0, 0, 0, 5, 2]])  # the last two lack molecules of a modality


def random_prediction(blocks: Blocks, n_cells: int) -> BlockPrediction:
    random = torch.Generator().manual_seed(1)
    n_columns = sum(blocks.sizes)
    log_rates = torch.randn(n_cells, n_columns, generator=random)
    own = torch.arange(len(blocks.sizes)) > 0  # the first modality has weights that are the same in all cells
    weights = torch.rand(n_cells, n_columns, generator=random)
    weights[:, : blocks.sizes[0]] = weights[0, : blocks.sizes[0]]
    return BlockPrediction(log_rates, weights, own, blocks)


def two_urns(state: Tensor, library: Tensor) -> BlockPrediction:
    """The predictive rule of cells with shares that are Dirichlet, of each modality for itself."""
    log_rates = torch.tensor(np.log(np.concatenate(ALPHA))).float().expand(state.shape[0], 5)
    return BlockPrediction(log_rates, torch.ones(state.shape[0], 5), torch.tensor([False, True]), BLOCKS)


def test_each_modality_has_a_distribution_of_its_own() -> None:
    prediction, state = random_prediction(BLOCKS, len(CELLS)), torch.tensor(CELLS).float()
    log_prob = prediction.log_prob(state)
    for block in log_prob.exp().split(BLOCKS.sizes, 1):
        torch.testing.assert_close(block.sum(1), torch.ones(len(CELLS)))
    stored = csr(CELLS)
    rows, columns = np.nonzero(CELLS)
    torch.testing.assert_close(prediction.log_prob_at(stored), log_prob[rows, columns])


def test_one_modality_is_the_urn() -> None:
    prediction, counts = random_prediction(Blocks((5,)), len(CELLS)), csr(CELLS)
    urn = UrnPrediction(prediction.log_rates, prediction.weights[0])
    torch.testing.assert_close(prediction.log_prob(counts.to_dense()), urn.log_prob(counts.to_dense()))
    thinned = thin_to(counts, torch.tensor([4, 0, 3]), seeded())
    torch.testing.assert_close(prediction.loss(thinned), urn.loss(thinned))


def test_sums_of_each_modality() -> None:
    counts = csr(CELLS)
    expected = np.stack([CELLS[:, :3].sum(1), CELLS[:, 3:].sum(1)], axis=1)
    np.testing.assert_array_equal(BLOCKS.sums(counts, counts.values()), expected)
    np.testing.assert_array_equal(BLOCKS.dense_sums(torch.tensor(CELLS)), expected)


@pytest.mark.parametrize("cell", [[2, 0, 1, 1, 2], [0, 0, 0, 2, 1]])
def test_the_bound_is_exact_for_a_product_of_dirichlet_multinomials(cell: list[int]) -> None:
    """Over all ways to thin a cell, each as likely as among molecules in a random order."""
    states = np.array([s for s in product(*(range(count + 1) for count in cell)) if sum(s) < sum(cell)])
    probability = [stats.multivariate_hypergeom.pmf(state, cell, sum(state)) / sum(cell) for state in states]
    left, whole = csr(states, stored_zeros=True), csr(np.tile(cell, (len(states), 1)), stored_zeros=True)
    rest = whole.values() - left.values()
    thinned = Thinned(left, rest, BLOCKS.library(left), BLOCKS.library(whole))
    bounds = two_urns(left, thinned.library).bound(thinned, whole)
    exact = -sum(
        stats.dirichlet_multinomial.logpmf(part, alpha, sum(part))
        for part, alpha in zip((cell[:3], cell[3:]), ALPHA, strict=True)
        if sum(part)
    )
    np.testing.assert_allclose(bounds @ torch.tensor(probability), exact, rtol=2e-6)


@pytest.mark.parametrize("n_steps", [1, 4])
def test_grown_cells_are_dirichlet_multinomial_in_each_modality(n_steps: int) -> None:
    n_cells, library = 4_000, (3, 4)
    sizes = torch.tensor([library]).float().expand(n_cells, 2)
    cells = grow_molecules(
        two_urns, sizes, torch.zeros(n_cells, 5), n_steps=n_steps, generator=seeded(), count=BLOCKS.dense_sums
    ).numpy()
    for columns, alpha, n in ((slice(0, 3), ALPHA[0], 3), (slice(3, 5), ALPHA[1], 4)):
        bags = [bag for bag in product(range(n + 1), repeat=len(alpha)) if sum(bag) == n]
        found = [(cells[:, columns] == bag).all(1).sum() for bag in bags]
        expected = [n_cells * stats.dirichlet_multinomial.pmf(bag, alpha, n) for bag in bags]
        assert stats.chisquare(found, expected).pvalue > 1e-3
    assert abs(np.corrcoef(cells[:, 0], cells[:, 3])[0, 1]) < 0.06  # four standard errors: modalities are independent


def test_growing_keeps_what_is_there_and_fills_each_modality() -> None:
    start, library = torch.tensor(CELLS).float(), torch.tensor([[9.0, 5.0], [1.0, 0.0], [0.0, 20.0]])

    def checked(state: Tensor, sizes: Tensor) -> BlockPrediction:
        torch.testing.assert_close(sizes, library)
        return two_urns(state, sizes)

    predictor: MoleculePredictor = checked
    grown = grow_molecules(predictor, library, start, n_steps=3, generator=seeded(), count=BLOCKS.dense_sums)
    assert (grown >= start).all()
    torch.testing.assert_close(BLOCKS.dense_sums(grown), library)


def test_molecules_of_each_modality_are_thinned_by_its_level() -> None:
    n_cells, keep = 20_000, torch.tensor([[0.2, 0.9]])
    cell = np.array([[6, 3, 0, 8, 2]])
    counts = csr(np.tile(cell, (n_cells, 1)))
    thinned = thin(counts, keep.expand(n_cells, 2), seeded(), BLOCKS)
    left = thinned.state.to_dense().numpy()
    p = np.array([0.2, 0.2, 0.2, 0.9, 0.9])
    np.testing.assert_allclose(left.mean(0), (cell * p)[0], atol=0.05)
    np.testing.assert_allclose(left.var(0), (cell * p * (1 - p))[0], rtol=0.06, atol=1e-6)
    torch.testing.assert_close(thinned.state.values() + thinned.missing, counts.values())
    torch.testing.assert_close(thinned.n_molecules, BLOCKS.dense_sums(thinned.state.to_dense()))
    assert thinned.library.unique(dim=0).tolist() == [[9.0, 10.0]]


@pytest.mark.parametrize("n_modalities", [2, 3])
def test_what_levels_are_trained_on(n_modalities: int) -> None:
    library = torch.tensor([[100.0, 5_000.0, 40.0][:n_modalities]]).expand(20_000, n_modalities)
    levels = block_levels(library, seeded()).numpy()
    assert (levels > 0).all() and (levels <= 1).all()
    given = levels == 1
    assert not given.all(1).any()  # something is always left to predict
    np.testing.assert_allclose(given.any(1).mean(), 0.25 * {2: 1, 3: 0.75}[n_modalities], atol=0.015)
    late = (levels[:, :2] > 0.5).all(1)  # beyond half a cell almost all are uniform: one share for all
    assert np.isclose(levels[late, 0], levels[late, 1]).mean() > 0.5
    np.testing.assert_allclose(given[:, 0].mean(), given[:, -1].mean(), atol=0.01)


def test_a_modality_that_a_cell_lacks_is_never_what_is_predicted() -> None:
    library = torch.tensor([[100.0, 0.0]]).expand(1_000, 2)
    assert (block_levels(library, seeded())[:, 0] < 1).all()


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.99])
def test_modalities_are_dropped_but_never_the_last_that_a_cell_has(rate: float) -> None:
    library = torch.tensor([[100.0, 0.0, 5.0], [0.0, 0.0, 7.0]]).repeat(5_000, 1)
    gone = without_blocks(library, rate, seeded())
    left = (~gone & (library > 0)).any(1)
    assert left.all()
    expected = rate - rate**2 / 2  # of two modalities, unless both would go
    assert abs(gone[::2, 0].float().mean().item() - expected) < 0.03


def test_matrices_side_by_side_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    parts = [sparse.random(7, n, density=density, format="csr", random_state=random) for n, density in
             ((5, 0.4), (3, 0.0), (1, 1.0), (6, 0.7))]  # fmt: skip
    tensors = [torch.sparse_csr_tensor(part.indptr, part.indices, part.data, part.shape) for part in parts]
    joined, expected = side_by_side(tensors), sparse.hstack(parts, format="csr")
    np.testing.assert_array_equal(joined.crow_indices(), expected.indptr)
    np.testing.assert_array_equal(joined.col_indices(), expected.indices)
    np.testing.assert_array_equal(joined.values(), expected.data)
    assert side_by_side(tensors[:1]) is tensors[0]
