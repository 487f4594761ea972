import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from anndata import AnnData
from benchmarks import _perturbation_data, _perturbation_tasks, perturbation
from benchmarks._data import KANG, MissingData
from benchmarks._perturbation_data import (
    CONTEXT,
    CONTROL,
    FEATURES_KEY,
    MCFALINE,
    NORMAN,
    OTHER_GENES,
    PAPALEXI,
    QUICK,
    RESPONSE,
    ZHAO,
    Fold,
    Settings,
    Target,
    predicted_cells,
)
from benchmarks._perturbation_models import seen_cells, start_cells
from benchmarks._perturbation_table import kinds_of, summary_of
from benchmarks._perturbation_tasks import TASKS, TRANSFERRED_NAMES, transferred_predictions, transferred_scores
from benchmarks._perturbation_time import PACKER, cells_of_both_sides, nearest_cells, time_predictions
from benchmarks._perturbation_transfer import TRANSFERRED, transferred_by_default, transferred_shares
from benchmarks.studies import responses
from benchmarks.studies.responses import fold_scores, inner_folds
from scipy import sparse, stats
from verdicts import numbers

from scdiffgen.model import TokenDiffusion

N_GENES, CELLS_A_GROUP = 30, 30
GENES = [f"G{i}" for i in range(N_GENES)]


def write_cells(path: Path, obs: pd.DataFrame, seed: int = 0) -> None:
    """Counts whose means differ between groups of cells, ``CELLS_A_GROUP`` cells for each row of ``obs``."""
    rng = np.random.default_rng(seed)
    rates = rng.lognormal(1, 0.5, (len(obs), N_GENES)).repeat(CELLS_A_GROUP, 0)
    obs = obs.loc[obs.index.repeat(CELLS_A_GROUP)].reset_index(drop=True)
    obs.index = [f"cell_{i}" for i in range(len(obs))]
    AnnData(sparse.csr_matrix(rng.poisson(rates), dtype=np.float32), obs=obs, var=pd.DataFrame(index=GENES)).write(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    types = pd.DataFrame({"cell_type": ["T", "T", "B", "B", "M", "M", "D", "D"], "condition": ["ctrl", "stim"] * 4})
    write_cells(folder / KANG, types.assign(donor=["1", "1", "2", "2", "1", "1", "2", "2"]))
    tumours = pd.DataFrame({"donor": [*"112233"], "condition": ["ctrl", "panobinostat"] * 3})
    write_cells(folder / ZHAO, tumours)
    lines = pd.DataFrame(
        {"cell_line": [*"AAABBBCC"], "perturbation": ["control", *"XY", "control", *"XY", "control", "X"]}
    )
    write_cells(folder / MCFALINE, lines.assign(library_size=2000))
    write_cells(folder / NORMAN, pd.DataFrame({"perturbation": ["control", "G1", "G2", "G3", "G1+G2", "G1+G9"]}))
    guides = pd.DataFrame({"guide": ["NT", "G1g1", "G1g2", "G2g1", "G3g1", "X1g1", "unassigned"]})
    guides["perturbation"] = ["control", "G1", "G1", "G2", "G3", "X1", "unassigned"]
    write_cells(folder / PAPALEXI, guides.assign(batch="rep_1"))
    times = pd.DataFrame({"time_bin": ["270-330", "330-390", "390-450", "450-510"] * 2, "cell_type": ["A", "B"] * 4})
    times["embryo_time"] = times["time_bin"].str[:3].astype(int)
    write_cells(folder / PACKER, times)
    return folder


FOLDS: dict[str, tuple[Callable[..., Iterator[Fold]], list[str], tuple[int, int]]] = {
    # what is held out, and the groups of cells of the first fold to train on and held out
    "kang": (_perturbation_data.kang, ["B", "T"], (7, 1)),
    "kang-donors": (_perturbation_data.kang_donors, ["1", "2"], (6, 2)),
    "zhao": (_perturbation_data.zhao, ["1", "3"], (5, 1)),
    "mcfaline": (_perturbation_data.mcfaline, ["A", "C"], (6, 2)),
    "norman": (_perturbation_data.norman, ["G1+G2"], (5, 1)),
    "papalexi": (_perturbation_data.papalexi, ["G1", "G3"], (3, 2)),
    "papalexi-guides": (_perturbation_data.papalexi_guides, ["G1g2"], (5, 1)),
    "packer": (TASKS["packer"].folds, ["330-390", "390-450"], (6, 2)),
}


@pytest.fixture(params=list(FOLDS))
def task(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def _few_loadings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_perturbation_data, "N_LOADINGS", 5)


def test_no_held_out_cell_is_trained_on(folder: Path, task: str) -> None:
    make, held_out, n_groups = FOLDS[task]
    folds = list(make(folder, held_out))
    assert (folds[0].train.n_obs, folds[0].real.n_obs) == tuple(n * CELLS_A_GROUP for n in n_groups)
    for fold in folds:
        assert fold.real.n_obs
        assert not set(fold.train.obs_names) & set(fold.real.obs_names)
        assert set(fold.control.obs_names) <= set(fold.train.obs_names)
        assert set(fold.control.obs[RESPONSE]) == {CONTROL}
        asked = {(target.response, target.context) for target in fold.targets}
        assert set(zip(fold.real.obs[RESPONSE], fold.real.obs[CONTEXT], strict=True)) == asked
        assert not asked & set(zip(fold.train.obs[RESPONSE], fold.train.obs[CONTEXT], strict=True))


def test_genes_and_features_do_not_depend_on_held_out_counts(
    folder: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, held_out, _ = FOLDS[task]
    monkeypatch.setattr(_perturbation_data, "N_TOP_GENES", 10)
    before = next(make(folder, held_out[:1]))
    read = _perturbation_data.read

    def altered(folder: Path, file: str) -> AnnData:
        cells = read(folder, file)
        rows = cells.obs_names.isin(before.real.obs_names)
        other = np.random.default_rng(1).poisson(9, cells.shape)
        cells.X = sparse.csr_matrix(np.where(rows[:, None], other, cells.X.toarray()).astype(np.float32))
        return cells

    monkeypatch.setattr(_perturbation_data, "read", altered)
    monkeypatch.setattr("benchmarks._perturbation_time.read", altered)
    after = next(make(folder, held_out[:1]))
    assert (before.real.X != after.real.X).nnz
    assert list(before.train.var_names) == list(after.train.var_names)
    if FEATURES_KEY in before.train.uns:
        pd.testing.assert_frame_equal(before.train.uns[FEATURES_KEY], after.train.uns[FEATURES_KEY])


def test_a_fold_that_shares_cells_raises(folder: Path) -> None:
    fold = next(_perturbation_data.norman(folder, ["G1+G2"]))
    with pytest.raises(ValueError, match="60 cells of 'x' are held out and trained on"):
        Fold("x", fold.train, fold.train[:60], fold.targets)


def test_what_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No cells of 'stim' in 'NK'"):
        next(_perturbation_data.kang(folder, ["NK"]))
    with pytest.raises(ValueError, match="No treated cells of '4'"):
        next(_perturbation_data.zhao(folder, ["4"]))
    with pytest.raises(MissingData, match="norman2019"):
        next(_perturbation_data.norman(tmp_path))


def test_cells_of_a_panel_sum_to_their_library_size(folder: Path) -> None:
    fold = next(_perturbation_data.mcfaline(folder, ["A"]))
    assert fold.train.var_names[-1] == OTHER_GENES and fold.train.n_vars == N_GENES + 1
    for cells in (fold.train, fold.real):
        assert (np.asarray(cells.X.sum(1)).ravel() == cells.obs["library_size"]).all()
    assert [target.conditions for target in fold.targets] == [{"cell_line": "A", "perturbation": name} for name in "XY"]


def test_the_share_that_is_transferred_is_known_for_simple_predictions(folder: Path) -> None:
    fold = next(_perturbation_data.zhao(folder, ["1"]))
    (target,) = fold.targets
    counts = fold.train.X.toarray()
    logs = np.log1p(1e4 * counts / counts.sum(1, keepdims=True))
    is_of = {
        (c, r): ((fold.train.obs[CONTEXT] == c) & (fold.train.obs[RESPONSE] == r)).to_numpy()
        for c in "123"
        for r in (CONTROL, target.response)
    }
    known = np.mean([logs[is_of[c, target.response]].mean(0) - logs[is_of[c, CONTROL]].mean(0) for c in "23"], axis=0)
    other = logs[is_of["2", CONTROL]].mean(0) - logs[is_of["1", CONTROL]].mean(0)
    cells = {
        "unchanged": predicted_cells(fold, [fold.train.X[is_of["1", CONTROL]]]),
        "another": predicted_cells(fold, [fold.train.X[is_of["2", CONTROL]]]),
        "none": None,
    }
    shares = transferred_shares(fold, cells, 100, seed=0).set_index("prediction")[TRANSFERRED]
    assert shares["unchanged"] == pytest.approx(0, abs=1e-6)
    assert shares["another"] == pytest.approx(np.linalg.lstsq(known[:, None], other, rcond=None)[0].item(), rel=1e-4)
    assert "none" not in shares


def test_interval_of_the_transferred_share_is_that_of_a_mean() -> None:
    rows = [
        {"context": c, "perturbation": "x", "prediction": name, TRANSFERRED: value}
        for name, values in (("scdiffgen: coupled", (0.1, 0.2, 0.6)), ("scdiffgen: generate", (5.0, 5.0, 5.0)))
        for c, value in zip("abc", values, strict=True)
    ]
    sentence = transferred_by_default({"rows": rows, "settings": {"models": ["scdiffgen"]}})
    interval = stats.ttest_1samp([0.1, 0.2, 0.6], 0).confidence_interval(0.95)
    assert numbers(sentence) == pytest.approx([0.3, *interval, 3], abs=0.005)
    assert transferred_by_default({"rows": [{"prediction": "a"}], "settings": {"models": []}}) == ""
    nothing = [row | {TRANSFERRED: 0.0} for row in rows]
    assert numbers(transferred_by_default({"rows": nothing, "settings": {"models": ["scdiffgen"]}})) == [0, 0, 0, 3]


def test_all_pairs_with_both_singles_are_held_out(folder: Path) -> None:
    fold = next(_perturbation_data.norman(folder))
    assert [target.response for target in fold.targets] == ["G1+G2"]
    assert "G1+G9" in set(fold.train.obs[RESPONSE])


def test_unseen_knock_outs_have_features_and_unmeasured_ones_are_left_out(folder: Path) -> None:
    fold = next(_perturbation_data.papalexi(folder, ["G1"]))
    assert list(fold.train.uns[FEATURES_KEY].index) == ["G1", "G2", "G3"]
    assert set(fold.train.obs["perturbation"]) == {"control", "G2", "G3"}


def test_predictions_start_from_training_controls_of_the_context(folder: Path) -> None:
    fold = next(_perturbation_data.kang(folder, ["B"]))
    chosen = fold.train.obs.iloc[start_cells(fold, fold.targets[0], 10, seed=0)]
    assert len(chosen.index.unique()) == 10
    assert set(chosen["condition"]) == {"ctrl"}
    assert set(chosen["cell_type"]) == {"B"}
    for cells in transferred_predictions(fold, 0).values():
        assert sorted(cells.obs_names) == sorted(fold.control.obs_names), "by which the report knows the start"


def test_seen_cells_are_those_of_other_guides(folder: Path) -> None:
    fold = next(_perturbation_data.papalexi_guides(folder, ["G1g2"]))
    cells = seen_cells(fold, 100, seed=0)
    expected = fold.train[fold.train.obs["guide"] == "G1g1"].X
    assert sorted(map(tuple, cells.X.toarray())) == sorted(map(tuple, expected.toarray()))
    assert set(cells.obs[RESPONSE]) == {"G1g2"}
    assert seen_cells(next(_perturbation_data.norman(folder)), 100, seed=0) is None


def test_time_predictions_do_not_depend_on_held_out_counts(folder: Path) -> None:
    fold = next(TASKS["packer"].folds(folder, ["390-450"]))
    other = dataclasses.replace(fold, real=fold.real.copy())
    other.real.X = other.real.X * 7
    before, after = (time_predictions({}, each, seed=0) for each in (fold, other))
    assert list(before) == ["nearest time", "both sides"]
    for name in before:
        assert (before[name].X != after[name].X).nnz == 0


def test_cells_of_nearest_times_are_of_the_type() -> None:
    known = pd.DataFrame({"cell_type": [*"AABBA"], "embryo_time": [10, 80, 44, 70, 75]})
    asked = pd.DataFrame({"cell_type": [*"ABA"], "embryo_time": [50.0, 60.0, 40.0]})
    rng = np.random.default_rng(0)
    assert nearest_cells(known, asked, rng).tolist() == [4, 3, 0]
    drawn = np.array([cells_of_both_sides(known, asked.iloc[[0]], rng).item() for _ in range(400)])
    assert set(drawn) == {0, 4}
    assert (drawn == 4).mean() == pytest.approx(40 / 65, abs=0.1)


def test_scores_are_medians_over_seeds_then_means_over_folds() -> None:
    rows = pd.DataFrame(
        [
            {"fold": fold, "context": "all", "perturbation": "p", "dose": None, "prediction": name, "c2st_auc": value}
            for fold, name, values in [("x", "a", (1, 2, 9)), ("y", "a", (4, 4, 4)), ("x", "b", (0, 0, 6))]
            for value in values
        ]
    )
    table = summary_of(rows.assign(pearson_delta=np.nan))
    assert table["c2st_auc"].to_dict() == {"a": 3.0, "b": 0.0}
    assert list(table) == ["c2st_auc"]


@pytest.fixture
def _tiny(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "FOLDER", folder)
    tiny = dataclasses.replace(QUICK, max_epochs=1, n_trees=5, max_cells=20)
    monkeypatch.setattr(perturbation, "QUICK", tiny)


def treated_cells(folder: Path) -> AnnData:
    """Treated cells of another type as the prediction of a program for B cells, of what was exported."""
    perturbation.export("kang", ["B"], folder)
    known = anndata.read_h5ad(folder / "kang-B-train.h5ad")
    treated = known[known.obs[RESPONSE] == "stim"][:CELLS_A_GROUP].copy()
    treated.obs[CONTEXT] = "B"
    treated.uns["recipe"] = {"length": 3}
    treated.write_h5ad(folder / "kang-B-seed0.h5ad")
    return treated


@pytest.mark.usefixtures("_tiny")
def test_a_run_writes_all_predictions_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    treated_cells(tmp_path / "theirs")
    targets = pd.read_csv(tmp_path / "theirs/kang-B-targets.csv")
    assert targets.to_dict("records") == [{RESPONSE: "stim", CONTEXT: "B", "n_cells": CELLS_A_GROUP}]
    arguments = ["--task", "kang", "--quick", "--threads", "1", "--output", str(tmp_path), "--seeds", "0"]
    arguments += ["--external", f"theirs={tmp_path / 'theirs'}"]
    perturbation.main([*arguments, "--types", "B", "--models", "scdiffgen"])
    rows = pd.DataFrame(json.loads((tmp_path / "perturbation-kang.json").read_text())["rows"])
    ours = [
        "scdiffgen: generate",
        "scdiffgen: coupled",
        "scdiffgen: coupled, network only",
        "scdiffgen: mean alone",
        *(f"scdiffgen: keep {share}" for share in ("0", "0.05", "0.1", "0.2", "0.4")),
    ]
    others = {"latent_scvi", "theirs", "no_change", "nearest_context", "real_half"}
    assert set(rows["prediction"]) >= {*ours, *others}
    assert rows["energy_distance"].notna().all()
    transferred = rows.set_index("prediction")[TRANSFERRED].astype(float)
    assert np.isfinite(transferred["scdiffgen: coupled"]) and np.isnan(transferred["real_half"])

    monkeypatch.setattr(perturbation, "run_fold", lambda *_, **__: pytest.fail("the fold was done before"))
    perturbation.main([*arguments, "--types", "B", "--models", "scdiffgen", "--resume"])
    monkeypatch.setitem(TASKS, "kang", dataclasses.replace(TASKS["kang"], models={"scdiffgen": {}, "other": {}}))
    with pytest.raises(ValueError, match="was run with other models"):
        perturbation.main([*arguments, "--types", "B", "--resume"])

    perturbation.main([*arguments, "--types", "B", "--only-scvi"])
    result = json.loads((tmp_path / "perturbation-kang.json").read_text())
    again = pd.DataFrame(result["rows"]).set_index("prediction").loc["latent_scvi"]
    same = rows.set_index("prediction").loc["latent_scvi"].dropna().drop("transferred")
    assert again[same.index].to_dict() == same.to_dict(), "a row that is added is that of the whole run"
    assert result["recipes"]["latent_scvi, B, 0"]["length"] == 1


@pytest.mark.usefixtures("_tiny")
def test_rows_of_other_programs_are_added_to_a_result(tmp_path: Path) -> None:
    """Log-normalised expression scores about as its counts, which are thinned; old rows of a name are replaced."""
    treated = treated_cells(tmp_path / "theirs")
    sc.pp.normalize_total(treated, target_sum=1e4)
    sc.pp.log1p(treated)
    (tmp_path / "logged").mkdir()
    treated.uns["log1p"] = {}
    treated.write_h5ad(tmp_path / "logged/kang-B-seed0.h5ad")
    arguments = ["--task", "kang", "--types", "B", "--threads", "1", "--output", str(tmp_path), "--seeds", "0"]
    path = tmp_path / "perturbation-kang.json"
    result = {"settings": dataclasses.asdict(Settings()) | {"models": ["scdiffgen"]}}
    result["rows"] = [
        {"seed": 0, "fold": "B", "prediction": name, "n_real": 1} for name in ("scdiffgen: coupled", "theirs")
    ]
    path.write_text(json.dumps(result))
    external = ["--external", *(f"{name}={tmp_path / name}" for name in ("theirs", "logged"))]
    perturbation.main([*arguments, "--only-external", *external])
    result = json.loads(path.read_text())
    rows = pd.DataFrame(result["rows"]).set_index("prediction")
    assert sorted(rows.index) == ["logged", "scdiffgen: coupled", "theirs"]
    assert rows.at["theirs", "pearson_delta"] == pytest.approx(rows.at["logged", "pearson_delta"], abs=0.1)
    assert kinds_of(result) == {"scdiffgen: coupled": "ours", "theirs": "other", "logged": "other"}
    assert result["recipes"] == {f"{name}, B, 0": {"length": 3} for name in ("theirs", "logged")}
    with pytest.raises(ValueError, match="was scored with other max_cells, n_trees"):
        perturbation.main([*arguments, "--only-external", "--quick", *external])
    once_more = {"settings": dataclasses.asdict(Settings()) | {"models": ["scdiffgen"]}, "rows": []}
    again, kept = perturbation.with_added(once_more, result)
    assert kept == [row for row in result["rows"] if row["prediction"] != "scdiffgen: coupled"] and again["rows"] == []
    assert again["recipes"] == result["recipes"] and again["settings"]["external"] == ["logged", "theirs"]
    once_more["settings"]["n_trees"] = 3
    with pytest.raises(ValueError, match="scored with other n_trees: drop --keep-added"):
        perturbation.with_added(once_more, result)


def test_rows_of_other_models_keep_their_command() -> None:
    settings = dataclasses.asdict(Settings())
    rows = [{"seed": 0, "fold": "dose", "prediction": name} for name in ("a: x", "b: x", "no change")]
    first = {"settings": settings | {"models": ["a", "b"]}, "rows": rows, "environment": {"command": "run a b"}}
    fresh = {"settings": settings | {"models": ["a"]}, "rows": [], "environment": {"command": "run a"}}
    second, kept = perturbation.with_added(fresh, first)
    assert kept == [rows[1]] and second["settings"]["models"] == ["a", "b"]
    assert second["added"] == [{"command": "run a b"}]
    third, kept = perturbation.with_added(fresh, second | {"rows": [*rows[:1], *kept]})
    assert kept == [rows[1]] and third["added"] == second["added"]


@pytest.mark.usefixtures("_tiny")
@pytest.mark.filterwarnings("ignore:The response to.*beyond the largest measured dose:UserWarning")
def test_runs_on_times_and_on_simulated_doses(tmp_path: Path) -> None:
    arguments = ["--quick", "--threads", "1", "--output", str(tmp_path), "--seeds", "0", "--models", "direct"]
    perturbation.main(["--task", "packer", "--types", "390-450", *arguments])
    perturbation.main(["--task", "dose", *arguments])
    for task, name in (("packer", "direct: generate"), ("dose", "direct")):
        rows = json.loads((tmp_path / f"perturbation-{task}.json").read_text())["rows"]
        assert name in {row["prediction"] for row in rows}

    again = ["--quick", "--threads", "1", "--output", str(tmp_path), "--seeds", "0", "1", "--only-transferred"]
    perturbation.main(["--task", "dose", *again])
    after = pd.DataFrame(json.loads((tmp_path / "perturbation-dose.json").read_text())["rows"])
    names = after.groupby("seed")["prediction"].agg(set)
    baselines = {"real cells", "no change", "nearest dose", "dose interpolation"}
    assert names[1] == {"sinusoidal: transferred", *baselines}
    assert names[0] == {"direct", "direct: transferred", *names[1]}
    kept = after[(after["seed"] == 0) & (after["prediction"] != "sinusoidal: transferred")]
    assert kept.to_dict("records") == pd.DataFrame(rows).to_dict("records"), "other rows stay as they were"


@pytest.mark.usefixtures("_tiny")
def test_transferred_responses_are_rescored_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 0 has rows of networks and baselines, which stay; seed 1 has none, so baselines are scored for it."""
    monkeypatch.setattr(TokenDiffusion, "train", lambda *_, **__: pytest.fail("a network was trained"))
    old = [
        {"seed": 0, "fold": "B", "prediction": name, "weighted_mse": 99.0}
        for name in ("scdiffgen: generate", "scdiffgen: coupled", "no_change")
    ]
    settings = dataclasses.asdict(perturbation.QUICK) | {"models": ["scdiffgen"]}
    path = tmp_path / "perturbation-kang.json"
    path.write_text(json.dumps({"settings": settings, "rows": old, "environment": {"command": "before"}}))
    arguments = ["--task", "kang", "--types", "B", "--threads", "1", "--output", str(tmp_path), "--only-transferred"]
    perturbation.main([*arguments, "--quick", "--seeds", "0", "1"])
    result = json.loads(path.read_text())
    rows = pd.DataFrame(result["rows"]).set_index(["seed", "prediction"])
    kept = {"scdiffgen: generate", "scdiffgen: coupled", "scdiffgen: mean alone", "no_change"}
    assert {*rows.loc[0].index} == kept and len(rows.loc[0]) == len(kept)
    assert {*rows.loc[1].index} > kept - {"scdiffgen: generate"} | {"nearest_context", "real_half"}
    assert (rows.loc[0].loc[["scdiffgen: generate", "no_change"], "weighted_mse"] == 99).all()
    assert rows.loc[[(0, "scdiffgen: coupled"), (1, "no_change")], "weighted_mse"].lt(99).all()
    assert [run["seeds"] for run in result["added"]] == [[0, 1]] and result["environment"] == {"command": "before"}

    with pytest.raises(ValueError, match="was scored with other max_cells"):
        perturbation.main([*arguments, "--seeds", "0"])
    assert json.loads(path.read_text()) == result


def test_transferred_rows_do_not_depend_on_baselines_beside_them(folder: Path) -> None:
    fold, settings = next(_perturbation_data.zhao(folder, ["1"])), dataclasses.replace(QUICK, n_trees=5, max_cells=20)
    alone, beside = (
        transferred_scores(fold, settings, 0, alone=alone).set_index("prediction").loc[list(TRANSFERRED_NAMES)]
        for alone in (True, False)
    )
    pd.testing.assert_frame_equal(alone, beside[alone.columns])


def test_an_untrained_network_predicts_no_row(folder: Path) -> None:
    """Too few cells of a part of the pair are left to predict it from its parts."""
    fold = next(_perturbation_data.norman(folder, ["G1+G2"]))
    few = fold.train.obs[RESPONSE].ne("G2") | (fold.train.obs.groupby(RESPONSE).cumcount() < 5)
    with pytest.raises(ValueError, match=r"No training cells of 'doubles' predict 'G1\+G2': train a network"):
        transferred_predictions(dataclasses.replace(fold, train=fold.train[few.to_numpy()].copy()), 0)


def test_tasks_without_data_are_not_available(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "FOLDER", tmp_path)
    assert perturbation.available_tasks() == ["dose"]
    monkeypatch.setattr(perturbation, "FOLDER", folder)
    assert perturbation.available_tasks() == [*TASKS, "dose"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--task kang --only-external", "--only-external needs --external NAME=FOLDER"),
        ("--task packer --only-transferred", "--only-transferred is for perturbations, not for packer"),
        ("--task dose --external theirs=.", "--external and --export are for real cells"),
        ("--task norman --models wavelet", "--models wavelet: norman has scdiffgen gaussian"),
    ],
)
def test_options_that_a_task_does_not_have_are_named(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        perturbation.parse(options.split())
    assert message in capsys.readouterr().err


def test_fewer_cells_and_genes_keep_every_group(folder: Path) -> None:
    fold = next(_perturbation_data.kang(folder, ["B"]))
    small = _perturbation_tasks.shrunk(fold, dataclasses.replace(QUICK, train_cells=4, n_genes=8), seed=0)
    sizes = small.train.obs.groupby([RESPONSE, CONTEXT], observed=True).size()
    assert len(sizes) == 7
    assert set(sizes) == {4}
    assert small.train.n_vars == small.real.n_vars == 8
    assert isinstance(small.targets[0], Target)


def test_responses_are_scored_without_a_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "Settings", lambda: Settings(n_trees=5))
    distances = fold_scores(next(TASKS["kang"].folds(folder, ["T"])), [0]).set_index("prediction")["energy_distance"]
    assert {"transferred", "transferred, mean alone", "no_change"} <= {*distances.index}
    assert distances.idxmin() == "real_half"


@pytest.mark.parametrize("task", ["zhao", "kang-donors", "norman", "papalexi-guides"])
def test_choices_are_made_on_parts_of_the_training_cells(task: str, folder: Path) -> None:
    for outer in TASKS[task].folds(folder, ["G1g2"] if task == "papalexi-guides" else None):
        ((inner),) = inner_folds(iter([outer]))
        assert {*inner.real.obs_names, *inner.train.obs_names} == {*outer.train.obs_names}
        assert not (inner.real.obs[RESPONSE] == CONTROL).any()
        assert {target.response for target in inner.targets} == set(inner.real.obs[RESPONSE])
        before, after = (fold.train.obs[RESPONSE].value_counts() for fold in (outer, inner))
        if task in ("norman", "papalexi-guides"):
            assert (after == np.ceil(before / (1 + (before.index != CONTROL))).astype(int)).all()
