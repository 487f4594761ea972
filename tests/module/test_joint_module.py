"""Several modalities: the method against products of multinomials, and what one modality has to do with another."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from csr import csr
from module_parts import SIZE, SPECS, predict_shares
from networks import seeded
from parts import unconditional
from scipy import stats
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.module import DiffusionModule, Guidance

SHARES = (np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.1]))
CELLS = np.array([[3, 0, 1, 9, 2], [1, 0, 0, 0, 0], [0, 0, 0, 15, 7]])


def make(specs: tuple = (), condition_dropout: float = 0.0) -> DiffusionModule:
    """A module whose weights are all random."""
    torch.manual_seed(0)
    module = DiffusionModule({"X": 3, "X_prot": 2}, specs, replace(SIZE, readout_units=3), condition_dropout)
    for weight in module.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return module.eval()


@pytest.fixture
def multinomial() -> DiffusionModule:
    """A module that predicts given shares, which need not sum to 1 over all modalities, whatever it sees."""
    module = make()
    for denoiser in module.denoisers:
        predict_shares(denoiser, np.concatenate([SHARES[0], 7 * SHARES[1]]))
    return module


def test_the_bound_is_unbiased_for_a_product_of_multinomials(multinomial: DiffusionModule) -> None:
    n_draws = 20_000
    for cell in CELLS:
        draws = multinomial.nll_bound(csr(np.tile(cell, (n_draws, 1))), unconditional(n_draws), seeded()).numpy()
        parts = ((cell[:3], SHARES[0]), (cell[3:], SHARES[1]))
        exact = -sum(stats.multinomial.logpmf(part, part.sum(), shares) for part, shares in parts)
        assert abs(draws.mean() - exact) < 4 * draws.std() / np.sqrt(n_draws) + 1e-5


def test_the_loss_is_the_mean_over_modalities_that_miss_molecules(multinomial: DiffusionModule) -> None:
    both = csr(np.random.default_rng(0).poisson(5_000, (400, 5)) @ np.diag([1, 1, 1, 0, 0]))  # no molecule of the other
    cross_entropy = -np.log(SHARES[0]).mean()  # the three genes are equally frequent in these cells
    np.testing.assert_allclose(
        multinomial.validation_loss(both, unconditional(400), seeded()).loss, cross_entropy, rtol=0.02
    )


def test_cells_are_drawn_from_the_multinomials(multinomial: DiffusionModule) -> None:
    library = torch.tensor([[30.0, 80.0]]).expand(400, 2)
    cells = multinomial.generate(unconditional(400), library, n_steps=8, generator=seeded()).numpy()
    for columns, shares, n in ((slice(0, 3), SHARES[0], 30), (slice(3, 5), SHARES[1], 80)):
        np.testing.assert_array_equal(cells[:, columns].sum(1), n)
        assert stats.chisquare(cells[:, columns].sum(0), cells[:, columns].sum() * shares).pvalue > 1e-3


def test_priors_are_limited_for_modalities_with_many_molecules_a_column() -> None:
    module = make()
    rna, protein = np.array([9, 2, 1, 0, 0]), np.array([0, 0, 0, 30, 1])  # 4 and 15.5 a column
    batches = [
        (csr(np.array([rna + protein, rna])), unconditional(2)),  # one was not measured
        (csr(np.array([rna + protein])), unconditional(1)),
    ]
    module.initialise(iter(batches))
    for denoiser in (module.denoiser, module.ema_denoiser):
        assert denoiser.limit.limited.tolist() == [False, True]
    state = torch.tensor([[300.0, 80.0, 1.0, 5_000.0, 3.0]])
    of_limited = module.bind(unconditional(1))(state, module.library(state.to_sparse_csr()))
    limits = module.ema_denoiser.limit.log_limits.exp()
    assert (of_limited.log_rates.exp()[0, 3:] < limits[3:]).all()
    assert of_limited.log_rates.exp()[0, :3].sum() > 100  # as many as there are


def test_a_modality_that_is_dropped_is_as_if_it_had_not_been_measured() -> None:
    module, nothing = make(), unconditional(3)
    counts, alone = csr(CELLS), csr(CELLS * [1, 1, 1, 0, 0])
    dropped = module.blocks.without(counts, torch.tensor([[False, True]]).expand(3, 2))
    torch.testing.assert_close(module.library(dropped), module.library(alone))
    torch.testing.assert_close(module.tokens(dropped, nothing), module.tokens(alone, nothing))
    assert not torch.allclose(module.tokens(counts, nothing)[0], module.tokens(alone, nothing)[0])


def test_each_modality_depends_on_the_other() -> None:
    """Shares of proteins change with RNA, and with the number of RNA molecules in the whole cell."""
    module = make()
    library, start = torch.tensor([[10.0, 20.0]]), torch.tensor([[4.0, 0.0, 0.0, 0.0, 0.0]])
    other = torch.tensor([[0.0, 0.0, 4.0, 0.0, 0.0]])
    predict = module.bind(unconditional(1))
    of_protein = [predict(state, size).log_prob(state)[:, 3:] for state, size in
                  ((start, library), (other, library), (start, 3 * library))]  # fmt: skip
    assert not torch.allclose(of_protein[0], of_protein[1])
    assert not torch.allclose(of_protein[0], of_protein[2])
    for log_prob in of_protein:
        torch.testing.assert_close(log_prob.exp().sum(1), torch.ones(1))


def test_centred_gene_weights_give_the_same_predictions() -> None:
    module = make()
    weights = module.gene_weights()
    assert weights is not None
    for block in weights.split((3, 2), dim=2):
        torch.testing.assert_close(block.sum(2), torch.zeros(block.shape[:2]), atol=1e-6, rtol=0)
    counts, nothing = csr(CELLS), unconditional(3)
    before = module.expression(counts, nothing)
    with torch.no_grad():
        readout = module.ema_denoiser.network.readout
        linear, units = weights.tensor_split([readout.heads.shape[2]], dim=1)
        readout.gene_weights.copy_(linear.flatten(0, 1))
        readout.unit_weights.copy_(units.flatten(0, 1))
    torch.testing.assert_close(module.expression(counts, nothing), before)


def test_every_type_of_condition_goes_with_several_modalities(conditions: Conditions[Tensor]) -> None:
    module = make(SPECS, condition_dropout=0.3).train()
    counts = csr(np.random.default_rng(0).poisson(5, (4, 5)))
    module.loss(counts, conditions).loss.backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in module.denoiser.parameters())
    grown = module.generate(conditions, module.library(counts), guidance=Guidance(2.0), n_steps=3, generator=seeded())
    torch.testing.assert_close(module.library(grown.to_sparse_csr()), module.library(counts))
