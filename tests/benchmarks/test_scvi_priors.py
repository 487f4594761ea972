"""How latents of scVI are drawn, and which of the ways is shown."""

import numpy as np
import pytest
from benchmarks._generation_table import best_prior
from benchmarks._scvi import ScviLatents

CENTRES = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 9.0]])


@pytest.fixture
def latents() -> ScviLatents:
    """Latents without a model: 'one' is a Gaussian, 'three' lie around three centres."""
    rng = np.random.default_rng(0)
    means = np.concatenate([np.zeros((150, 2)), np.repeat(CENTRES, 50, axis=0)])
    there = ScviLatents.__new__(ScviLatents)
    there.known = np.repeat(["one", "three"], 150)
    there.mean, there.variance = means + rng.normal(scale=0.3, size=means.shape), np.full(means.shape, 0.5)
    there.library = np.ones(300)
    there._decode = lambda z, labels, cells, seed: z
    return there


@pytest.mark.parametrize(("label", "n_components"), [("one", 1), ("three", 3)])
def test_bic_finds_the_number_of_clusters(latents: ScviLatents, label: str, n_components: int) -> None:
    assert latents._mixture(label, seed=0).n_components == n_components


def test_only_the_mixture_stays_near_the_clusters(latents: ScviLatents) -> None:
    labels = np.resize(["three", "one"], 400)

    def off(z: np.ndarray) -> float:
        of_three = z[labels == "three"]
        return float(np.linalg.norm(of_three[:, None] - CENTRES, axis=2).min(axis=1).mean())

    true = np.sqrt(0.3**2 + 0.5) * np.sqrt(np.pi / 2)  # mean of a Rayleigh distribution: spread and posterior variance
    assert off(latents.from_mixtures(labels, 0)) == pytest.approx(true, rel=0.15)
    assert off(latents.from_gaussians(labels, 0)) > 2 * true


def test_mixtures_and_gaussians_have_the_mean_of_the_label(latents: ScviLatents) -> None:
    labels = np.repeat("three", 4000)
    for draw in (latents.from_mixtures, latents.from_gaussians, latents.from_posterior):
        np.testing.assert_allclose(draw(labels, 1).mean(axis=0), CENTRES.mean(axis=0), atol=0.3)


def test_a_label_of_two_cells_has_one_component(latents: ScviLatents) -> None:
    latents.known = np.repeat(["rare", "three"], [2, 298])
    assert latents._mixture("rare", seed=0).n_components == 1


def test_tables_show_the_better_prior_beside_all_else() -> None:
    values = {"scVI, Gaussian of the label": 0.7, "scVI, Gaussian mixture of the label": 0.6, "scdiffgen": 0.9}
    scores = {name: {"auc_forest_genes": [auc, auc]} for name, auc in values.items()}
    assert list(best_prior(scores)) == ["scVI, Gaussian mixture of the label", "scdiffgen"]
