"""The linear model from which training starts, against simulated truth, scikit-learn and closed properties."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scanpy as sc
import scvi
import torch
from anndata import AnnData
from csr import csr
from module_parts import SIZE, SPECS
from parts import category, chosen, unconditional
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.decomposition._factor_analysis import _ortho_rotation
from small_cells import QUIET, SMALL, simulated_cells, small_model
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.diffusion import Blocks
from scdiffgen.model import NetworkOptions, TokenDiffusion
from scdiffgen.module import DiffusionModule
from scdiffgen.module._linear_start import LinearModel, linear_model, linear_model_of_blocks, start_linearly, varimax

Make = Callable[..., DiffusionModule]
N_GENES = 40


def shares_along_two_axes(n_cells: int, seed: int = 0) -> np.ndarray:
    """Shares of the genes ``(cells, genes)`` whose logarithms move along two directions, each of half of the genes.

    The last gene has most of the molecules and takes up what the others change in the total.
    """
    random = np.random.default_rng(seed)
    directions = random.normal(size=(2, N_GENES - 1)) * (np.arange(N_GENES - 1) % 2 == [[0], [1]])
    rates = np.exp(random.normal(size=(n_cells, 2)).clip(-2, 2) * [0.5, 0.3] @ directions)
    rates /= 3 * rates.sum(1).mean()
    return np.column_stack([rates, 1 - rates.sum(1)])


def counts_of(shares: np.ndarray, depth: int = 3000, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).multinomial(depth, shares)


def log_normalised(counts: np.ndarray) -> np.ndarray:
    cells = AnnData(counts.astype(np.float64))
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    return cells.X


def fitted(counts: np.ndarray, n_components: int = 8) -> LinearModel:
    return linear_model(sparse.csr_matrix(counts.astype(np.float32)), n_components)


# Components.


def test_the_two_axes_of_the_truth_are_found_and_kept() -> None:
    shares = shares_along_two_axes(2000)
    counts = counts_of(shares)
    found = fitted(counts)
    expected = PCA(2, svd_solver="full").fit(log_normalised(counts))
    assert found.axes.shape == (2, N_GENES)
    np.testing.assert_allclose(np.abs((found.axes * expected.components_).sum(1)), 1, atol=1e-6)
    # The spread is that of the expression behind the counts; the cells' own also has the noise of sampling.
    truth = (np.log1p(1e4 * shares) @ found.axes.T).std(0)
    np.testing.assert_allclose(found.spread, truth, rtol=0.05)
    assert (found.spread <= expected.explained_variance_**0.5 * 1.0001).all()


def test_the_spread_of_shallow_cells_is_less_than_that_of_their_counts() -> None:
    """Where sampling noise is as large as what cells have in common, only the latter counts."""
    counts = counts_of(shares_along_two_axes(3000), depth=60)
    found = fitted(counts)
    whole = PCA(2, svd_solver="full").fit(log_normalised(counts)).explained_variance_ ** 0.5
    assert 1 <= len(found.spread) <= 2 and (found.spread < 0.9 * whole[: len(found.spread)]).all()


def test_noise_has_no_components() -> None:
    assert fitted(counts_of(np.full((2000, N_GENES), 1 / N_GENES))).axes.shape == (0, N_GENES)


@pytest.mark.parametrize("n_cells", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("n_genes", [1, 2, 12])
def test_few_cells_have_few_components(n_cells: int, n_genes: int) -> None:
    found = fitted(np.random.default_rng(0).poisson(3, (n_cells, n_genes)) + 1)
    assert found.axes.shape == (len(found.spread), n_genes) and len(found.spread) <= max(n_cells // 2 - 1, 0)


@pytest.mark.parametrize("n_odd", [0, 1])
@pytest.mark.parametrize("molecules", [0, 3])
def test_cells_that_are_alike_have_no_components(n_odd: int, molecules: int) -> None:
    counts = np.full((50, 12), molecules)
    counts[:n_odd, 0] += 2
    assert len(fitted(counts).axes) == 0


# Rotation.


def test_varimax_is_that_of_scikit_learn() -> None:
    loadings = np.random.default_rng(0).laplace(size=(4, 200)) * [[4.0], [3.0], [2.0], [1.0]]
    found, expected = varimax(loadings), _ortho_rotation(loadings.T, method="varimax", tol=1e-10, max_iter=1000)
    overlap = np.abs(np.corrcoef(found, expected)[:4, 4:])
    np.testing.assert_allclose(np.sort(overlap.max(1)), 1, atol=1e-3)
    assert ((found**3).sum(1) > 0).all()
    np.testing.assert_allclose(found.T @ found, loadings.T @ loadings, atol=1e-8)  # it is a rotation


# The network at its start.


def weights_of(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in module.state_dict().items()}


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name, weight in after.items() if not torch.equal(weight, before[name])}


def test_training_starts_at_the_average_cell_and_looks_along_the_axes(make_module: Make) -> None:
    counts = counts_of(shares_along_two_axes(1000), depth=300)  # deeper ones have priors of limited strength
    axes = PCA(2, svd_solver="full").fit(log_normalised(counts)).components_
    module, sample = make_module(N_GENES, (), fresh=True), [(csr(counts), unconditional(1000))]
    random = module.gene_weights().clone()
    module.initialise(sample)
    module.start_linearly(sample)
    # What tokens say of whole cells, before their own molecules count: the shares of all molecules, half of one added.
    prediction = module.bind(unconditional(1000))(csr(counts), module.library(csr(counts)))
    average = (counts.sum(0) + 0.5) / (counts.sum() + 0.5 * N_GENES)
    shares = prediction.log_prob(torch.zeros(1000, N_GENES)).exp().detach()
    np.testing.assert_allclose(shares, np.tile(average, (1000, 1)), rtol=1e-4)
    for denoiser in module.denoisers:
        encoder = denoiser.network.trunk.encoder.weight.detach().numpy()
        np.testing.assert_allclose(np.abs((encoder[:, :2] * axes.T).sum(0)), 1, atol=1e-5)
        np.testing.assert_array_equal(encoder[:, 2:4], -encoder[:, :2])
        assert not encoder[:, 4:].any()
    # The first row of each of the two tokens has its rotated axis, of the length of the spread; the others stay.
    found, rows = fitted(counts), module.gene_weights()
    first = rows[:, 0].numpy()
    np.testing.assert_allclose(first.T @ first, found.axes.T * found.spread**2 @ found.axes, atol=1e-5)
    assert torch.equal(rows[:, 1:], random[:, 1:])


def test_more_components_than_tokens_go_round(make_module: Make) -> None:
    """The leading ones, one a token, are rotated among each other; the fifth is the third of the first token."""
    axes = np.eye(5, N_GENES)
    module = make_module(N_GENES, (), fresh=True)
    start_linearly(module.denoiser.network, LinearModel(axes, np.array([5.0, 4.0, 3.0, 2.0, 1.0])))
    rows = module.denoiser.network.readout.loadings().detach().numpy()
    np.testing.assert_allclose(np.linalg.svd(rows[:, 0])[1], [5, 4], rtol=1e-6)
    for component, (token, row) in {2: (0, 1), 3: (1, 1), 4: (0, 2)}.items():
        np.testing.assert_allclose(rows[token, row], axes[component] * (5 - component), atol=1e-6)


STARTED = ("readout.gene_weights", "readout.heads", "trunk.encoder.weight")


@pytest.mark.parametrize("kind", [None, "learned"])
def test_encoder_and_read_out_alone_start_as_components(kind: str | None) -> None:
    torch.manual_seed(0)
    module = DiffusionModule(N_GENES, (), replace(SIZE, options=NetworkOptions(expression_embedding=kind)))
    before = weights_of(module)
    module.start_linearly([(csr(counts_of(shares_along_two_axes(200))), unconditional(200))])
    of_one = {name for name in changed(before, weights_of(module)) if name.startswith("denoiser.")}
    assert of_one == {f"denoiser.network.{name}" for name in STARTED} and len(module.denoiser.linear_weights()) == 2


def test_without_components_nothing_changes(make_module: Make) -> None:
    module = make_module(N_GENES, (), fresh=True)
    before = weights_of(module)
    module.start_linearly([(csr(counts_of(np.full((2000, N_GENES), 1 / N_GENES))), unconditional(2000))])
    assert changed(before, weights_of(module)) == set()


# Several modalities.


def two_modalities(n_cells: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Counts of two modalities that have nothing to do with each other; the second is ten times as deep."""
    one, other = (shares_along_two_axes(n_cells, seed) for seed in (0, 5))
    return counts_of(one, depth=300), counts_of(other, depth=3000, seed=2)


def test_each_modality_has_components_of_its_own_by_turns() -> None:
    parts = two_modalities()
    absent = np.arange(1000) < 100  # cells without the second
    parts[1][absent] = 0
    found = linear_model_of_blocks(sparse.csr_matrix(np.hstack(parts).astype(np.float32)), Blocks((N_GENES,) * 2), 8)
    alone = [fitted(parts[0], 4), fitted(parts[1][~absent], 4)]
    assert len(found.axes) == len(alone[0].axes) + len(alone[1].axes)
    for place in range(4):
        of_block = alone[place % 2]
        columns = slice(N_GENES * (place % 2), N_GENES * (place % 2 + 1))
        np.testing.assert_allclose(found.axes[place, columns], of_block.axes[place // 2], atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(found.axes[place, columns]), 1)  # and so nothing elsewhere
        assert found.spread[place] == pytest.approx(of_block.spread[place // 2])


def joint_module(depths: tuple[int, int] = (300, 3000)) -> DiffusionModule:
    module = DiffusionModule({"one": N_GENES, "other": N_GENES}, (), SIZE)
    of_each = [counts_of(shares_along_two_axes(200, seed), depth) for seed, depth in zip((0, 5), depths, strict=True)]
    counts = csr(np.hstack(of_each))
    module.initialise([(counts, unconditional(200))])
    module.start_linearly([(counts, unconditional(200))])
    return module


@pytest.mark.parametrize(("depths", "counts_as"), [((300, 3000), 1.0), ((3000, 60), 0.2)])
def test_cells_count_by_their_shallowest_modality(depths: tuple[int, int], counts_as: float) -> None:
    """Of 20,000 cells; the prior counts for 5,000, and less for fewer than 750 columns."""
    decay, share = joint_module(depths).denoiser.regularisation(20_000)
    assert decay == pytest.approx(2 * N_GENES / 750 * 5000 / (20_000 * counts_as))
    assert share == pytest.approx(min(2 * counts_as, 1))
    unknown = DiffusionModule({"one": N_GENES, "other": N_GENES}, (), SIZE)  # not initialised
    assert unknown.denoiser.regularisation(20_000) == joint_module().denoiser.regularisation(20_000)


# Whose components.


def test_a_model_with_perturbations_starts_and_is_matched_like_any_other(make_module: Make) -> None:
    deep = counts_of(shares_along_two_axes(200))
    deep[:10] = deep[:10, ::-1]  # cells of a rare label
    label, drug = category([0] * 10 + [1] * 190), chosen([[0], []] * 100, [[1.0], []] * 100)
    counts, modules = csr(deep), []
    for names in (["cell_type"], ["cell_type", "drug"]):
        module = make_module(N_GENES, tuple(spec for spec in SPECS if spec.name in names), fresh=True)
        given = Conditions({"cell_type": label, "drug": drug}, 200).only(names)
        module.initialise([(counts, given)])
        module.start_linearly([(counts, given)])
        modules.append(module)
    plain, treated = (each.denoiser for each in modules)
    assert torch.equal(treated.network.trunk.encoder.weight, plain.network.trunk.encoder.weight)
    assert torch.equal(treated.label_offsets.table, plain.label_offsets.table) and treated.label_offsets.is_used
    assert treated.limit.on_host == plain.limit.on_host == (True,)
    assert treated.regularisation(100) == plain.regularisation(100) and len(treated.linear_weights()) == 2
    modules[1].match_genes([(counts, given)], n_drawn=200)
    assert (modules[1].code.match.groups[:, 1] == 0).any()  # the drug


def start_of(model: TokenDiffusion, **arguments: Any) -> dict[str, Tensor]:
    """Weights that training starts from: it learns nothing."""
    scvi.settings.seed = 0
    model.train(max_epochs=1, plan_kwargs={"lr": 0.0}, **QUIET, **arguments)
    return {name: weight for name, weight in weights_of(model.module).items() if "encoder.weight" in name}


def two_axes(n_cells: int = 300) -> AnnData:
    cells = AnnData(counts_of(shares_along_two_axes(n_cells)).astype(np.float32))
    cells.obs["cell_type"] = "a"
    return cells


def test_held_out_cells_do_not_enter() -> None:
    split = {"external_indexing": [np.arange(200), np.arange(200, 250), np.arange(250, 300)]}
    cells, other = two_axes(), two_axes()
    other.X[200:] = other.X[200:, ::-1]
    training = two_axes()
    training.X[:200] = training.X[:200, ::-1]
    one, same, changed = (start_of(small_model(a), datasplitter_kwargs=split) for a in (cells, other, training))
    assert len(one) == 2 and all(weight[:, 4:].count_nonzero() == 0 for weight in one.values())
    for name, weight in one.items():
        assert torch.equal(weight, same[name]) and not torch.equal(weight, changed[name])


@pytest.mark.parametrize("n_cells", [5, 20])
@pytest.mark.parametrize("alike", [False, True])
def test_few_cells_and_cells_that_are_alike_train(n_cells: int, alike: bool) -> None:
    cells = simulated_cells(n_cells)
    if alike:
        cells.X[:] = cells.X[0]
    model = small_model(cells)
    model.train(max_epochs=2, **QUIET)
    assert all(torch.isfinite(weight).all() for weight in model.module.parameters())
    assert model.generate(n_cells=3, n_steps=2, silent=True).n_obs == 3


# Other processes.


def test_latent_diffusion_starts_from_dispersions_alone() -> None:
    cells = two_axes()
    TokenDiffusion.setup_anndata(cells, labels_key="cell_type")
    module = TokenDiffusion(cells, process="latent", **SMALL).module
    before = weights_of(module)
    module.start_linearly([(csr(cells.X), unconditional(cells.n_obs))])
    parts = [f"{which}denoiser.autoencoder.likelihood.log_dispersion" for which in ("", "ema_")]
    assert changed(before, weights_of(module)) == {*parts} and list(module.denoiser.linear_weights()) == []
    assert {module.denoiser.regularisation(n_cells) for n_cells in (10, 1_000_000)} == {(0.01, 1.0)}
