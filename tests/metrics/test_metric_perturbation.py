"""The perturbation report on simulated cells whose responses are known, and what it refuses."""

import re
import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

from scdiffgen import metrics
from scdiffgen.metrics import _response
from scdiffgen.metrics._perturbation_report import _warn_of_undecided as warn_of_undecided

N_GENES = 120
OPTIONS = {"perturbation_key": "drug", "context_key": "type", "n_pcs": 8, "n_trees": 10, "seed": 0}
EVERYTHING = {**OPTIONS, "metrics": "all", "baselines": "all"}
CHEAP = ("pearson_delta", "fold_change_slope", "energy_distance")
GENES = [f"g{i}" for i in range(N_GENES)]


def effect(drug: str) -> np.ndarray:
    """Log fold changes of each gene: twelve genes of its own for every part of the drug, half of them down."""
    change = np.zeros(N_GENES)
    for part in drug.split("+"):
        if part != "ctrl":
            start = 12 * (ord(part[1]) - ord("0"))
            change[start : start + 12] += np.where(np.arange(12) % 2, 1.2, -1.2)
    return change


def simulate(
    groups: dict[tuple[str, str], int], seed: int, dose: float | None = None, label: str | None = None, depth: float = 1
) -> ad.AnnData:
    """Poisson cells of (type, drug) groups; types are letters, drugs are named after the gene ``g<i>`` they hit.

    Mean library sizes of groups are equal but for ``depth``; ``label`` replaces the drug, whose effect stays.
    """
    rng = np.random.default_rng(seed)
    counts, obs = [], []
    for (cell_type, drug), n in groups.items():
        rates = np.random.default_rng(ord(cell_type)).gamma(2.0, size=N_GENES) * 2
        strength = 1.0 if dose is None else np.log1p(dose) / np.log(2)
        sizes, shares = rng.gamma(8.0, 1 / 8, size=(n, 1)), rates * np.exp(strength * effect(drug))
        counts.append(rng.poisson(depth * shares * (rates.sum() / shares.sum()) * sizes / sizes.mean()))
        obs += [{"type": cell_type, "drug": label or drug, "dose": 0.0 if drug == "ctrl" else dose or 1.0}] * n
    index = [f"{seed}-{i}" for i in range(len(obs))]
    matrix = sparse.csr_matrix(np.vstack(counts).astype(np.float32))
    return ad.AnnData(matrix, obs=pd.DataFrame(obs, index=index), var=pd.DataFrame(index=GENES))


@pytest.fixture(scope="module")
def transfer() -> dict[str, ad.AnnData]:
    """One drug, held out in type C."""
    both = {(cell_type, drug): 60 for cell_type in "AB" for drug in ("ctrl", "g0")}
    return {
        "train": simulate({**both, ("C", "ctrl"): 60}, seed=0),
        "control": simulate({("C", "ctrl"): 80}, seed=1),
        "real": simulate({("C", "g0"): 120}, seed=2),
        "perfect": simulate({("C", "g0"): 60}, seed=3),
    }


@pytest.fixture(scope="module")
def report(transfer) -> pd.DataFrame:
    unchanged = transfer["control"].copy()
    unchanged.obs["drug"] = "g0"
    predictions = {"perfect": transfer["perfect"], "unchanged": unchanged}
    return metrics.perturbation_report(
        transfer["real"], predictions, transfer["train"], transfer["control"], **EVERYTHING
    )


def run(cells: dict[str, ad.AnnData], predictions: dict[str, ad.AnnData], **options: object) -> pd.DataFrame:
    return metrics.perturbation_report(
        cells["real"], predictions, cells["train"], cells["control"], **{**EVERYTHING, "metrics": CHEAP, **options}
    ).set_index("prediction")


def test_rows_are_predictions_and_the_baselines_that_apply(report) -> None:
    contexts = ["other_contexts", "nearest_context", "similar_contexts"]
    expected = ["perfect", "unchanged", "no_change", "train_mean", *contexts]
    assert list(report["prediction"]) == [*expected, "latent_pca", "real_half"]
    assert set(report["n_real"]) == {60}
    assert list(report.columns[:4]) == ["context", "perturbation", "dose", "prediction"]
    assert set(report.attrs["direction"]) == set(report.columns[7:])


def test_a_perfect_prediction_scores_as_real_cells_do(report) -> None:
    assert report["n_significant"].between(10, 20).all()  # of 12 that respond, and composition moves others a little
    scores = report.set_index("prediction")
    for column in ("pearson_delta", "fold_change_slope", "de_pr_auc", "sign_agreement"):
        assert scores.loc[["perfect", "real_half"], column].min() > 0.7
    assert scores.loc["perfect", "fold_change_slope"] == pytest.approx(1, abs=0.1)
    assert scores.loc["real_half", "wasserstein"] > 1  # other cells, not the same ones
    assert abs(scores.loc["perfect", "energy_distance"]) < 0.1 * scores.loc["no_change", "energy_distance"]
    assert scores.loc["perfect", "c2st_auc"] < 0.75 < scores.loc["no_change", "c2st_auc"]


def test_control_cells_as_a_prediction_are_no_change(report) -> None:
    scores = report.set_index("prediction").iloc[:, 5:]
    pd.testing.assert_series_equal(scores.loc["unchanged"], scores.loc["no_change"], check_names=False)
    assert np.isnan(scores.loc["no_change", "pearson_delta"])


def test_the_shift_of_other_types_is_recovered(report) -> None:
    scores = report.set_index("prediction")
    for baseline in ("train_mean", "other_contexts", "nearest_context", "latent_pca"):
        assert scores.loc[baseline, "fold_change_slope"] == pytest.approx(1, abs=0.25)
        assert scores.loc[baseline, "pearson_delta"] > 0.7


def test_columns_are_the_plain_functions(transfer, report) -> None:
    space = metrics.ExpressionSpace.fit(transfer["train"], n_pcs=8)
    half, _ = metrics.split_halves(np.zeros(120))
    real, control, perfect = (space.expression(transfer[name]) for name in ("real", "control", "perfect"))
    first, second = metrics.split_halves(np.zeros(80))
    cells = {"r": real[half], "c": control, "p": perfect, "first": control[first], "second": control[second]}
    mean = {k: np.asarray(v.mean(0)).ravel() for k, v in cells.items()}
    change, predicted = mean["r"] - mean["c"], mean["p"] - mean["c"]
    tests = _response.rank_genes(real[half], control)
    x, y = space.project(real[half]), space.project(perfect)
    expected = {
        "pearson_delta": metrics.pearson_delta(mean["r"] - mean["second"], mean["p"] - mean["first"]),
        "weighted_mse": _response.weighted_mse(change, predicted, tests.t),
        "de_overlap": _response.de_overlap(change, predicted),
        "de_pr_auc": _response.de_pr_auc(tests.significant, predicted),
        "energy_distance": metrics.energy_distance(x, y),
        "wasserstein": metrics.wasserstein(x, y),
        "c2st_auc": metrics.classifier_auc(x, y, n_trees=10),
    }
    for name in ("sign_agreement", "fold_change_spearman", "fold_change_slope"):
        expected[name] = getattr(_response, name)(change, predicted, tests.significant)
    treated, untreated, given = (
        sparse.csr_matrix(cells.X) for cells in (transfer["real"][half], transfer["control"], transfer["perfect"])
    )
    found = _response.RealResponse(treated, untreated, tests.significant, 0).compare(given)
    expected |= {"response_spread": found.spread, "non_responders_error": found.non_responders_error}
    row = report.set_index("prediction").loc["perfect", list(expected)]
    assert row.to_dict() == pytest.approx(expected, rel=1e-5, nan_ok=True)  # real cells do not vary


def test_a_change_added_to_all_cells_does_not_spread_them(transfer) -> None:
    real = ad.concat([simulate({("C", "g0"): 60}, seed=seed, dose=dose) for seed, dose in ((4, 3.0), (5, 0.3))])
    spread = run(transfer | {"real": real}, {"same": real}, metrics=["response_spread"])["response_spread"]
    assert spread["same"] == pytest.approx(1, abs=0.3)
    assert spread["no_change"] < 0.6
    assert spread[["other_contexts", "train_mean"]].tolist() == pytest.approx([spread["no_change"]] * 2)
    assert np.isnan(spread["latent_pca"])  # no counts


def test_combinations_are_added_up_and_named_in_any_order() -> None:
    singles = {("A", drug): 60 for drug in ("ctrl", "g0", "g1", "g2")}
    cells = {
        "train": simulate(singles, seed=0),
        "control": simulate({("A", "ctrl"): 60}, seed=1),
        "real": simulate({("A", "g1+g0"): 100, ("A", "g2+g1"): 100}, seed=2),
    }
    predicted = simulate({("A", "g0+g1"): 50, ("A", "ctrl+g1+g2"): 50}, seed=3)
    wanted = (*CHEAP, "discrimination")
    scores = run(cells, {"perfect": predicted}, context_key=None, metrics=wanted).reset_index()
    scores = scores.set_index(["perturbation", "prediction"])
    assert set(scores.index.get_level_values(0)) == {"g0+g1", "g1+g2"}
    for drug in ("g0+g1", "g1+g2"):
        for name in ("additive", "perfect", "latent_pca"):
            assert scores.loc[(drug, name), "fold_change_slope"] == pytest.approx(1, abs=0.3)
            assert scores.loc[(drug, name), "discrimination"] == 1
        assert scores.loc[(drug, "train_mean"), "fold_change_slope"] < 0.7
        assert "linear" in scores.loc[drug].index


@pytest.mark.filterwarnings("ignore:The held-out cells cannot distinguish:UserWarning")
def test_discrimination_is_among_the_changes_of_the_context() -> None:
    n_cells = {"g0": 6, "g1": 40, "g2": 10, "g3": 80, "g4": 20}  # so that changes differ in length
    cells = {
        "train": simulate({("A", "ctrl"): 60, ("A", "g5"): 60}, seed=0),
        "control": simulate({("A", "ctrl"): 60}, seed=1),
        "real": simulate({("A", drug): n for drug, n in n_cells.items()}, seed=2, dose=0.01),
    }
    predicted = simulate({("A", drug): 4 for drug in n_cells}, seed=3, dose=0.01)
    scores = run(cells, {"few": predicted}, metrics=["discrimination"], baselines=[]).set_index("perturbation")
    expression = metrics.ExpressionSpace.fit(cells["train"], n_pcs=8).expression
    control = expression(cells["control"]).mean(0)
    groups = np.split(np.arange(156), np.cumsum([*n_cells.values()])[:-1])
    halves = [rows[metrics.split_halves(np.zeros(len(rows)))[0]] for rows in groups]
    real = np.vstack([expression(cells["real"])[rows].mean(0) - control for rows in halves])
    for own, drug in enumerate(n_cells):
        change = np.asarray(expression(predicted)[4 * own : 4 * own + 4].mean(0) - control).ravel()
        expected = _response.discrimination_score(np.asarray(real), change, own)
        assert scores.loc[drug, "discrimination"] == pytest.approx(expected)


def test_doses_are_interpolated() -> None:
    known = [simulate({("A", "g0"): 80}, seed=s, dose=d) for s, d in enumerate((0.5, 2.0))]
    cells = {
        "train": ad.concat([*known, simulate({("A", "ctrl"): 80}, seed=8)]),
        "control": simulate({("A", "ctrl"): 80}, seed=9),
        "real": simulate({("A", "g0"): 160}, seed=10, dose=1.0),
    }
    scores = run(cells, {}, dose_key="dose")
    assert scores.loc["dose_interpolation", "fold_change_slope"] == pytest.approx(1, abs=0.15)
    assert set(scores["dose"]) == {1.0}


def test_baselines_as_counts_are_harder_to_distinguish_from_cells(transfer, report) -> None:
    scores = run(transfer, {}, metrics=["c2st_auc", "pearson_delta"], baselines_as_counts=True)
    assert scores.loc["other_contexts", "pearson_delta"] > 0.8
    as_counts, as_expression = scores["c2st_auc"], report.set_index("prediction")["c2st_auc"]
    assert as_counts.loc["other_contexts"] < as_expression.loc["no_change"]


@pytest.mark.parametrize("fold", [3.0, 1 / 3])
def test_depth_is_no_response(fold: float) -> None:
    """Treated cells differ in depth alone: no gene responds, and no baseline predicts a change."""
    inert = {"label": "g5", "depth": fold}
    cells = {
        "train": ad.concat([simulate({(t, "ctrl"): 200 for t in "AC"}, 0), simulate({("A", "ctrl"): 200}, 1, **inert)]),
        "control": simulate({("C", "ctrl"): 200}, seed=2),
        "real": simulate({("C", "ctrl"): 200}, seed=3, **inert),
    }
    predictions = {
        "at depth of controls": simulate({("C", "ctrl"): 200}, seed=4, label="g5"),
        "at depth of treated": simulate({("C", "ctrl"): 200}, seed=5, **inert),
    }
    with pytest.warns(UserWarning, match=rf"more than 1.3-fold in 1 condition: 'g5 in C \({fold:.2g}-fold\)'"):
        scores = run(cells, predictions, metrics=["energy_distance", "c2st_auc"], baselines_as_counts=True)
    assert (scores["n_significant"] == 0).all()
    scores = scores.drop("latent_pca")  # which has no counts, so that its cells vary too little
    assert scores["energy_distance"].abs().max() < 0.3 and scores["c2st_auc"].max() < 0.65


def test_shallow_predictions_are_compared_with_thinned_controls(transfer) -> None:
    shallow = simulate({("C", "g0"): 60}, seed=3, depth=0.3)
    with pytest.warns(UserWarning, match=r"of 1 prediction are .*: 'shallow of g0 in C \(0.3-fold\)'"):
        scores = run(transfer, {"shallow": shallow}, metrics=["fold_change_slope", "pearson_delta"])
    assert scores.loc["shallow", "fold_change_slope"] == pytest.approx(1, abs=0.25)
    assert scores.loc["shallow", "pearson_delta"] > 0.6


def test_noise_correlates_only_through_a_shared_control_mean() -> None:
    """No cell responds. Predictions that start from the controls are recognised by the names of their cells."""
    contexts = "ABCDEFGHIJKLMNOP"
    groups = {(t, "ctrl"): 40 for t in contexts}
    control, real = simulate(groups, seed=0), simulate({(t, "ctrl"): 120 for t in contexts}, seed=1, label="g5")
    cells = {"control": control, "real": real, "train": simulate(groups, seed=2)}
    coupled, pattern = simulate(groups, seed=0, label="g5"), np.random.default_rng(3).gamma(0.2, size=N_GENES) / 2
    coupled.X = coupled.X + sparse.csr_matrix(np.random.default_rng(4).poisson(pattern, coupled.shape))
    renamed = coupled.copy()
    renamed.obs_names = "new" + renamed.obs_names
    predictions = {"noise": simulate(groups, seed=5, label="g5"), "coupled": coupled, "renamed": renamed}
    with pytest.warns(UserWarning, match="cannot distinguish predictions of 16 conditions"):
        scores = run(cells, predictions, metrics="pearson_delta", baselines=[])["pearson_delta"]
    means = scores.groupby("prediction").mean()
    assert means[["noise", "coupled"]].abs().max() < 0.05  # its standard error is about .02
    assert means["renamed"] < -0.1
    means = [
        np.log1p(1e4 * x / x.sum(1, keepdims=True)).reshape(16, -1, N_GENES).mean(1)
        for x in (part.X.toarray() for part in (control, real, predictions["noise"]))
    ]
    shared = [np.corrcoef(r - c, p - c)[0, 1] for c, r, p in zip(*means, strict=True)]
    assert np.mean(shared) > 0.3


def test_genes_are_aligned_and_seeds_repeat(transfer) -> None:
    plain = run(transfer, {"perfect": transfer["perfect"]})
    turned = run(transfer, {"perfect": transfer["perfect"][:, ::-1].copy()})
    pd.testing.assert_frame_equal(plain, turned)
    assert not plain.equals(run(transfer, {"perfect": transfer["perfect"]}, seed=1))


def test_held_out_conditions_must_not_be_in_training_cells(transfer) -> None:
    train = ad.concat([transfer["train"], simulate({("C", "g0+ctrl"): 5}, seed=4)])
    with pytest.raises(ValueError, match="`train` holds 1 of 1 conditions of `real`: g0 in C"):
        run({**transfer, "train": train}, {})


def test_conditions_that_are_not_predicted_are_nan_with_one_warning(transfer) -> None:
    real = ad.concat([transfer["real"], simulate({("C", "g3"): 60}, seed=5)])
    with pytest.warns(metrics.FewCellsWarning, match=r"half \(g3 in C, 30 real, 0 predicted cells\)") as caught:
        scores = run({**transfer, "real": real}, {"half": transfer["perfect"]}, baselines="no_change")
    assert sum(issubclass(warning.category, UserWarning) for warning in caught) == 1  # others are pandas' own
    assert scores.loc["half", list(CHEAP)].isna().all(axis=1).tolist() == [False, True]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"drug": "g00"}, r"obs\['drug'\] of `predictions\['model'\]` is 'g00', .* they have 'g0'. Did you mean 'g0'?"),
        ({"type": "c"}, r"obs\['type'\] of `predictions\['model'\]` is 'c', .* 'A', 'B', 'C'"),
        ({"drug": "ctrl"}, r"no cells of the conditions of `real` \('g0 in C'\), but of 'control in C'"),
        ({"type": "A"}, r"no cells of the conditions of `real` \('g0 in C'\), but of 'g0 in A'"),
    ],
)
def test_wrong_labels_of_a_prediction_are_refused(transfer, labels: dict[str, str], message: str) -> None:
    wrong = transfer["perfect"].copy()
    for key, label in labels.items():
        wrong.obs[key] = label
    with pytest.raises(ValueError, match=message):
        run(transfer, {"model": wrong})


def test_the_control_is_known_by_the_label_of_its_cells(transfer) -> None:
    mixed = ad.concat([transfer["control"], simulate({("C", "g0"): 50}, seed=9)])
    found = run({**transfer, "control": mixed}, {}, control_label="ctrl")
    pd.testing.assert_frame_equal(found, run(transfer, {}))  # treated cells are no controls
    with pytest.raises(ValueError, match="`control` has cells of 'ctrl', 'g0' .* as `control_label`"):
        run({**transfer, "control": mixed}, {})


def test_a_label_of_controls_may_hold_the_separator(transfer) -> None:
    renamed = {name: cells.copy() for name, cells in transfer.items()}
    for cells in renamed.values():
        cells.obs["drug"] = cells.obs["drug"].replace({"ctrl": "non+targeting"})
    pd.testing.assert_frame_equal(run(renamed, {}), run(transfer, {}))


def test_the_default_report_is_short_and_one_name_needs_no_list(transfer) -> None:
    one = run(transfer, {}, metrics="pearson_delta", baselines="train_mean")
    assert one.index.tolist() == ["train_mean"] and one.columns[-1] == "pearson_delta"
    cells = transfer["real"], {"perfect": transfer["perfect"]}, transfer["train"], transfer["control"]
    table = metrics.perturbation_report(*cells, **OPTIONS)
    assert table["prediction"].tolist() == ["perfect", "no_change", "train_mean", "similar_contexts", "real_half"]
    expected = ["pearson_delta", "de_overlap", "fold_change_slope", "energy_distance", "c2st_auc"]
    assert set(table.attrs["ideal"]) == set(expected) == set(table.columns[7:])


def test_a_condition_of_one_cell_is_nan_with_one_warning(transfer) -> None:
    real = ad.concat([transfer["real"], simulate({("C", "g3"): 1}, seed=5)])
    with pytest.warns(metrics.FewCellsWarning, match=r"no_change, .*real_half \(g3 in C") as caught:
        scores = run({**transfer, "real": real}, {}, metrics=(*CHEAP, "discrimination"))
    assert sum(issubclass(warning.category, UserWarning) for warning in caught) == 1  # others are pandas' own
    assert scores[scores["perturbation"] == "g3"][list(CHEAP)].isna().all(axis=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": ["r2"]}, r"Unknown metrics or baselines \['r2'\]"),
        ({"baselines": ["best"]}, r"Unknown metrics or baselines \['best'\]"),
        ({"control_label": "DMSO"}, "`control_label` is 'DMSO', but no cell of `control` has .* they have 'ctrl'"),
        ({"perturbation_key": "compound"}, "no obs column 'compound'"),
        ({"dose_key": "type"}, "obs\\['type'\\] of `real` is no dose for 120 treated cells \\(first: 'C'"),
    ],
)
def test_bad_arguments_are_named(transfer, change, message) -> None:
    with pytest.raises(ValueError, match=message):
        run(transfer, {}, **change)


def test_predictions_are_checked(transfer) -> None:
    with pytest.raises(TypeError, match="`predictions` is of type AnnData: pass a mapping from names"):
        run(transfer, transfer["perfect"])
    with pytest.raises(ValueError, match=r"names of baselines: \['additive'\]"):
        run(transfer, {"additive": transfer["perfect"]})
    expression = transfer["perfect"].copy()
    expression.X = expression.X.log1p()
    with pytest.raises(ValueError, match=r"`predictions\['model'\]` holds .* not whole numbers"):
        run(transfer, {"model": expression})
    with pytest.raises(ValueError, match="`control` has no cells in C"):
        run({**transfer, "control": simulate({("A", "ctrl"): 9}, seed=6)}, {})
    with pytest.raises(ValueError, match="`real` has no perturbed cells"):
        run({**transfer, "real": transfer["control"]}, {})


def undecided(cells: dict[str, ad.AnnData], predictions: dict[str, ad.AnnData], **options: object) -> list[str]:
    """The conditions of which held-out cells are said to decide nothing, as one warning lists them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(cells, predictions, **options)
    messages = [str(warning.message) for warning in caught if "cannot distinguish" in str(warning.message)]
    assert len(messages) <= 1
    return [named for message in messages for named in re.findall(r"'([^']*)'", message)]


def test_control_cells_that_are_labelled_as_treated_decide_nothing(transfer) -> None:
    inert = simulate({("C", "ctrl"): 60}, seed=7)
    inert.obs["drug"] = "g5"
    options = {"metrics": "energy_distance", "baselines": ("no_change", "real_half")}
    expected = ["g5 in C (30 reference cells, cannot be told from noise: no responding gene)"]
    assert undecided({**transfer, "real": inert}, {}, **options) == expected
    both = ad.concat([transfer["real"], inert])
    assert undecided({**transfer, "real": both}, {"perfect": transfer["perfect"]}, **options) == expected


@pytest.mark.parametrize(
    ("half", "no_change", "n_significant", "expected"),
    [
        (0.2, 0.1, 5, ["A in L6 (30 reference cells, real_half no closer than no_change)"]),
        (0.1, 0.1, 5, ["A in L6 (30 reference cells, real_half no closer than no_change)"]),
        (-0.1, 0.1, 5, []),
        (np.nan, 0.1, 5, []),
        (-0.1, 0.1, 0, ["A in L6 (30 reference cells, cannot be told from noise: no responding gene)"]),
    ],
)
def test_a_real_half_must_be_closer_than_controls(half, no_change, n_significant, expected, recwarn) -> None:
    rows = {"prediction": ["model", "no_change", "real_half"], "energy_distance": [0.0, no_change, half]}
    same = {"context": "L6", "perturbation": "A", "dose": None, "n_real": 30, "n_significant": n_significant}
    warn_of_undecided(pd.DataFrame({**rows, "de_overlap": [0.5, 0.9, 0.1]}).assign(**same))
    assert [name for w in recwarn for name in re.findall(r"'([^']*)'", str(w.message))] == expected


def test_one_distance_in_which_the_real_half_is_closer_decides(recwarn) -> None:
    same = {"context": "all", "perturbation": "A", "dose": 2.0, "n_real": 30, "n_significant": 1}
    table = pd.DataFrame({"prediction": ["no_change", "real_half"], "wasserstein": [3.0, 3.1]}).assign(**same)
    warn_of_undecided(table.assign(weighted_mse=[0.4, 0.3]))
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"of 1 condition: 'A at 2 \(30 reference cells, real_half no closer"):
        warn_of_undecided(table.assign(weighted_mse=[0.4, np.nan]))


def test_expression_that_is_log_normalised_already_scores_as_its_counts_do(transfer) -> None:
    logged = transfer["perfect"].copy()
    sc.pp.normalize_total(logged, target_sum=1e4)
    sc.pp.log1p(logged)
    logged = logged[:, ::-1].copy()  # genes are aligned
    found = run(transfer, {"counts": transfer["perfect"], "logged": logged}, log_normalised="logged")
    for name in CHEAP:
        assert found.at["logged", name] == pytest.approx(found.at["counts", name], rel=1e-5)


def test_what_is_not_log_normalised_is_refused(transfer) -> None:
    with pytest.raises(ValueError, match="holds only whole numbers, hence counts"):
        run(transfer, {"counts": transfer["perfect"]}, log_normalised=["counts"])
    with pytest.raises(ValueError, match=r"`log_normalised` has \['other'\]"):
        run(transfer, {"counts": transfer["perfect"]}, log_normalised=["other"])
