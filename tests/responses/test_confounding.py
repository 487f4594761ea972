"""Batch effects are not taken for responses: simulated screens in which treatment and batch are partly confounded."""

import warnings

import numpy as np
import pytest
from anndata import AnnData
from scipy import sparse
from simulated_responses import DRUG_GENE, drug_screen, log_mean
from small_cells import QUIET

from scdiffgen.model import TokenDiffusion
from scdiffgen.responses import ResponseEstimator

TINY = {"n_tokens": 2, "token_dim": 16, "n_layers": 1}
DESIGNS = {  # untreated and treated cells of each batch, in each context
    "nested": [(200, 0), (200, 0), (0, 200), (0, 200), (150, 150), (150, 150)],
    "partly crossed": [(150, 150), (150, 150), (0, 300)],
    "lanes": [(380, 20), (20, 380)],
    "small batches": [(15, 6), (6, 15)] * 20,
    "few treated cells in each batch": [(60, 18), (90, 4), (40, 12)],
    "small batches, some of one arm": [(12, 12)] * 8 + [(18, 0), (0, 18)] * 3,
}
PLATE_AN_ARM = [(300, 0), (0, 300)]
CONFOUNDED = "treatment and batch are confounded"


def screen(design: list[tuple[int, int]], n_contexts: int) -> tuple[np.ndarray, AnnData]:
    """The true change and the cells of a design; the last of several contexts was not treated."""
    simulated = drug_screen(n_contexts)
    groups = []
    for context in list(simulated.base):
        treated = n_contexts == 1 or context != list(simulated.base)[-1]
        for batch, (n_untreated, n_treated) in enumerate(design):
            groups += [(context, batch, "control", n_untreated), (context, batch, "x", treated * n_treated)]
    counts, obs = simulated.cells(np.random.default_rng(2), groups)
    return simulated.change("a", "x"), AnnData(sparse.csr_matrix(counts, dtype=np.float32), obs=obs)


def assert_right(change: np.ndarray, truth: np.ndarray, n_batches: int) -> None:
    assert np.abs(change[:n_batches]).max() < 0.1, change[:n_batches].round(2)
    assert abs(change[DRUG_GENE] - truth[DRUG_GENE]) < 0.15 < truth[DRUG_GENE]


@pytest.mark.parametrize("n_contexts", [1, 4])
@pytest.mark.parametrize("design", DESIGNS)
def test_batch_effects_are_no_responses(design: str, n_contexts: int) -> None:
    truth, adata = screen(DESIGNS[design], n_contexts)
    estimator = ResponseEstimator.fit(adata.X, adata.obs["type"], adata.obs["batch"], adata.obs["drug"])
    for context in estimator.contexts:
        found = estimator.predict("x", context)
        assert_right(found.change, truth, len(DESIGNS[design]))
        own = n_contexts == 1 or context != estimator.contexts[-1]
        assert not found.cautions and found.source == ("own" if own else "transferred")


@pytest.mark.parametrize("n_untreated", [12, 60])
def test_small_groups_are_pooled_over_batches(n_untreated: int) -> None:
    simulated, drugs = drug_screen(4), {"control": (n_untreated, n_untreated), "own": (18, 4), "y": (3, 19)}
    simulated.factors["own"] = np.roll(simulated.factors["x"], -1)  # the last type responds to "x" by another gene
    large = [(context, batch, arm, 60) for context in "abc" for batch in (0, 1) for arm in ("control", "x")]
    small = [("d", batch, arm, n) for arm, of_batch in drugs.items() for batch, n in enumerate(of_batch)]
    counts, obs = simulated.cells(np.random.default_rng(0), large + small)
    estimator = ResponseEstimator.fit(counts, obs["type"], obs["batch"], obs["drug"].replace("own", "x"))
    for drug, truth in (("x", simulated.change("d", "own")), ("y", simulated.change("d", "control"))):
        assert np.abs(estimator.predict(drug, "d").change - truth).max() < 0.25


@pytest.mark.parametrize("n_contexts", [1, 4])
def test_one_plate_an_arm_is_said_to_be_confounded(n_contexts: int) -> None:
    """Nothing tells the plate from the drug: the change holds both."""
    truth, adata = screen(PLATE_AN_ARM, n_contexts)
    estimator = ResponseEstimator.fit(adata.X, adata.obs["type"], adata.obs["batch"], adata.obs["drug"])
    for context in estimator.contexts:
        found = estimator.predict("x", context)
        assert found.change[0] < -0.8 and found.change[1] > 0.8
        assert abs(found.change[DRUG_GENE] - truth[DRUG_GENE]) < 0.15
        assert any(CONFOUNDED in caution for caution in found.cautions)


def mean_change(adata: AnnData, context: str) -> np.ndarray:
    """Change of mean log expression that a model of one epoch predicts for the untreated cells of a context."""
    TokenDiffusion.setup_anndata(adata, labels_key="type", batch_key="batch", perturbation_key="drug")
    model = TokenDiffusion(adata, **TINY)
    model.train(max_epochs=1, batch_size=512, **QUIET)
    untreated = np.flatnonzero((adata.obs["type"] == context) & (adata.obs["drug"] == "control"))
    predicted = model.predict_perturbation(None, {"drug": "x"}, indices=untreated, seed=0, silent=True)
    assert set(predicted.obs["response_source"]) <= {"own", "transferred"}
    return log_mean(predicted.X.toarray()) - log_mean(adata.X[untreated].toarray())


@pytest.mark.parametrize(("design", "n_contexts"), [*((design, 1) for design in DESIGNS), ("nested", 4), ("lanes", 4)])
def test_predicted_cells_do_not_change_batch(design: str, n_contexts: int) -> None:
    truth, adata = screen(DESIGNS[design], n_contexts)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The response to")
        change = mean_change(adata, adata.obs["type"].max())
    assert_right(change, truth, len(DESIGNS[design]))


def test_a_prediction_from_one_plate_an_arm_warns() -> None:
    truth, adata = screen(PLATE_AN_ARM, 1)
    with pytest.warns(UserWarning, match=CONFOUNDED):
        change = mean_change(adata, "a")
    assert change[0] < -0.8 and change[1] > 0.8 and abs(change[DRUG_GENE] - truth[DRUG_GENE]) < 0.15
