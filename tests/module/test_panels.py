"""Features that are missing from the panel of a batch: their detection, and losses without them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from csr import csr
from module_parts import SIZE, predict_shares
from networks import seeded
from parts import category
from scipy import sparse, stats
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.module import DiffusionModule
from scdiffgen.module._group_sums import PanelSums

RNA, PROTEIN = np.array([0.7, 0.3]), np.array([0.5, 0.2, 0.3])
BATCH = ConditionSpec("batch", "category", registry_key="batch", n_categories=3)


def in_batches(batches: list[int] | np.ndarray) -> Conditions[Tensor]:
    return Conditions({"batch": category(list(batches))}, len(batches))


def make() -> DiffusionModule:
    torch.manual_seed(0)
    module = DiffusionModule({"X": 2, "X_prot": 3}, (BATCH,), replace(SIZE, readout_units=3), 0.0)
    return module.eval()


def cells(n_cells: int = 300, depth: float = 100.0) -> tuple[np.ndarray, np.ndarray]:
    """Counts and batches: batch 1 lacks the last protein, batch 2 the second one and is twice as deep."""
    rng, batches = np.random.default_rng(0), np.arange(n_cells) % 3
    counts = rng.poisson(np.concatenate([12 * RNA, depth * PROTEIN]), (n_cells, 5)) * (1 + (batches == 2)[:, None])
    counts[batches == 1, 4] = counts[batches == 2, 3] = 0
    return counts, batches


def initialised(counts: np.ndarray, batches: np.ndarray) -> DiffusionModule:
    module = make()
    module.initialise(
        iter([(csr(counts[::2]), in_batches(batches[::2])), (csr(counts[1::2]), in_batches(batches[1::2]))])
    )
    return module


def test_the_average_cell_has_the_full_panel() -> None:
    module = initialised(*cells())
    assert torch.equal(module.code.panels.missing.nonzero(), torch.tensor([[1, 4], [2, 3]]))
    for denoiser in module.denoisers:
        np.testing.assert_allclose(denoiser.network.readout.bias[2:].softmax(0).detach(), PROTEIN, atol=0.01)
        np.testing.assert_allclose(denoiser.limit.depth[1], 100 * 4 / 3, rtol=0.02)
        assert denoiser.limit.on_host == (False, True)
    assert [denoiser.limit.log_limits.requires_grad for denoiser in module.denoisers] == [True, False]


def test_missing_features_are_those_that_chance_cannot_explain() -> None:
    """Rates of 8, 8, 0.001 and 0 molecules a cell, in batches of 200, 200 and 2 cells; only the first is missing."""
    rng, batches = np.random.default_rng(0), np.repeat([0, 1, 2], [200, 200, 2])
    counts = rng.poisson([8, 8, 0.001, 0, 20], (402, 5))
    counts[0, 2] = 1
    counts[batches == 1, 0] = counts[batches == 1, 2] = counts[batches == 2, 1] = 0
    sums = PanelSums(3, 5)
    sums.add(sparse.csr_matrix(counts), batches)
    np.testing.assert_array_equal(np.argwhere(sums.missing()), [[1, 0]])


def test_shallow_modalities_and_cells_without_the_modality_have_no_panel() -> None:
    assert initialised(*cells(depth=5)).code.panels.missing is None
    counts, batches = cells()
    counts[batches > 0, 2:] = 0  # protein was measured in one batch alone
    assert initialised(counts, batches).code.panels.missing is None
    assert not [name for name in initialised(counts, batches).state_dict() if name.startswith("code.panels")]


@pytest.fixture
def multinomial() -> DiffusionModule:
    """A module that predicts given shares whatever it sees, but knows the panels."""
    module = initialised(*cells())
    for denoiser in module.denoisers:
        predict_shares(denoiser, np.concatenate([RNA, PROTEIN]))
        with torch.no_grad():
            denoiser.network.urn.concentration.bias.fill_(-10)  # few expected molecules are not limited
            denoiser.limit.limit(torch.tensor([False, False]))
    return module


@pytest.mark.parametrize(("batch", "present"), [(0, [0, 1, 2]), (1, [0, 1]), (2, [0, 2])])
def test_the_likelihood_of_a_cell_is_that_of_its_panel(
    multinomial: DiffusionModule, batch: int, present: list[int]
) -> None:
    rna, protein, n_draws = np.array([3, 1]), np.array([4, 2, 5]), 20_000
    protein[[column for column in range(3) if column not in present]] = 0
    counts = csr(np.tile(np.concatenate([rna, protein]), (n_draws, 1)))
    draws = multinomial.nll_bound(counts, in_batches([batch] * n_draws), seeded()).numpy()
    shares = PROTEIN[present] / PROTEIN[present].sum()
    exact = -stats.multinomial.logpmf(rna, rna.sum(), RNA) - stats.multinomial.logpmf(
        protein[present], protein.sum(), shares
    )
    assert abs(draws.mean() - exact) < 4 * draws.std() / np.sqrt(n_draws) + 1e-5


def test_missing_features_are_not_trained_and_stored_zeros_do_no_harm() -> None:
    module = initialised(*cells()).train()
    counts = csr(np.array([[5, 2, 40, 20, 1]] * 8))
    counts.values().view(8, 5)[:, 4] = 0  # stored, as some files have them
    module.loss(counts, in_batches([1] * 8)).loss.backward()
    gradient = module.denoiser.network.readout.bias.grad
    assert gradient.isfinite().all() and gradient[4] == 0 and (gradient[:4] != 0).all()


def test_expression_of_missing_features_is_predicted(multinomial: DiffusionModule) -> None:
    """All features have the shares of the full panel, whichever were measured."""
    counts = csr(np.array([[7, 3, 50, 20, 30], [7, 3, 50, 20, 0], [7, 3, 50, 0, 30]]))
    shares = multinomial.expression(counts, in_batches([0, 1, 2]))
    np.testing.assert_allclose(shares, np.tile(np.concatenate([RNA, PROTEIN]), (3, 1)), rtol=1e-4)
    unknown = multinomial.expression(counts, Conditions({}, 3))
    np.testing.assert_allclose(unknown, shares, rtol=1e-4)


def test_panels_are_saved_with_the_weights() -> None:
    module, other = initialised(*cells()), make()
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.code.panels.missing, module.code.panels.missing)
    other.load_state_dict(make().state_dict())
    assert other.code.panels.missing is None
