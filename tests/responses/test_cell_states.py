"""Responses that depend on the state of a cell: slopes as of scikit-learn, hidden kinds of cells that respond apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from benchmarks.studies.responses import untrained_model
from scipy import sparse
from sklearn.linear_model import Ridge

from scdiffgen._log_normalise import log_normalise
from scdiffgen.model import TokenDiffusion
from scdiffgen.responses import Pseudobulks
from scdiffgen.responses._cell_states import RIDGE, state_slopes, steps_of_cells
from scdiffgen.responses._response_curves import STEPS

N_CELLS, N_GENES, LIBRARY = 250, 80, 2000
SETUP = {"labels_key": "donor", "perturbation_key": "drug", "control": "none"}
MARKERS, INDUCED = slice(0, 20), slice(20, 30)  # of the hidden kind that responds; what it makes once treated
SHARES = {"a": 0.2, "b": 0.5, "c": 0.4, "d": 0.8}  # of this kind in each donor


def cells(rng: np.random.Generator, responding: float, *, treated: bool) -> tuple[np.ndarray, np.ndarray]:
    """Counts, and which cells are of the kind that responds."""
    kind = rng.random(N_CELLS) < responding
    rates = np.ones((N_CELLS, N_GENES))
    rates[kind, MARKERS] = 4.0
    rates[:, INDUCED] = 0.05
    if treated:
        rates[kind, INDUCED] = 3.0
    rates = rates * rng.gamma(20, 1 / 20, rates.shape)
    return rng.poisson(LIBRARY * rates / rates.sum(1, keepdims=True)), kind


@pytest.fixture(scope="module")
def donors() -> tuple[TokenDiffusion, np.ndarray, AnnData]:
    """A model of four donors of which d was not treated; what the cells of d are; treated cells of d."""
    rng, parts, obs, kinds = np.random.default_rng(0), [], [], []
    for donor, share in SHARES.items():
        for drug in ("none", "x"):
            counts, kind = cells(rng, share, treated=drug == "x")
            parts.append(counts)
            kinds.append(kind)
            obs += [{"donor": donor, "drug": drug}] * N_CELLS
    frame = pd.DataFrame(obs, index=[f"cell{i}" for i in range(len(obs))])
    adata = AnnData(sparse.csr_matrix(np.vstack(parts), dtype=np.float32), obs=frame)
    held_out = ((frame["donor"] == "d") & (frame["drug"] == "x")).to_numpy()
    model = untrained_model(adata[~held_out].copy(), SETUP)
    return model, np.concatenate(kinds)[~held_out], adata[held_out]


def predicted(model: TokenDiffusion) -> np.ndarray:
    """Log expression of the untreated cells of donor d, once treated."""
    rows = np.flatnonzero(model.adata.obs["donor"] == "d")
    found = model.predict_perturbation(None, {"drug": "x"}, indices=rows, seed=0, silent=True)
    return log_normalise(found.X).toarray()


def without_states(model: TokenDiffusion) -> np.ndarray:
    """The same by a model that was saved before states were learned."""
    plain = model.training_summary_
    bulks = plain["pseudobulks"]
    names = ("state_covariance", "state_loadings")
    plain["pseudobulks"] = {name: array for name, array in bulks.items() if name not in names}
    assert Pseudobulks.from_plain(plain["pseudobulks"]).state_loadings.shape == (N_GENES, 0)
    found = predicted(model)
    plain["pseudobulks"] = bulks
    return found


def test_hidden_kinds_of_cells_respond_as_they_do_elsewhere(donors: tuple) -> None:
    """In a donor that has four times as many cells that respond as one of the others."""
    model, kinds, real = donors
    kind = kinds[model.adata.obs["donor"] == "d"]
    truth = log_normalise(real.X).toarray()[:, INDUCED].mean()
    known, none = (found[:, INDUCED].mean(1) for found in (predicted(model), without_states(model)))
    assert abs(known.mean() - truth) < 0.5 * abs(none.mean() - truth)
    apart, before = known[kind].mean() - known[~kind].mean(), none[kind].mean() - none[~kind].mean()
    in_truth = np.log1p(1e4 * 3 / (20 * 4 + 10 * 3 + 50)) - np.log1p(1e4 * 0.05 / 70.5)
    assert apart > 0.5 * in_truth > 0.3 * in_truth > before


def test_predictions_depend_neither_on_the_order_of_cells_nor_on_other_cells(donors: tuple) -> None:
    model = donors[0]
    rows = np.flatnonzero(model.adata.obs["donor"] == "d")[:40]

    def counts(indices: np.ndarray) -> np.ndarray:
        options = {"seed": 0, "silent": True, "batch_size": 10}
        return model.predict_perturbation(None, {"drug": "x"}, indices=indices, **options).X.toarray()

    np.testing.assert_array_equal(counts(rows), counts(rows[::-1])[::-1])


def bulks_of(groups: list[np.ndarray], loadings: np.ndarray) -> Pseudobulks:
    """Groups of cells ``(cells, genes)`` of log expression, of which only what slopes are made of is set."""
    n, none = len(groups), np.zeros(len(groups))
    covariance = np.stack([loadings.T @ np.cov(each.T, bias=True) for each in groups])
    means, variances = (np.stack([getattr(each, name)(0) for each in groups]) for name in ("mean", "var"))
    n_cells = np.array([len(each) for each in groups])
    empty = np.zeros((n, 1))
    of_means = (empty, empty, empty, n_cells, means, means, means, variances)
    return Pseudobulks(*of_means, empty, none, covariance, loadings, empty, empty)


@pytest.mark.parametrize("differs", [True, False])
def test_slopes_are_those_of_ridge_regressions_but_for_chance(differs: bool) -> None:
    rng, n_states = np.random.default_rng(1), 3
    loadings = np.linalg.qr(rng.normal(size=(40, n_states)))[0]
    own = rng.normal(size=(n_states, 40)) * differs
    groups = []
    for treated in (True, False):
        x = 3 + rng.normal(size=(4000, n_states)) @ loadings.T + 0.05 * rng.normal(size=(4000, 40))
        groups.append(x + treated * ((x - x.mean(0)) @ loadings) @ own)
    bulks = bulks_of(groups, loadings)
    before, change = bulks.log_mean[1:], bulks.log_mean[:1] - bulks.log_mean[1:]
    n_cells = np.array([[[4000, 0], [0, 4000]]])
    found = state_slopes(bulks, np.arange(2), n_cells, before, change).slopes
    fitted = []
    for x in groups:
        states = (x - x.mean(0)) @ loadings
        penalty = RIDGE * (states**2).sum() / n_states
        fitted.append(Ridge(penalty, fit_intercept=False).fit(states, x - x.mean(0)).coef_.T)
    ratio = np.minimum(1 + change / before, 1)
    raw = fitted[0] - ratio * fitted[1]
    if differs:
        large = np.abs(raw) > 0.2
        np.testing.assert_allclose(found[large], raw[large], rtol=0.05)
    assert (found**2).sum() <= (raw**2).sum() and (differs or (found**2).sum() < 0.1 * (raw**2).sum() + 1e-6)


def test_steps_are_those_at_which_curves_are_so_much_higher() -> None:
    """By NumPy's interpolation, gene by gene."""
    rng = np.random.default_rng(2)
    curve = np.cumsum(rng.uniform(0.05, 0.5, (6, len(STEPS))), axis=1)
    steps, apart = rng.uniform(-0.5, 0.4, 6), rng.normal(0, 1.5, (50, 6))
    found = steps_of_cells(*(torch.from_numpy(array) for array in (curve, steps, apart))).numpy()
    for gene in range(6):
        level = np.interp(steps[gene], STEPS, curve[gene])
        np.testing.assert_allclose(found[:, gene], np.interp(level + apart[:, gene], curve[gene], STEPS), atol=1e-9)


@pytest.mark.parametrize(
    "counts", [np.full((60, 5), 3.0), np.tile([[0.0, 0, 4, 0, 0]], (60, 1)), np.eye(5)[[0, 1] * 30]]
)
def test_cells_that_do_not_differ_or_in_one_way_alone_have_no_states_or_few(counts: np.ndarray) -> None:
    obs = pd.DataFrame({"donor": "a", "drug": ["none", "x"] * 30}, index=[f"cell{i}" for i in range(60)])
    model = untrained_model(AnnData(sparse.csr_matrix(counts, dtype=np.float32), obs=obs), SETUP)
    bulks = Pseudobulks.from_plain(model.training_summary_["pseudobulks"])
    assert np.isfinite(bulks.state_loadings).all() and np.isfinite(bulks.state_covariance).all()
    found = model.predict_perturbation(None, {"drug": "x"}, indices=[0, 2], seed=0, silent=True)
    np.testing.assert_array_equal(found.X.sum(1), counts[[0, 2]].sum(1)[:, None])
