"""Responses are transferred by one estimator in every process, in each modality, and at requested numbers."""

import warnings

import anndata
import mudata
import numpy as np
import pandas as pd
import pytest
from small_cells import QUIET

from scdiffgen.model import TokenDiffusion

N_GENES, N_CELLS, RISING = 60, 100, slice(50, 55)
TINY = {"n_tokens": 2, "token_dim": 16, "n_layers": 1}


def screen(n_cells: int = N_CELLS) -> anndata.AnnData:
    """Four types; a drug raises five genes five-fold in three of them, and the fourth was not treated."""
    rng = np.random.default_rng(0)
    rows = [(kind, drug) for kind in range(4) for drug in ("control", "x") if (kind, drug) != (3, "x")]
    obs = pd.DataFrame(rows, columns=["kind", "drug"]).loc[lambda table: table.index.repeat(n_cells)]
    rates = rng.uniform(0.5, 2, N_GENES) * np.ones((len(obs), 1))
    rates[np.arange(len(obs)), obs["kind"]] *= 10
    rates[(obs["drug"] == "x").to_numpy(), RISING] *= 5
    counts = rng.poisson(1500 * rates / rates.sum(1, keepdims=True) * rng.gamma(6, 1 / 6, rates.shape))
    obs = obs.assign(kind="t" + obs["kind"].astype(str)).set_axis([f"c{i}" for i in range(len(obs))])
    return anndata.AnnData(counts.astype(np.float32), obs=obs)


def trained(cells: anndata.AnnData, **options: object) -> TokenDiffusion:
    model = TokenDiffusion(cells, **TINY, **options)
    model.train(max_epochs=2, **QUIET)
    return model


def share(counts: np.ndarray) -> float:
    return counts[:, RISING].sum() / counts.sum()


@pytest.mark.parametrize("process", ["thinning", "gaussian", "latent"])
def test_each_process_transfers_the_same_response(process: str) -> None:
    cells = screen()
    TokenDiffusion.setup_anndata(cells, labels_key="kind", perturbation_key="drug")
    model = trained(cells, process=process)
    controls = np.flatnonzero((cells.obs["kind"] == "t3") & (cells.obs["drug"] == "control"))
    predicted = model.predict_perturbation(None, {"drug": "x"}, indices=controls, silent=True)
    truth = [share(cells.X[(cells.obs["kind"] == "t0") & (cells.obs["drug"] == drug)]) for drug in ("control", "x")]
    found = share(predicted.X) / share(cells.X[controls])
    assert found == pytest.approx(truth[1] / truth[0], rel=0.2)
    drawn = model.generate(pd.DataFrame({"kind": ["t3", "t0"], "drug": "x", "n_cells": 50}), n_steps=4, silent=True)
    sources = [drawn.obs["response_source"][:50].unique().tolist(), drawn.obs["response_source"][50:].unique().tolist()]
    assert sources == [["transferred"], ["own"]] and predicted.obs["response_source"].unique().tolist() == [
        "transferred"
    ]


def test_each_modality_has_a_response_of_its_own() -> None:
    rna, rng = screen(), np.random.default_rng(1)
    means = np.where((rna.obs["drug"] == "x").to_numpy()[:, None], [200, 50, 40], [50, 50, 40])
    protein = anndata.AnnData(rng.poisson(means).astype(np.float32), obs=rna.obs[[]].copy())
    protein.var_names = ["P1", "P2", "P3"]
    cells = mudata.MuData({"rna": rna, "prot": protein})
    cells.obs["kind"], cells.obs["drug"] = rna.obs["kind"], rna.obs["drug"]
    TokenDiffusion.setup_mudata(cells, modalities=["rna", "prot"], labels_key="kind", perturbation_key="drug")
    model = trained(cells)
    controls = np.flatnonzero((cells.obs["kind"] == "t3") & (cells.obs["drug"] == "control"))
    predicted = model.predict_perturbation(None, {"drug": "x"}, indices=controls, silent=True)
    assert share(predicted["rna"].X) > 3 * share(rna.X[controls])
    rise, stays, _ = np.asarray(predicted["prot"].X.mean(0)).ravel() / protein.X[controls].mean(0)
    assert rise / stays == pytest.approx(4, rel=0.3)
    change = model.get_mean_response({"kind": "t3", "drug": "x"})
    assert change.columns.tolist() == ["modality", "gene", "change"] and len(change) == N_GENES + 3
    assert change.set_index(["modality", "gene"])["change"]["prot", "P1"] > 0.3


def test_a_response_follows_a_requested_number() -> None:
    """The drug raises five genes in cells of the first half of an hour alone."""
    cells, rng = screen(600), np.random.default_rng(2)
    cells.obs["hour"] = rng.uniform(size=cells.n_obs)
    late = (cells.obs["hour"] > 0.5).to_numpy() & (cells.obs["drug"] == "x").to_numpy()
    cells.X[np.ix_(late, np.arange(50, 55))] = rng.binomial(cells.X[late, RISING].astype(int), 0.2)
    setup = {"labels_key": "kind", "perturbation_key": "drug", "continuous_covariate_keys": ["hour"]}
    TokenDiffusion.setup_anndata(cells, **setup)
    model = trained(cells)
    asked = pd.DataFrame({"kind": ["t0", "t0", "t3", "t3"], "drug": "x", "hour": [0.1, 0.9, 0.1, 0.9]})
    with pytest.warns(UserWarning, match="no training cell has this 'hour', which counts as a number from "):
        early, after, transferred, _ = model.get_mean_response(asked).iloc[:, RISING].mean(axis=1)
    assert early > 0.8 and abs(after) < 0.2 and transferred > 0.3
    assert model.get_response_weights(asked)["response_source"].tolist() == ["own", "own", "transferred", "transferred"]


def test_a_time_that_no_cell_has_is_answered_by_a_measured_one_and_says_so() -> None:
    """The drug acts at 6 h alone; a bin of times holds 6 h, and another 24 h."""
    cells, rng = screen(300), np.random.default_rng(2)
    cells.obs["time"] = np.resize([6.0, 6.0, 24.0], cells.n_obs)
    late = ((cells.obs["time"] == 24) & (cells.obs["drug"] == "x")).to_numpy()
    cells.X[np.ix_(late, np.arange(50, 55))] = rng.binomial(cells.X[late, RISING].astype(int), 0.2)
    setup = {"labels_key": "kind", "perturbation_key": "drug", "continuous_covariate_keys": ["time"]}
    TokenDiffusion.setup_anndata(cells, **setup)
    model = trained(cells)
    measured = pd.DataFrame({"kind": "t0", "drug": "x", "time": [6.0, 24.0]})
    with warnings.catch_warnings(action="error", category=UserWarning):
        early, late = model.get_mean_response(measured).to_numpy()
    assert early[RISING].mean() > 0.8 and abs(late[RISING].mean()) < 0.2
    between = {"kind": "t0", "drug": "x", "time": 12.0}
    with pytest.warns(UserWarning, match=r"'t0', 'x', .*: no training cell has this 'time', which counts as 6\."):
        np.testing.assert_array_equal(model.get_mean_response(between)["change"], early)
    requests = pd.DataFrame({"kind": "t0", "drug": ["x", "x", "control"], "time": [12.0, 30.0, 12.0]})
    told = "no training cell has this 'time', which counts as "
    assert model.get_response_weights(requests)["cautions"].tolist() == [told + "6", told + "24", ""]
    controls = cells[(cells.obs["kind"] == "t0") & (cells.obs["drug"] == "control")].copy()
    controls.obs["time"] = 12.0
    with pytest.warns(UserWarning, match=rf"The response to 'x': {told}6\."):
        model.predict_perturbation(controls, {"drug": "x"}, silent=True)
