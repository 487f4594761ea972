"""Cells under other conditions: what stays, what changes, and what lies between two conditions."""

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse
from small_cells import QUIET, simulated_cells, simulated_shares, trained_model

from scdiffgen._log_normalise import log_normalise
from scdiffgen.model import NetworkOptions, TokenDiffusion
from scdiffgen.model._transferred_responses import NOISE

pytestmark = pytest.mark.filterwarnings("ignore:.* have a treatment already:UserWarning")
FAST = {"batch_size": 64, "network": NetworkOptions(dropout=0.0), "plan_kwargs": {"lr": 5e-3}}


def library(cells: AnnData) -> np.ndarray:
    return np.asarray(cells.X.sum(1)).ravel()


def predict(model: TokenDiffusion, adata: AnnData | None, conditions: dict, **options) -> AnnData:
    return model.predict_perturbation(adata, conditions, **{"n_steps": 4, "seed": 0, "silent": True, **options})


def test_a_predicted_cell_has_name_depth_and_other_columns_of_its_own(small: TokenDiffusion) -> None:
    twins = predict(small, None, {"cell_type": "b"}, indices=[9, 2, 4])
    own = simulated_cells(120).obs.iloc[[9, 2, 4]]
    assert twins.obs_names.equals(own.index)
    assert twins.obs["cell_type"].tolist() == ["b"] * 3
    pd.testing.assert_frame_equal(twins.obs[["batch", "age"]], own[["batch", "age"]])
    np.testing.assert_array_equal(library(twins), small.adata.X[[9, 2, 4]].sum(1))
    assert twins.X.dtype == np.int32 and "unseen_in_training" in twins.obs


def test_cells_become_more_like_the_type_that_they_are_asked_to_be(small: TokenDiffusion) -> None:
    means = {label: small.adata.X[small.adata.obs["cell_type"] == label].sum(0) for label in "ab"}
    chosen = np.flatnonzero(small.adata.obs["cell_type"] == "a")
    made = np.asarray(predict(small, None, {"cell_type": "b"}, indices=chosen).X.sum(0)).ravel()
    assert np.corrcoef(made, means["b"])[0, 1] > np.corrcoef(made, means["a"])[0, 1]


def test_what_is_kept_ties_the_prediction_to_its_cell(small: TokenDiffusion) -> None:
    shared = []
    for keep in (0.0, 0.5, 0.95):
        made = predict(small, None, {"cell_type": "b"}, keep_fraction=keep).X.toarray()
        shared.append(np.minimum(made, small.adata.X).sum() / small.adata.X.sum())
    assert shared[0] < shared[1] < shared[2] and shared[2] > 0.95


def test_the_cells_given_stay_as_they_are(small: TokenDiffusion, other_cells: AnnData) -> None:
    before = other_cells.copy()
    first, again = (predict(small, other_cells, {"cell_type": "a"}) for _ in range(2))
    np.testing.assert_array_equal(first.X.toarray(), again.X.toarray())
    np.testing.assert_array_equal(other_cells.X, before.X)
    pd.testing.assert_frame_equal(other_cells.obs[list(before.obs)], before.obs)


def test_a_batch_is_a_condition_like_others(small: TokenDiffusion) -> None:
    moved = small.transfer_batch(None, "y", indices=[1, 0], keep_fraction=0.2, n_steps=4, seed=0, silent=True)
    np.testing.assert_array_equal(
        moved.X.toarray(), predict(small, None, {"batch": "y"}, indices=[1, 0], keep_fraction=0.2).X.toarray()
    )
    assert moved.obs["batch"].tolist() == ["y", "y"]


@pytest.fixture(scope="module")
def batches() -> TokenDiffusion:
    """Two types that are not registered; batch ``y`` has ten times as much of gene 0, and a drug turns gene 1 up."""
    adata, random = simulated_cells(300), np.random.default_rng(0)
    adata.X[adata.obs["batch"] == "y", 0] += random.poisson(30, (adata.obs["batch"] == "y").sum())
    adata.obs["drug"] = random.choice(["control", "drug"], adata.n_obs)
    adata.X[adata.obs["drug"] == "drug", 1] += random.poisson(30, (adata.obs["drug"] == "drug").sum())
    return trained_model(adata, 50, **FAST, batch_key="batch", perturbation_key="drug")


def test_cells_of_another_batch_keep_type_and_treatment(batches: TokenDiffusion) -> None:
    own, obs = batches.adata.X, batches.adata.obs
    moved = batches.transfer_batch(None, "x", n_steps=4, silent=True)
    counts, rows = moved.X.toarray(), (obs["batch"] == "y").to_numpy()
    np.testing.assert_array_equal(counts[~rows], own[~rows])  # they are of this batch
    np.testing.assert_array_equal(counts.sum(1), own.sum(1))
    shares, before = counts / counts.sum(1, keepdims=True), own / own.sum(1, keepdims=True)
    target = before[~rows, 0].mean()
    assert abs(shares[rows, 0].mean() - target) < 0.25 * (before[rows, 0].mean() - target)
    treated = (obs["drug"] == "drug").to_numpy()
    gap, gap_before = (of[rows & treated, 1].mean() - of[rows & ~treated, 1].mean() for of in (shares, before))
    assert gap > 0.8 * gap_before
    assert (moved.obs["drug"] == obs["drug"]).all() and (moved.obs["batch"] == "x").all()

    def own_types(of: np.ndarray) -> float:
        """Share of the moved cells that are more like the mean of their type than that of the other."""
        means = np.stack([before[(obs["cell_type"] == label).to_numpy()][:, 2:].mean(0) for label in "ab"])
        nearest = np.array([*"ab"])[np.square(of[rows, None, 2:] - means).sum(2).argmin(1)]
        return float((nearest == obs["cell_type"][rows]).mean())

    forgotten = batches.transfer_batch(None, "x", keep_fraction=0.0, n_steps=4, silent=True).X.toarray()
    assert own_types(before) > 0.95 and own_types(shares) > own_types(before) - 0.05
    assert own_types(forgotten / forgotten.sum(1, keepdims=True)) < 0.7  # a new cell, of any type


def test_a_faint_batch_effect_is_taken_away() -> None:
    """Batch ``y`` has half as many molecules of a tenth of the genes."""
    random, faint, shares = np.random.default_rng(0), np.arange(200) < 20, simulated_shares(3, 200)
    is_y = random.integers(0, 2, 600).astype(bool)
    rates = shares[random.integers(0, 3, 600)] * np.where(is_y[:, None] & faint, 0.5, 1.0)
    counts, obs = random.poisson(300 * rates).astype(np.float32), pd.DataFrame({"batch": np.where(is_y, "y", "x")})
    model = trained_model(AnnData(counts, obs.set_index(obs.index.astype(str))), 20, **FAST, batch_key="batch")
    moved = model.transfer_batch(None, "x", seed=0, silent=True).X.toarray()

    def log_ratio(cells: np.ndarray) -> float:
        of_y, of_x = (cells[rows].sum(0) / cells[rows].sum() for rows in (is_y, ~is_y))
        return float(np.median(np.log2(of_y[faint] / of_x[faint])))

    assert log_ratio(counts) < -0.8 and abs(log_ratio(moved)) < 0.2


@pytest.fixture(scope="module")
def dosed() -> TokenDiffusion:
    """A drug that turns gene 0 up with its dose, given to cells of type ``a`` only."""
    adata, random = simulated_cells(300), np.random.default_rng(0)
    dose = random.choice([0.0, 1.0, 10.0], adata.n_obs) * (adata.obs["cell_type"] == "a").to_numpy()
    adata.obs["drug"], adata.obs["dose"] = np.where(dose > 0, "drug", "control"), dose
    adata.X[:, 0] += random.poisson(30 * dose / (1 + dose))
    return trained_model(adata, 50, **FAST, labels_key="cell_type", perturbation_key="drug", dose_key="dose")


def test_a_response_grows_with_the_dose_and_transfers_to_a_type_never_treated(dosed: TokenDiffusion) -> None:
    controls = np.flatnonzero((dosed.adata.obs["drug"] == "control") & (dosed.adata.obs["cell_type"] == "b"))
    options = {"indices": controls, "n_steps": 8, "silent": True}
    with pytest.warns(UserWarning, match="doses beyond the largest measured dose, 10, have"):
        curve = dosed.dose_response(None, "drug", [0.0, 1.0, 10.0, 10.1], gene_list=["gene0", "gene5"], **options)
    assert curve.columns.tolist() == ["dose", "gene", "mean", "low", "high", "extrapolated"]
    assert (curve["extrapolated"] == (curve["dose"] > 10.0)).all()  # the largest dose given
    assert ((curve["low"] <= curve["mean"]) & (curve["mean"] <= curve["high"])).all()
    rising = curve[curve["gene"] == "gene0"].set_index("dose")["mean"]
    assert rising[0.0] + 0.2 < rising[1.0] < rising[10.0]


def test_a_treated_cell_keeps_what_the_treatment_does_not_concern(dosed: TokenDiffusion) -> None:
    controls = np.flatnonzero((dosed.adata.obs["drug"] == "control") & (dosed.adata.obs["cell_type"] == "b"))
    own = dosed.adata.X[controls]
    coupled = predict(dosed, None, {"drug": "drug", "dose": 10.0}, indices=controls).X.toarray()
    grown = predict(dosed, None, {"drug": "drug", "dose": 10.0}, indices=controls, keep_fraction=0.0).X.toarray()
    assert coupled[:, 0].mean() > 2 * own[:, 0].mean()
    network = predict(dosed, None, {"drug": "drug", "dose": 10.0}, indices=controls, source="network")
    np.testing.assert_array_equal(library(network), own.sum(1))
    others, before = (each[:, 1:].sum(0) for each in (coupled, own))
    assert 0.75 < others.sum() / before.sum() < 1.05  # library sizes of this type were not measured
    assert np.corrcoef(others, before)[0, 1] > 0.95
    same = predict(dosed, None, {"drug": "drug", "dose": 10.0, "cell_type": "b"}, indices=controls).X.toarray()
    np.testing.assert_array_equal(coupled, same)  # a condition that the cells have already is no change
    shares = [np.minimum(made, own)[:, 1:].sum() / made[:, 1:].sum() for made in (coupled, grown)]
    assert shares[0] > 0.9 > shares[1] + 0.05


def test_dose_0_is_the_control(dosed: TokenDiffusion) -> None:
    chosen = np.arange(40)
    nothing = predict(dosed, None, {"drug": "drug", "dose": 0.0}, indices=chosen)
    control = predict(dosed, None, {"drug": "control"}, indices=chosen)
    np.testing.assert_array_equal(nothing.X.toarray(), control.X.toarray())


def test_a_treatment_never_seen_in_a_type_is_marked(dosed: TokenDiffusion) -> None:
    predicted = predict(dosed, None, {"drug": "drug", "dose": 1.0}, indices=np.arange(50))
    expected = predicted.obs["cell_type"] == "b"
    assert predicted.obs["unseen_in_training"].tolist() == expected.tolist()


@pytest.fixture(scope="module")
def treated() -> TokenDiffusion:
    """Three types that the treatment changes alike in gene 0 and gene 1, the last of which was never treated."""
    adata, random = simulated_cells(600), np.random.default_rng(0)
    adata.obs["cell_type"] = np.repeat(["a", "b", "c"], 200)
    adata.X = random.poisson(random.gamma(5, 1, (3, adata.n_vars)).repeat(200, 0) * 3).astype(np.float32)
    stimulated = (np.arange(600) % 2 == 1) & (adata.obs["cell_type"] != "c").to_numpy()
    adata.X[stimulated, 0] += random.poisson(60, stimulated.sum())
    adata.X[stimulated, 1] = random.poisson(0.2, stimulated.sum())
    adata.obs["stim"] = np.where(stimulated, "IFN", "control")
    return trained_model(adata, 10, **FAST, labels_key="cell_type", perturbation_key="stim")


def test_a_response_is_transferred_from_where_it_was_measured(treated: TokenDiffusion, tmp_path) -> None:
    adata = treated.adata
    untreated = np.flatnonzero(adata.obs["cell_type"] == "c")
    twins = predict(treated, None, {"stim": "IFN"}, indices=untreated)
    assert set(twins.obs["response_source"]) == {"transferred"}
    there = adata.X[untreated]
    truth = np.log((there.sum() + 60 * len(there) - there[:, 1].sum()) / there.sum())
    assert 0 < np.log(library(twins) / there.sum(1)).mean() < truth  # library sizes of this type were not measured
    shares = {name: cells.sum(0) / cells.sum() for name, cells in (("own", adata.X[untreated]), ("twins", twins.X))}
    own, made = np.asarray(shares["own"]).ravel(), np.asarray(shares["twins"]).ravel()
    seen = {
        state: adata.X[(adata.obs["cell_type"] != "c") & (adata.obs["stim"] == state)].sum(0)
        for state in ("control", "IFN")
    }
    change = (seen["IFN"] / seen["IFN"].sum()) / (seen["control"] / seen["control"].sum())
    assert made[0] / own[0] > 0.6 * change[0] > 1
    assert change[1] < 0.03 and made[1] / own[1] < 0.06

    halved = predict(treated, None, {"stim": "IFN"}, indices=untreated, guidance_scale={"stim": 0.5})
    assert own[0] < np.asarray(halved.X.sum(0)).ravel()[0] / halved.X.sum() < made[0]
    treated.save(tmp_path / "model")
    again = TokenDiffusion.load(tmp_path / "model", adata.copy())
    same = predict(again, None, {"stim": "IFN"}, indices=untreated)
    np.testing.assert_array_equal(same.X.toarray(), twins.X.toarray())


def test_the_network_alone_can_be_asked(treated: TokenDiffusion, dosed: TokenDiffusion) -> None:
    untreated = np.flatnonzero(treated.adata.obs["cell_type"] == "c")
    alone = predict(treated, None, {"stim": "IFN"}, indices=untreated, source="network")
    assert set(alone.obs["response_source"]) == {"network"}
    assert "response" not in predict(treated, None, {"stim": "IFN"}, indices=untreated, keep_fraction=0.1).obs
    for source, said in (("auto", "transferred"), ("network", "network")):
        at_dose = predict(dosed, None, {"drug": "drug", "dose": 3.0}, indices=np.arange(10), source=source)
        assert set(at_dose.obs["response_source"]) == {said}
    with pytest.raises(ValueError, match=r"`source` is 'cells': choose one of \['auto', 'network'\]"):
        predict(dosed, None, {"drug": "drug", "dose": 3.0}, source="cells")


def test_predictions_from_few_contexts_or_beyond_the_largest_dose_warn(
    treated: TokenDiffusion, dosed: TokenDiffusion
) -> None:
    untreated = np.flatnonzero(treated.adata.obs["cell_type"] == "c")
    few, beyond = "measured in only 2 other contexts", "doses beyond the largest measured dose, 10, have its response"
    dose = {"drug": "drug", "dose": 30.0}
    for message, call in (
        (f"response to 'IFN': {few}", lambda: predict(treated, None, {"stim": "IFN"}, indices=untreated)),
        (f"response to 'c', 'IFN': {few}", lambda: treated.get_mean_response({"cell_type": "c", "stim": "IFN"})),
        (f"response to 'drug': {beyond}", lambda: predict(dosed, None, dose, indices=np.arange(5))),
        (f"response to 'drug': {beyond}", lambda: dosed.get_mean_response(dose)),
    ):
        with pytest.warns(UserWarning) as warned:
            call()
        texts = [str(warning.message) for warning in warned]
        assert sum(message in text for text in texts) == 1 == sum("largest" in text or few in text for text in texts), (
            texts
        )


@pytest.mark.parametrize("more_genes", [0, 1])
def test_a_grown_model_knows_responses_of_its_reference(treated: TokenDiffusion, more_genes: int) -> None:
    """The new cells are untreated ones of a new type, with a perturbation of their own in a combination."""
    random = np.random.default_rng(1)
    names = [*treated.adata.var_names, *["new"][:more_genes]]
    obs = pd.DataFrame(
        {"cell_type": "d", "stim": np.repeat(["control", "X+Y"], 60)}, index=[f"n{i}" for i in range(120)]
    )
    cells = AnnData(random.poisson(10, (120, len(names))).astype(np.float32), obs, pd.DataFrame(index=names))
    with pytest.warns(UserWarning, match="neither occurs alone: 'X', 'Y'"):
        query = TokenDiffusion.load_query_data(cells, treated)
    query.train(max_epochs=1, batch_size=64, **QUIET)
    twins = predict(query, None, {"stim": "IFN"}, indices=np.arange(60))
    assert set(twins.obs["response_source"]) == {"network" if more_genes else "transferred"}
    if not more_genes:
        assert twins.X[:, 0].sum() > 1.5 * cells.X[:60, 0].sum() and twins.X[:, 1].sum() < 0.1 * cells.X[:60, 1].sum()
    assert set(predict(query, None, {"stim": "X+Y"}, indices=np.arange(60)).obs["response_source"]) == {"own"}


def test_a_treated_cell_can_be_sent_back(treated: TokenDiffusion) -> None:
    stimulated = np.flatnonzero(treated.adata.obs["stim"] == "IFN")
    back = predict(treated, None, {"stim": "control"}, indices=stimulated)
    controls = (treated.adata.obs["stim"] == "control") & (treated.adata.obs["cell_type"] != "c")
    expected, made = treated.adata.X[controls].sum(0), np.asarray(back.X.sum(0)).ravel()
    there = treated.adata.X[stimulated].sum(0)
    near, far = (np.abs(made / made.sum() - cells / cells.sum())[:2].sum() for cells in (expected, there))
    assert near < 0.4 * far


def test_generated_cells_of_an_untreated_type_respond_like_other_types(treated: TokenDiffusion) -> None:
    asked = pd.DataFrame({"cell_type": ["c", "a", "c"], "stim": ["IFN", "IFN", "control"], "n_cells": 150})
    made = treated.generate(asked, n_steps=8, seed=0, silent=True)
    shares = [made.X[150 * row : 150 * (row + 1)].sum(0) for row in range(3)]
    new, seen, control = (np.asarray(total).ravel() / total.sum() for total in shares)
    assert made.obs["unseen_in_training"].tolist() == [True] * 150 + [False] * 300
    assert new[0] > 1.5 * control[0] and new[1] < 0.6 * control[1]
    assert np.corrcoef(new[2:], control[2:])[0, 1] > np.corrcoef(new[2:], seen[2:])[0, 1]


def test_a_knock_out_never_made_is_predicted_from_others_by_its_features() -> None:
    """Knock-outs turn a gene of their own down and two genes up, the one or the other as their features say."""
    adata, random = simulated_cells(700), np.random.default_rng(0)
    features = {"KO1": [1.0, 0.0], "KO2": [0.0, 1.0], "KO3": [0.5, 0.5], "KO4": [1.0, 1.0], "KO5": [0.0, 0.5]}
    adata.obs["guide"] = random.permuted(np.repeat(["control", "control", *features], 100))
    adata.X = random.poisson(random.gamma(5, 1, adata.n_vars), adata.shape).astype(np.float32)
    for gene in (0, 1):
        adata.X[:, gene] += random.poisson([20 * features.get(guide, [0, 0])[gene] for guide in adata.obs["guide"]])
    adata.uns["vectors"] = features
    model = trained_model(adata, 2, 64, perturbation_key="guide", perturbation_features_key="vectors")
    model.add_perturbation_features({"new": [0.0, 1.0]})
    controls = np.flatnonzero(adata.obs["guide"] == "control")
    twins = predict(model, None, {"guide": "new"}, indices=controls)
    assert set(twins.obs["response_source"]) == {"features"} and twins.obs["unseen_in_training"].all()
    rise = np.asarray(twins.X.mean(0)).ravel() - adata.X[controls].mean(0)
    assert abs(rise[0]) < 3 and 12 < rise[1] < 24
    made = model.generate({"guide": "new"}, 200, n_steps=8, seed=0, silent=True)
    assert made.X[:, 1].mean() > 1.5 * made.X[:, 0].mean()


def test_weights_say_what_a_response_is_made_of(treated: TokenDiffusion) -> None:
    asked = pd.DataFrame({"cell_type": ["c", "a", "c"], "stim": ["IFN", "IFN", "control"]})
    weights = treated.get_response_weights(asked)
    assert weights["response_source"].tolist() == ["transferred", "own", "own"]
    assert weights["cell_type"].tolist() == ["c", "a", "c"]
    assert "measured in only 2 other contexts" in weights["cautions"].iloc[0] and not weights["cautions"].iloc[2]
    assert weights["left_out_pearson"].iloc[0] > 0.8
    numbers = weights.iloc[:, weights.columns.get_loc("cautions") + 1 :]
    np.testing.assert_allclose(numbers.sum(axis=1), 1)
    assert numbers["own cells"].iloc[0] == 0 < numbers["own cells"].iloc[1]
    assert numbers["no change"].iloc[2] == 1
    with pytest.warns(UserWarning, match="response to 'c', 'IFN': measured in only 2"):
        changes = treated.get_mean_response(asked)
    assert NOISE not in weights["response_check"].tolist() == changes.attrs["response_check"]


def test_a_perturbation_without_effect_cannot_be_told_from_noise() -> None:
    """Cells, weights and mean responses say so in the same words."""
    rng, treatment = np.random.default_rng(0), np.repeat(["control", "x", "y"], 100)
    rates = np.where((treatment == "y")[:, None] & (np.arange(20) < 3), 12.0, 4.0)
    obs = pd.DataFrame({"drug": treatment}, index=[f"cell{i}" for i in range(300)])
    adata = AnnData(sparse.csr_matrix(rng.poisson(rates).astype(np.float32)), obs)
    TokenDiffusion.setup_anndata(adata, perturbation_key="drug")
    model = TokenDiffusion(adata)
    model.train(max_epochs=1, enable_progress_bar=False)
    asked = pd.DataFrame({"drug": ["x", "y"]})
    words = model.get_response_weights(asked)["response_check"].tolist()
    assert words == model.get_mean_response(asked).attrs["response_check"] == [NOISE, "not assessed"]
    for name, word in zip(asked["drug"], words, strict=True):
        twins = predict(model, None, {"drug": name}, indices=np.arange(100))
        assert set(twins.obs["response_check"]) == {word}


@pytest.mark.filterwarnings("ignore:The response to .* measured in only 2:UserWarning")
def test_mean_response_is_the_mean_of_ever_more_predicted_cells(treated: TokenDiffusion) -> None:
    adata = treated.adata
    assert adata is not None
    controls = np.flatnonzero((adata.obs["cell_type"] == "c") & (adata.obs["stim"] == "control"))
    before = log_normalise(sparse.csr_matrix(adata.X[controls])).toarray().mean(0)
    drawn = [log_normalise(predict(treated, None, {"stim": "IFN"}, indices=controls, seed=s).X) for s in range(20)]
    means = np.stack([cells.toarray().mean(0) for cells in drawn]) - before
    asked = {"cell_type": ["c", "c"], "stim": ["IFN", "control"]}
    response, none = treated.get_mean_response(pd.DataFrame(asked)).to_numpy()
    one = treated.get_mean_response({name: values[0] for name, values in asked.items()}, interval=True)
    assert one.columns.tolist() == ["gene", "change", "low", "high", "no_source"]
    np.testing.assert_array_equal(one["change"], response)
    assert (one["low"] <= one["change"]).all() and one["gene"].tolist() == treated.adata.var_names.tolist()
    assert np.abs(response).max() > 0.5 and np.abs(none).max() < 1e-6
    np.testing.assert_allclose(response, means.mean(0), atol=0.1)
