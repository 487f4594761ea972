"""Gaussian diffusion of normal scores against normal distributions, and against the simulated cells that it is of."""

from typing import Any

import numpy as np
import pytest
import torch
from csr import csr
from module_parts import SIZE, SPECS
from networks import seeded
from parts import category, chosen
from scipy import stats
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import to_scipy
from scdiffgen.module import DiffusionModule, GaussianOptions, Guidance
from scdiffgen.normal_scores import FactorModel, ReferenceDistribution

N_GENES = 13  # the last one holds the rest of the library size, so that others do not share it
LABEL = ConditionSpec("cell_type", "category", registry_key="labels", n_categories=2)
DRUG = SPECS[-1]
EFFECTS = np.zeros((4, N_GENES))  # of label b, and of three drugs, on the means of the scores
EFFECTS[[0, 1, 2], [1, 2, 3]] = 1.5, 1.0, -1.5
LOADINGS = np.where(np.arange(N_GENES) < 6, 0.6, 0.0)[None]
REFERENCE = ReferenceDistribution(np.full(N_GENES, 1 / 24), np.full(N_GENES, 2.0))
LIBRARY = 120.0


def simulated(labels: np.ndarray, drugs: np.ndarray, seed: int = 0) -> Tensor:
    """Counts of labels, and drugs -1 (untreated) to 2, with one factor."""
    rng = np.random.default_rng(seed)
    means = EFFECTS[0] * labels[:, None] + np.where(drugs[:, None] < 0, 0.0, EFFECTS[drugs + 1])
    noise = np.sqrt(1 - (LOADINGS**2).sum(0)) * rng.standard_normal(means.shape)
    scores = means + rng.standard_normal((len(labels), 1)) @ LOADINGS + noise
    counts = REFERENCE.to_counts(scores, np.full(len(labels), LIBRARY)).toarray()
    counts[:, -1] = np.maximum(LIBRARY - counts[:, :-1].sum(1), 0)
    return csr(counts)


def given(labels: list[int | None], drugs: list[Any] | None = None, doses: list[Any] | None = None) -> Conditions:
    """Conditions of cells; drugs are lists of ids, by default without doses."""
    doses = [[np.nan] * len(each) for each in drugs or ()] if doses is None else doses
    of_drugs = {} if drugs is None else {"drug": chosen(drugs, doses)}
    return Conditions({"cell_type": category(labels), **of_drugs}, len(labels))


def made(*specs: ConditionSpec, n_cells: int = 3000, **options: Any) -> DiffusionModule:
    """A module that starts from simulated cells: a gets drugs 0 and 1, b the first alone; it has no network yet."""
    torch.manual_seed(0)
    module = DiffusionModule(N_GENES, specs or (LABEL, DRUG), SIZE, process=GaussianOptions(**options))
    labels = np.arange(n_cells) % 2
    drugs = np.where(labels == 0, np.arange(n_cells) // 2 % 3 - 1, np.arange(n_cells) // 2 % 2 - 1)
    parts = [[] if drug < 0 else [drug] for drug in drugs.tolist()]
    conditions = given(labels.tolist(), parts if DRUG in module.specs else None)
    counts = simulated(labels, drugs if DRUG in module.specs else np.full(n_cells, -1))
    module.start_linearly([(counts, conditions if module.specs else Conditions({}, n_cells))])
    return module.eval()


@pytest.fixture(scope="module")
def module() -> DiffusionModule:
    return made()


def mean_scores(module: DiffusionModule, conditions: Conditions) -> np.ndarray:
    return module.code.frame(conditions.numpy(), np.random.default_rng(0), open_ended=True).means


def test_the_denoiser_is_the_posterior_mean_of_a_normal_vector(module: DiffusionModule) -> None:
    """With one factor of equal loadings the approximation by one variance an axis is exact."""
    loadings, noisy = np.full((1, N_GENES), 0.6), torch.randn(4, N_GENES)
    denoiser, model = made(n_cells=40).denoiser, FactorModel(REFERENCE, loadings)
    denoiser.start(model, loadings / np.linalg.norm(loadings))
    level = module.path.schedule(torch.tensor(0.4))
    covariance = np.full((N_GENES, N_GENES), 0.36) + 0.64 * np.eye(N_GENES)
    alpha, sigma = float(level.alpha), float(level.sigma)
    gain = alpha * covariance @ np.linalg.inv(alpha**2 * covariance + sigma**2 * np.eye(N_GENES))
    found = denoiser.to_data(torch.zeros(4, N_GENES), noisy, level)
    np.testing.assert_allclose(found, noisy.numpy() @ gain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "dpm_solver"},
        {"sampler": "ddim"},
        {"schedule": "rectified"},
        {"schedule": "linear", "sampler": "ancestral"},
    ],
    ids=str,
)
def test_every_sampler_draws_the_covariance_of_the_factors(options: dict[str, str]) -> None:
    module = made(n_cells=600, **options)
    loadings = np.linspace(0.3, 0.7, N_GENES)[None]
    for denoiser in module.denoisers:
        denoiser.start(FactorModel(REFERENCE, loadings), loadings / np.linalg.norm(loadings))
    n_cells, n_steps = 4000, {"ddim": 128, "ancestral": 250}.get(options.get("sampler"), 32)
    predict, library, generator = (
        module.bind(given([0] * n_cells, [[]] * n_cells)),
        torch.full((n_cells,), LIBRARY),
        seeded(),
    )
    start = module.path.start(library, N_GENES, generator)
    drawn = module.path.reverse(predict, start, library, n_steps=n_steps, generator=generator)
    expected = loadings.T @ loadings + np.diag(1 - loadings[0] ** 2)
    np.testing.assert_allclose(np.cov(drawn.detach().numpy().T), expected, atol=0.1)


def test_cells_before_training_are_those_of_the_simulation(module: DiffusionModule) -> None:
    n_cells, library = 3000, torch.full((3000,), LIBRARY)
    drawn = module.generate(given([1] * n_cells, [[0]] * n_cells), library, n_steps=32, generator=seeded()).numpy()
    truth = simulated(np.ones(n_cells, dtype=int), np.zeros(n_cells, dtype=int), seed=9).to_dense().numpy()
    np.testing.assert_allclose(drawn.mean(0), truth.mean(0), rtol=0.1)
    np.testing.assert_allclose(np.log1p(drawn[:, :-1]).std(0), np.log1p(truth[:, :-1]).std(0), rtol=0.1)
    within = np.triu_indices(6, 1)
    real, found = (np.corrcoef(np.log1p(cells).T)[within].mean() for cells in (truth, drawn))
    assert found == pytest.approx(real, abs=0.08)


def test_groups_have_their_means_and_others_those_of_the_nearest_group(module: DiffusionModule) -> None:
    control, of_b, *of_drugs = mean_scores(module, given([0, 1, 0, 0], [[], [], [0], [1]]))
    for found, truth in zip((of_b, *of_drugs), EFFECTS[:3, :-1], strict=True):
        assert np.corrcoef((found - control)[:-1], truth)[0, 1] > 0.97
    only_in_a, both, unknown = mean_scores(module, given([1, 0, 1], [[1], [0, 1], [2]]))
    np.testing.assert_array_equal(only_in_a, of_drugs[1])  # the same treatment of another label
    np.testing.assert_array_equal(both, control)  # a treatment of no cell: untreated cells of the label
    np.testing.assert_array_equal(unknown, of_b)


def test_dose_0_is_a_control() -> None:
    module, n = made(n_cells=400), 300
    drugs, doses = [[], [0], [0]] * (n // 3), [[], [0.0], [1.0]] * (n // 3)
    counts = simulated(np.zeros(n, dtype=int), np.where(np.arange(n) % 3 == 2, 0, -1))
    module.start_linearly([(counts, given([0] * n, drugs, doses))])
    control, zero, one = mean_scores(module, given([0] * 3, drugs[:3], doses[:3]))
    np.testing.assert_array_equal(zero, control)
    assert one[2] - control[2] > 0.5 and sorted(module.code.n_cells.tolist()) == [n // 3, 2 * n // 3]


def test_a_missing_label_is_drawn_as_often_as_it_is(module: DiffusionModule) -> None:
    found = mean_scores(module, given([None] * 600, [[]] * 600))[:, 1]
    of_a, of_b = mean_scores(module, given([0, 1], [[], []]))[:, 1]
    is_b = np.isclose(found, of_b)
    assert (is_b | np.isclose(found, of_a)).all()
    assert is_b.mean() == pytest.approx(0.6, abs=0.08)  # 750 of 1,250 untreated cells
    average = module.code.frame(given([None], [[]]).numpy(), None).means[0, 1]
    assert average == pytest.approx(0.6 * of_b + 0.4 * of_a, rel=1e-3)


@pytest.mark.parametrize("scale", [2.0, {"cell_type": 2.0}, {"drug": 3.0}], ids=str)
def test_guidance_multiplies_how_far_a_condition_moves_the_means(module: DiffusionModule, scale: Any) -> None:
    conditions = given([1], [[0]])
    rest = conditions.without(scale if isinstance(scale, dict) else list(conditions))
    plain = module.code.guided_frame(conditions, None, Guidance()).means
    guided = module.code.guided_frame(conditions, None, Guidance(scale)).means
    away = plain - module.code.frame(rest.numpy(), None, open_ended=True).means
    np.testing.assert_allclose(guided, plain + (2.0 if "drug" in str(scale) else 1.0) * away, rtol=1e-6)


def test_a_cell_under_its_own_conditions_stays_what_it_is(module: DiffusionModule) -> None:
    cells = simulated(np.array([0, 1, 1, 0]), np.array([-1, 0, -1, 1]))
    own = given([0, 1, 1, 0], [[], [0], [], [1]])
    same = module.counterfactual(cells, own, own, keep=None, n_steps=2, generator=seeded())
    assert torch.equal(same, cells.to_dense())
    other = given([1, 1, 1, 1], [[], [0], [], [1]])
    moved = module.counterfactual(cells, own, other, keep=None, n_steps=2, generator=seeded())
    assert torch.equal(moved[1:3], cells.to_dense()[1:3])
    assert moved[[0, 3], 1].sum() > cells.to_dense()[[0, 3], 1].sum()


def test_more_of_a_cell_is_kept_where_less_noise_is_added(module: DiffusionModule) -> None:
    cells, own = simulated(np.arange(40) % 2, np.full(40, -1)), given([0, 1] * 20, [[]] * 40)

    def distance(keep: float) -> float:
        drawn = module.counterfactual(cells, own, own, keep=keep, n_steps=20, generator=seeded())
        return float((drawn.sqrt() - cells.to_dense().sqrt()).square().sum())

    assert distance(0.999) < 0.3 * distance(0.5) < 0.3 * distance(0.0)


def test_scores_are_drawn_in_the_intervals_of_the_counts(module: DiffusionModule) -> None:
    cells, own = simulated(np.zeros(50, dtype=int), np.full(50, -1)), given([0] * 50, [[]] * 50)
    frame, model = module.code.frame(own.numpy(), None), module.code.model()
    drawn = module.code.draw(to_scipy(cells), frame, np.random.default_rng(0), n_draws=300)
    for one in (drawn[:, 0], drawn[:, -1]):
        scores = frame.means + frame.deviations * one
        back = model.reference.to_counts(scores, cells.to_dense().sum(1).double().numpy())
        np.testing.assert_array_equal(back.toarray(), cells.to_dense())
    expected = model.expect_scores(model.ends(to_scipy(cells), frame))
    assert np.corrcoef(drawn.mean(1).ravel(), expected.ravel())[0, 1] > 0.99
    assert np.abs(drawn.mean(1) - expected).mean() < 0.08


def test_expected_counts_are_those_of_an_integral() -> None:
    shares, library = np.array([0.002, 0.05, 0.948]), np.array([500.0])
    reference = ReferenceDistribution(shares, np.array([0.5, 2.0, 20.0]))
    means, deviations = np.array([[0.5, -0.4, 1.0]]), np.array([[0.6, 0.8, 0.3]])
    found = reference.expected_counts(means, deviations, library)[0]
    quantiles = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    scores = means + deviations * quantiles[:, None]
    counts = reference.to_counts(scores, np.full(len(scores), library[0])).toarray()
    np.testing.assert_allclose(found, counts.mean(0), rtol=5e-3)


def test_expression_is_near_the_shares_of_deep_cells() -> None:
    module, labels = made(LABEL, n_cells=600), np.arange(40) % 2
    cells = simulated(labels, np.full(40, -1))
    found = module.expression(cells, given(labels.tolist())).numpy()
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    assert np.corrcoef(found.mean(0), cells.to_dense().numpy().mean(0))[0, 1] > 0.99


def test_tokens_explain_the_factors(module: DiffusionModule) -> None:
    """Before training, hidden vectors times their weights are the scores that the factors say."""
    cells, own = simulated(np.zeros(50, dtype=int), np.full(50, -1)), given([0] * 50, [[]] * 50)
    model, frame = module.code.model(), module.code.frame(own.numpy(), None)
    expected = model.expect_scores(model.ends(to_scipy(cells), frame)) @ model.posterior()[0] @ model.loadings
    found = torch.einsum("ctr,trg->cg", module.hidden(cells, own), module.ema_denoiser.network.readout.loadings())
    assert np.corrcoef(found.numpy().ravel(), expected.ravel())[0, 1] > 0.99
    assert module.gene_weights().shape == module.ema_denoiser.network.readout.loadings().shape


def test_training_sees_draws_of_the_scores_and_validation_is_repeatable() -> None:
    module = made(LABEL, n_cells=200)
    batch = {"X": simulated(np.zeros(30, dtype=int), np.full(30, -1)), "labels": torch.zeros(30, 1)}
    cached = module.compute_once(batch)
    cells, conditions = module.unpack(cached)
    assert cells.vector.shape[::2] == (30, N_GENES) and (conditions["cell_type"].ids == 0).all()
    losses = [module.loss(cells, conditions).loss.item() for _ in range(200)]
    assert np.mean(losses) < 1  # of noise that is predicted as nothing
    first, again, other = (module.validation_loss(cells, conditions, seeded(seed)).loss for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_module_is_loaded_with_tables_of_any_length(module: DiffusionModule) -> None:
    other = DiffusionModule(N_GENES, (LABEL, DRUG), SIZE, process="gaussian").eval()
    other.load_state_dict(module.state_dict())
    conditions, library = given([0, 1], [[0], []]), torch.full((2,), LIBRARY)
    first, again = (each.generate(conditions, library, n_steps=4, generator=seeded()) for each in (module, other))
    assert torch.equal(first, again)


def test_every_kind_of_condition_and_none_at_all(conditions: Conditions[Tensor]) -> None:
    module = DiffusionModule(N_GENES, SPECS, SIZE, process="gaussian").eval()
    counts = simulated(np.zeros(4, dtype=int), np.full(4, -1))
    module.start_linearly([(counts, conditions)])
    library = torch.tensor([5.0, 90.0, 700.0, 2e4])
    drawn = module.generate(conditions, library, n_steps=8, generator=seeded())
    assert torch.equal(drawn, drawn.round()) and (drawn >= 0).all()
    assert (drawn[2:].sum(1) > drawn[0].sum()).all()
    empty = DiffusionModule(N_GENES, (), SIZE, process="gaussian").eval()
    empty.start_linearly([(counts, Conditions({}, 4))])
    assert empty.generate(Conditions({}, 2), library[:2], n_steps=4, generator=seeded()).shape == (2, N_GENES)


@pytest.mark.parametrize("name", ["prediction", "schedule", "sampler"])
def test_unknown_settings_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` is 'best': pass one of"):
        GaussianOptions(**{name: "best"})
