"""Thinning against SciPy's binomial and multivariate hypergeometric distributions."""

from itertools import product

import numpy as np
import pytest
import torch
from csr import csr
from scipy import stats
from torch import Tensor

from scdiffgen.diffusion import Thinned, thin, thin_to

CELL = np.array([3, 10, 0, 50, 200])
N_CELLS = 4_000


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def same_cells(cell: np.ndarray, n_cells: int = N_CELLS) -> Tensor:
    return csr(np.tile(cell, (n_cells, 1)), stored_zeros=True)


def assert_binomial(drawn: np.ndarray, n: int, p: float) -> None:
    """Mean and variance lie within four standard errors, and no count is drawn too often."""
    mean, variance, _, excess_kurtosis = stats.binom.stats(n, p, moments="mvsk")
    assert abs(drawn.mean() - mean) < 4 * np.sqrt(variance / len(drawn))
    assert abs(drawn.var() - variance) < 4 * variance * np.sqrt((excess_kurtosis + 2) / len(drawn))
    edges = np.unique(stats.binom.ppf(np.linspace(0.05, 0.95, 10), n, p))
    expected = np.diff(stats.binom.cdf([-1, *edges, n], n, p)) * len(drawn)
    observed = np.histogram(drawn, bins=[-0.5, *(edges + 0.5), n + 0.5])[0]
    assert stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-3


@pytest.mark.parametrize("keep", [0.05, 0.3, 0.9])
def test_every_molecule_is_kept_with_the_same_probability(keep: float, generator: torch.Generator) -> None:
    kept = thin(same_cells(CELL), torch.full((N_CELLS,), keep), generator).state.to_dense().numpy()
    for gene in np.flatnonzero(CELL):
        assert_binomial(kept[:, gene], int(CELL[gene]), keep)
    assert not kept[:, CELL == 0].any()


def test_each_cell_has_its_own_probability(generator: torch.Generator) -> None:
    keep = torch.tensor([0.1, 0.8]).repeat(N_CELLS // 2)
    kept = thin(same_cells(CELL), keep, generator).n_molecules.numpy()
    assert_binomial(kept[::2], int(CELL.sum()), 0.1)
    assert_binomial(kept[1::2], int(CELL.sum()), 0.8)


def test_thinning_twice_is_thinning_once(generator: torch.Generator) -> None:
    once = thin(same_cells(CELL), torch.full((N_CELLS,), 0.6), generator)
    twice = thin(once.state, torch.full((N_CELLS,), 0.5), generator)
    assert_binomial(twice.state.to_dense()[:, 3].numpy(), int(CELL[3]), 0.3)


@pytest.mark.parametrize(("keep", "share"), [(0.0, 0), (1.0, 1)])
def test_the_ends_are_the_empty_and_the_whole_cell(keep: float, share: int, generator: torch.Generator) -> None:
    counts = same_cells(CELL, 5)
    torch.testing.assert_close(
        thin(counts, torch.full((5,), keep), generator).state.to_dense(), share * counts.to_dense()
    )


def thinned_both_ways(counts: Tensor, generator: torch.Generator) -> list[Thinned]:
    n_cells = counts.shape[0]
    some = torch.randint(0, 20, (n_cells,), generator=generator)
    return [thin(counts, torch.rand(n_cells, generator=generator), generator), thin_to(counts, some, generator)]


@pytest.mark.parametrize("stored_zeros", [False, True])
def test_what_is_left_and_what_is_missing_are_the_cell(stored_zeros: bool, generator: torch.Generator) -> None:
    dense = np.random.default_rng(0).poisson(0.7, (50, 30))
    dense[7] = 0
    counts = csr(dense, stored_zeros=stored_zeros)
    for thinned in thinned_both_ways(counts, generator):
        torch.testing.assert_close(thinned.state.values() + thinned.missing, counts.values(), rtol=0, atol=0)
        assert (thinned.missing >= 0).all() and (thinned.state.values() >= 0).all()
        torch.testing.assert_close(thinned.state.col_indices(), counts.col_indices())
        torch.testing.assert_close(thinned.state.crow_indices(), counts.crow_indices())
        np.testing.assert_array_equal(thinned.n_molecules, thinned.state.to_dense().sum(1))
        np.testing.assert_array_equal(thinned.library, dense.sum(1))


def test_exactly_so_many_molecules_stay(generator: torch.Generator) -> None:
    counts = csr(np.random.default_rng(0).poisson(2.0, (6, 9)))
    library = counts.to_dense().sum(1).long()
    asked = torch.stack([library * 0, library * 0 + 1, library // 2, library - 1, library, library + 5]).diagonal()
    kept = thin_to(counts, asked, generator)
    torch.testing.assert_close(kept.n_molecules.long(), torch.minimum(asked, library))


def test_all_subsets_of_a_size_are_equally_likely(generator: torch.Generator) -> None:
    cell, n = np.array([1, 2, 4]), 3
    kept = thin_to(same_cells(cell), torch.full((N_CELLS,), n), generator).state.to_dense().numpy()
    subsets = [subset for subset in product(*(range(count + 1) for count in cell)) if sum(subset) == n]
    expected = N_CELLS * stats.multivariate_hypergeom.pmf(subsets, cell, n)
    observed = [(kept == subset).all(1).sum() for subset in subsets]
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize(
    "corrupt", [lambda c, g: thin(c, torch.full((50,), 0.5), g), lambda c, g: thin_to(c, torch.full((50,), 9), g)]
)
def test_the_generator_decides_alone(corrupt) -> None:
    counts = csr(np.random.default_rng(0).poisson(1.0, (50, 30)))
    state = torch.get_rng_state()
    first, second, other = (corrupt(counts, torch.Generator().manual_seed(seed)).missing for seed in (1, 1, 2))
    assert torch.equal(first, second) and not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())
