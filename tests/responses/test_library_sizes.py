"""Depth and composition of library sizes, of cells that NumPy thins or adds molecules to."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scdiffgen.responses._library_sizes import UntreatedCells
from scdiffgen.responses._response_curves import POWER, response_curves

N_CELLS, N_GENES = 300, 200


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    """Cells of some 1,600 molecules, alike but for their size."""
    rng = np.random.default_rng(0)
    rates = np.geomspace(0.05, 100, N_GENES)
    return rng.poisson(rates * rng.gamma(20, 1 / 20, (N_CELLS, 1)))


@pytest.fixture(scope="module")
def untreated(counts: np.ndarray) -> UntreatedCells:
    share = (counts.sum(0) + 0.5) / (counts + 0.5).sum()
    there = torch.from_numpy(counts).float()
    expected = torch.from_numpy(share).float().expand(N_CELLS, -1)
    module = SimpleNamespace(device=torch.device("cpu"), expression=lambda *_: expected)
    given = SimpleNamespace(take=lambda rows: None)
    groups = np.zeros(N_CELLS, dtype=int)
    curves = response_curves(module, [(there.to_sparse_csr(), given)], groups, np.zeros((1, N_GENES)))
    return UntreatedCells(*curves[:, 0], share**POWER)


def measured(treated: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Changes of means, and their variance by chance ``(genes + 1,)``."""
    means = []
    for cells in (treated, counts):
        library = cells.sum(1, keepdims=True)
        means.append(np.hstack([np.log1p(1e4 * cells / library), np.log1p(library)]))
    change = means[0].mean(0) - means[1].mean(0)
    return change, sum(each.var(0) / len(each) for each in means)


@pytest.mark.parametrize("kept", [0.5, 0.8])
def test_cells_counted_less_deeply_have_not_changed(kept: float, counts: np.ndarray, untreated: UntreatedCells) -> None:
    change, variance = measured(np.random.default_rng(1).binomial(counts, kept), counts)
    found = untreated.without_depth(change, variance)
    np.testing.assert_allclose(found[-2:], [0, np.log(kept)], atol=0.03)
    assert (found[:-2] ** 2).sum() < 0.15 * (change[:-1] ** 2).sum()


def test_molecules_of_one_gene_are_composition(counts: np.ndarray, untreated: UntreatedCells) -> None:
    treated = counts.copy()
    treated[:, -2] += np.random.default_rng(2).poisson(0.6 * counts.sum(1))
    change, variance = measured(treated, counts)
    found = untreated.without_depth(change, variance)
    np.testing.assert_allclose(found[-2:], [np.log(1.6), 0], atol=0.03)
    np.testing.assert_allclose(found[:-2], change[:-1])
    after, grown = untreated.balanced(found[:-2], np.ones(1), found[-2])
    assert grown == pytest.approx(np.log(1.6), abs=0.08)
    numbers = (after / untreated.root) ** (1 / POWER)  # of molecules, relative to those before
    assert numbers[-2] == pytest.approx(treated[:, -2].sum() / counts[:, -2].sum(), rel=0.1)
    np.testing.assert_allclose(np.delete(numbers, -2)[100:], 1, atol=0.1)


def test_nothing_is_known_of_sizes_in_models_of_before(counts: np.ndarray, untreated: UntreatedCells) -> None:
    before = untreated._replace(saturation=np.zeros_like(untreated.saturation))
    change, variance = measured(np.random.default_rng(1).binomial(counts, 0.5), counts)
    change[-1] = 0
    found = before.without_depth(change, variance)
    np.testing.assert_array_equal(found, [*change[:-1], 0, 0])
    after, grown = before.balanced(found[:-2], np.ones(1), 0.0)
    assert grown == 0 and (after**4).sum() == pytest.approx(1, rel=1e-3)
