"""Curves against cells that NumPy thins or adds molecules to; responses that are applied against treated cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from scdiffgen.responses import apply_response
from scdiffgen.responses._expression_curves import (
    GAINED,
    KEPT,
    STEPS,
    depth_effect,
    depth_factor,
    expression_curves,
    mean_change,
    responding_share,
    shares_after,
)

N_CELLS, N_GENES = 600, 40


def cells(rng: np.random.Generator, shares: np.ndarray, library: float = 1500.0) -> np.ndarray:
    """Counts ``(cells, genes)`` whose library sizes vary; genes do so as well, by 20 %."""
    rates = shares * rng.gamma(25, 1 / 25, (N_CELLS, len(shares)))
    return rng.poisson(library * rng.lognormal(0, 0.3, (N_CELLS, 1)) * rates)


@pytest.fixture(scope="module")
def shares() -> np.ndarray:
    """Shares of genes, from a molecule in three cells to a hundred in each."""
    levels = np.geomspace(2e-4, 0.07, N_GENES)
    return levels / levels.sum()


@pytest.fixture(scope="module")
def untreated(shares: np.ndarray) -> np.ndarray:
    return cells(np.random.default_rng(0), shares)


@pytest.fixture(scope="module")
def curves(untreated: np.ndarray) -> np.ndarray:
    return expression_curves(sparse.csr_matrix(untreated))


def log_mean(counts: np.ndarray, library: np.ndarray | None = None) -> np.ndarray:
    """Mean of log(1 + counts per 10,000) ``(genes,)``."""
    library = np.maximum(counts.sum(1), 1) if library is None else library
    return np.log1p(1e4 * counts / library[:, None]).mean(0)


def applied(counts: np.ndarray, before: np.ndarray, after: np.ndarray, **options) -> np.ndarray:
    rng = np.random.default_rng(1)
    return apply_response(sparse.csr_matrix(counts), before, after, rng, **{"keep_library": False, **options}).toarray()


@pytest.mark.parametrize("step", [*range(0, len(STEPS), 3), len(KEPT), len(STEPS) - 1])
def test_curves_are_means_of_cells_that_lose_or_gain_molecules(
    step: int, untreated: np.ndarray, curves: np.ndarray
) -> None:
    rng, library = np.random.default_rng(step), untreated.sum(1)
    means = []
    for _ in range(20):
        if STEPS[step] < 0:
            moved = rng.binomial(untreated, KEPT[step])
        else:
            gained = GAINED[step - len(KEPT) - 1] if STEPS[step] else 0.0
            moved = untreated + rng.poisson(gained * library[:, None], untreated.shape)
        means.append(log_mean(moved, library))
    np.testing.assert_allclose(curves[step], np.mean(means, axis=0), atol=0.04)


def treated_shares(rng: np.random.Generator, shares: np.ndarray) -> np.ndarray:
    """A third of the genes lose a half or nearly all, a third gain as much again or a half."""
    factors = np.resize([0.5, 1.0, 2.0, 0.05, 1.0, 1.5], len(shares))
    return shares * rng.permutation(factors)


@pytest.mark.parametrize("seed", range(4))
def test_cells_to_which_a_response_is_applied_are_as_treated_ones(
    seed: int, shares: np.ndarray, untreated: np.ndarray, curves: np.ndarray
) -> None:
    rng = np.random.default_rng(seed)
    factors = treated_shares(rng, shares)
    treated = cells(rng, factors / factors.sum())  # at equal depth
    change = log_mean(treated) - log_mean(untreated)
    before = (untreated / untreated.sum(1, keepdims=True)).mean(0)
    after = shares_after(curves, before, change)
    predicted = applied(untreated, before, after)
    np.testing.assert_allclose(log_mean(predicted) - log_mean(untreated), change, atol=0.12, rtol=0.05)
    np.testing.assert_allclose(mean_change(curves, before, after), change, atol=0.02)
    assert after.sum() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("sign", [-1, 1])
def test_cells_that_respond_change_sums_and_leave_means_of_logs(
    sign: int, shares: np.ndarray, untreated: np.ndarray, curves: np.ndarray
) -> None:
    after = shares * (0.4 if sign < 0 else 2.0)
    ratio = np.full(N_GENES, 1.4 if sign > 0 else 0.8)
    cells_that_respond = responding_share(curves, shares, after, ratio)
    assert (cells_that_respond < 1).all() and (cells_that_respond > 0.1).all()
    responds = np.random.default_rng(0).random((N_CELLS, 1)) < cells_that_respond
    change = responds * ratio / cells_that_respond * (after - shares)
    library = untreated.sum(1)
    concentrated, alike = applied(untreated, shares, shares + change), applied(untreated, shares, after)
    rise = log_mean(concentrated, library) - log_mean(untreated)
    np.testing.assert_allclose(rise, log_mean(alike, library) - log_mean(untreated), atol=0.3)
    sums = [(x.sum(0) - untreated.sum(0)).sum() for x in (concentrated, alike)]
    assert sums[0] / sums[1] == pytest.approx(ratio[0], rel=0.1)
    np.testing.assert_array_equal(responding_share(curves, shares, after, np.ones(N_GENES)), 1)


@pytest.mark.parametrize(("ratio", "factor"), [(0.5, 0.5), (0.9, 1.0), (1.2, 1.0), (3.0, 3.0)])
def test_large_ratios_of_libraries_alone_change_the_depth(
    ratio: float, factor: float, shares: np.ndarray, untreated: np.ndarray, curves: np.ndarray
) -> None:
    """One gene gains 15 % of the library, and the composition is that of treated cells at any depth."""
    treated = cells(np.random.default_rng(3), (shares + 0.15 * (np.arange(N_GENES) == N_GENES // 2)) / 1.15)
    after = shares_after(curves, shares, log_mean(treated) - log_mean(untreated))
    assert depth_factor(np.log(ratio)) == pytest.approx(factor)
    predicted = applied(untreated, shares, after, factor=factor)
    assert predicted.sum() / untreated.sum() == pytest.approx(factor, rel=0.05)
    np.testing.assert_allclose(predicted.sum(0) / predicted.sum(), treated.sum(0) / treated.sum(), rtol=0.08, atol=1e-4)


@given(seed=st.integers(0, 2**32 - 1), keep_library=st.booleans())
@settings(max_examples=25, deadline=None)
def test_library_sizes_are_kept_if_asked_for(seed: int, keep_library: bool) -> None:
    rng = np.random.default_rng(seed)
    counts, before, after = rng.poisson(3, (30, 8)), *rng.dirichlet(np.ones(8), 2)
    moved = applied(counts, before, after, keep_library=keep_library)
    assert (moved >= 0).all() and np.issubdtype(moved.dtype, np.integer)
    if keep_library:
        np.testing.assert_array_equal(moved.sum(1), counts.sum(1))


def test_library_sizes_change_by_the_ratio_of_the_sums(shares: np.ndarray, untreated: np.ndarray) -> None:
    for factor in (0.6, 1.5):
        moved = applied(untreated, shares, factor * shares)
        assert moved.sum() / untreated.sum() == pytest.approx(factor, rel=0.01)
        np.testing.assert_allclose(moved.mean(0), factor * untreated.mean(0), rtol=0.1, atol=0.05)


def test_genes_that_lose_share_only_lose_molecules(shares: np.ndarray, untreated: np.ndarray) -> None:
    after = np.where(np.arange(N_GENES) % 2, 0.3, 1.0) * shares
    moved = applied(untreated, shares, after)
    assert (moved <= untreated).all() and (moved[:, ::2] == untreated[:, ::2]).all()
    assert moved[:, 1::2].sum() / untreated[:, 1::2].sum() == pytest.approx(0.3, rel=0.01)
    absent = applied(untreated, shares, np.where(np.arange(N_GENES) == 7, 0, shares))
    assert not absent[:, 7].any() and (np.delete(absent, 7, 1) == np.delete(untreated, 7, 1)).all()


def test_genes_that_were_not_there_can_be_gained() -> None:
    counts, before, after = np.tile([10, 0], (500, 1)), np.array([1.0, 0.0]), np.array([1.0, 0.2])
    moved = applied(counts, before, after)
    assert (moved[:, 0] == 10).all() and moved[:, 1].mean() == pytest.approx(2, rel=0.1)
    assert moved[:, 1].var() == pytest.approx(2, rel=0.2)  # Poisson


@pytest.mark.parametrize("keep_library", [True, False])
def test_no_change_returns_the_same_counts(
    keep_library: bool, shares: np.ndarray, untreated: np.ndarray, curves: np.ndarray
) -> None:
    same = shares_after(curves, shares, np.zeros(N_GENES))
    np.testing.assert_array_equal(same, shares)
    np.testing.assert_array_equal(applied(untreated, shares, same, keep_library=keep_library), untreated)
    np.testing.assert_allclose(mean_change(curves, shares, shares), 0, atol=1e-12)


@pytest.mark.parametrize("kept", [0.1, 0.4, 0.8])
def test_the_effect_of_depth_is_that_of_thinning_cells(kept: float, untreated: np.ndarray) -> None:
    rng = np.random.default_rng(5)
    thinned = np.mean([log_mean(rng.binomial(untreated, kept)) for _ in range(20)], axis=0)
    effect = thinned - log_mean(untreated)
    assert np.abs(effect).max() > 0.05
    np.testing.assert_allclose(depth_effect(sparse.csr_matrix(untreated), np.log(kept)), effect, atol=0.04)
    np.testing.assert_array_equal(depth_effect(sparse.csr_matrix(untreated), 0.0), 0)
