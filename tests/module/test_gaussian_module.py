"""Gaussian diffusion of expression against scanpy's normalisation and closed forms of a network that says nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scanpy as sc
import torch
from anndata import AnnData
from csr import csr
from module_parts import SIZE, SPECS
from networks import seeded
from parts import unconditional
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.module import GaussianModule, GaussianOptions

N_GENES = 12
COUNTS = np.random.default_rng(0).poisson(np.geomspace(0.5, 40, N_GENES), (400, N_GENES)).astype(np.float32)
COUNTS[:, 3] = 0  # a gene that no cell has
PREDICTIONS = ("x0", "eps", "v")


def make(*, silent: bool = False, **options: Any) -> GaussianModule:
    """A module whose weights are random, or whose network predicts zero."""
    torch.manual_seed(0)
    module = GaussianModule(N_GENES, () if silent else SPECS, SIZE, process_options=GaussianOptions(**options))
    module.initialise((csr(part), unconditional(len(part))) for part in np.split(COUNTS, 4))
    for name, weight in module.named_parameters():
        torch.nn.init.normal_(weight, std=0.0 if silent and "readout" in name else 0.3)
    return module.eval()


def test_vectors_are_scanpys_normalised_expression_standardised() -> None:
    adata = AnnData(COUNTS.copy())
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.scale(adata)
    expected = adata.X * np.sqrt(400 / 399)  # scanpy divides by n - 1
    np.testing.assert_allclose(make().to_vector(csr(COUNTS)), expected, atol=1e-4)


def test_the_vector_of_a_cell_is_that_cell() -> None:
    module = make()
    back = module.to_counts(module.to_vector(csr(COUNTS)), torch.tensor(COUNTS.sum(1)))
    np.testing.assert_array_equal(back, COUNTS)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "rectified"])
@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_predicting_nothing_costs_the_variance_of_what_is_predicted(prediction: str, schedule: str) -> None:
    module = make(silent=True, prediction=prediction, schedule=schedule)
    counts = csr(np.tile(COUNTS[:, [0, 1, 2, *range(4, N_GENES), 0]], (5, 1)))
    nothing = unconditional(len(counts))
    module.initialise([(counts, nothing)])
    losses = [module.loss(counts, nothing).loss.item() for _ in range(3)]
    expected = 2.0 if prediction == "v" and schedule == "rectified" else 1.0  # noise minus data, not a rotation of them
    assert np.mean(losses) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("sampler", ["ddim", "dpm_solver", "ancestral"])
def test_no_velocity_draws_standardised_noise(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact denoiser of independent data of variance 1 has velocity 0 on the circle."""
    module = make(silent=True, prediction="v", schedule="cosine", sampler=sampler)
    n_steps = 500 if sampler == "ancestral" else 60
    monkeypatch.setattr(module, "to_counts", lambda vector, library, generator: vector)
    drawn = module.generate(unconditional(1000), torch.full((1000,), 90.0), n_steps=n_steps, generator=seeded())
    assert float(drawn.std()) == pytest.approx(1.0, abs=0.03)
    assert float(drawn.mean()) == pytest.approx(0.0, abs=0.03)


def test_more_of_a_cell_is_kept_where_less_noise_is_added(conditions: Conditions[Tensor]) -> None:
    module, cells = make(prediction="v"), csr(COUNTS[:4])

    def distance(keep: float) -> float:
        drawn = module.counterfactual(
            cells, conditions, module.predictor(conditions, 4), keep=keep, n_steps=20, generator=seeded()
        )
        return float((drawn.sqrt() - cells.to_dense().sqrt()).square().sum())

    assert distance(0.999) < 0.3 * distance(0.5) < 0.3 * distance(0.0)


def test_counts_are_whole_and_add_up_to_about_the_library_size(conditions: Conditions[Tensor]) -> None:
    library = torch.tensor([5.0, 90.0, 700.0, 2e4])
    drawn = make().generate(conditions, library, n_steps=8, guidance_scale=1.5, generator=seeded())
    assert torch.equal(drawn, drawn.round()) and (drawn >= 0).all()
    assert ((drawn.sum(1) - library).abs() <= N_GENES / 2).all()


def test_validation_is_repeatable_and_withholds_nothing(conditions: Conditions[Tensor]) -> None:
    module, state = make(), torch.get_rng_state()
    module.condition_dropout = 1.0
    first, again, other = (module.validation_loss(csr(COUNTS[:4]), conditions, seeded(seed)).loss for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())


def test_expression_of_a_whole_cell_is_about_its_shares(conditions: Conditions[Tensor]) -> None:
    """At the lowest level of noise a velocity hardly moves the data."""
    found = make(prediction="v").expression(csr(COUNTS[:4]), conditions)
    np.testing.assert_allclose(found, COUNTS[:4] / COUNTS[:4].sum(1, keepdims=True), atol=2e-3)


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_weights_of_the_genes_say_where_the_tokens_lead_the_data(
    prediction: str, conditions: Conditions[Tensor]
) -> None:
    module = make(prediction=prediction)
    cells = csr(COUNTS[:4])
    time = torch.tensor(0.5)  # of the cosine schedule: as much signal as noise

    def logs(bias: Tensor) -> Tensor:
        with torch.no_grad():
            module.ema_denoiser.network.readout.bias.copy_(bias)
            denoise = module.ema_denoiser.bind(conditions)(module.library(cells))
            return denoise(module.to_vector(cells), time) * module.scale

    weights = module.gene_weights()[0, 0]
    trained = module.ema_denoiser.network.readout.loadings()[0, 0]
    moved = logs(trained) - logs(torch.zeros(N_GENES))
    cosine = torch.nn.functional.cosine_similarity(moved, weights.expand_as(moved))
    torch.testing.assert_close(cosine, torch.ones(4))


@pytest.mark.parametrize("name", ["prediction", "schedule", "sampler"])
def test_unknown_settings_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` is 'best': pass one of"):
        GaussianOptions(**{name: "best"})
