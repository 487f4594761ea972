import json
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import ot
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks import _published_iid, _published_predictions, published, render
from benchmarks._data import FOLDER, KANG, MissingData
from benchmarks._perturbation_data import RESPONSE
from benchmarks._published_cells import CONTEXT, DATASETS, EXCLUDED, PREPARE, TABLE, Prepared, of_donors, of_types
from benchmarks._published_iid import IID, IID_TABLE, iid_predictions, published_iid, split_in_half
from benchmarks._published_iid_table import beside_published, min_max, recovered
from benchmarks._published_scores import (
    all_scores,
    edistance,
    mse,
    pearson_delta,
    ranked_genes,
    subsampled,
    sym_kldiv,
    wasserstein,
)
from benchmarks._published_table import firsts, means, rank, rerun_table, rerun_tables, with_rerun
from benchmarks._record import environment, read_result
from scipy import sparse, stats
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax

from scdiffgen.model import TokenDiffusion

N_GENES = 5030  # more than are scored
TYPES = ["B", "CD14 Mono", "CD16 Mono", "Mk"]
DONORS = ["101", "1015", "unassigned"]
needs_data = pytest.mark.skipif(
    not all((FOLDER / file).exists() for file in (KANG, TABLE, EXCLUDED)), reason="the real cells are not there"
)


@pytest.fixture
def groups() -> list[np.ndarray]:
    """Predicted, real and control cells, of different numbers."""
    rng = np.random.default_rng(0)
    return [rng.gamma(2, scale, (n, 12)) for n, scale in ((30, 1.1), (40, 1.0), (50, 0.6))]


# Scores, against closed forms and SciPy.


def test_means_are_scored_by_squared_difference_and_correlation_of_changes(groups: list[np.ndarray]) -> None:
    p, s, c = (cells.mean(0) for cells in groups)
    assert mse(*groups[:2]) == pytest.approx(np.linalg.norm(p - s) ** 2 / 12)
    assert pearson_delta(*groups) == pytest.approx(stats.pearsonr(p - c, s - c).statistic)
    assert np.isnan(pearson_delta(groups[2], groups[1], groups[2]))


def test_energy_distance_equals_scipy_in_one_dimension(groups: list) -> None:
    p, s = groups[:2]
    assert edistance(p[:, :1], s[:, :1]) == pytest.approx(stats.energy_distance(p[:, 0], s[:, 0]) ** 2)
    assert edistance(p, s) == pytest.approx(2 * cdist(p, s).mean() - cdist(p, p).mean() - cdist(s, s).mean())
    assert edistance(p, p) == pytest.approx(0, abs=1e-12)


def test_the_divergence_is_that_of_gaussians() -> None:
    rng, x = np.random.default_rng(0), np.linspace(-30, 30, 200_001)
    p, s = rng.normal(1, 2, (30, 2)), rng.normal(0, 1, (40, 2))
    total = []
    for a, b in ((p, s), (s, p)):
        for gene in range(2):
            log_p, log_q = (stats.norm(cells[:, gene].mean(), cells[:, gene].std()).logpdf(x) for cells in (a, b))
            total.append(np.trapezoid(np.exp(log_p) * (log_p - log_q), x))
    assert sym_kldiv(p, s) == pytest.approx(np.log2(1 + sum(total) / 2), rel=1e-5)
    assert sym_kldiv(p, p) == 0


def test_transport_cost_is_between_exact_and_independent_coupling(groups: list[np.ndarray]) -> None:
    p, s = groups[:2]
    cost = cdist(p, s, "sqeuclidean")
    value = wasserstein(p, s)
    assert ot.emd2([], [], cost) < value < cost.mean()
    strength = 0.05 * cost.mean()

    def semidual(potential: np.ndarray) -> tuple[float, np.ndarray]:
        """Of the regularised problem, negated, and its gradient: its largest value is the cost."""
        scaled = (potential - cost) / strength
        value = potential.mean() - strength * logsumexp(scaled, b=1 / 40, axis=1).mean()
        return -value, softmax(scaled, axis=1).mean(0) - 1 / 40

    dual = -minimize(semidual, np.zeros(40), jac=True, method="L-BFGS-B", tol=1e-12).fun
    assert value == pytest.approx(dual, rel=1e-4)


def test_genes_are_ranked_by_welchs_t(groups: list[np.ndarray]) -> None:
    statistic = stats.ttest_ind(groups[1], groups[2], equal_var=False).statistic
    assert ranked_genes(*groups[1:]).tolist() == np.argsort(-np.abs(statistic)).tolist()


def test_large_groups_are_subsampled_one_after_the_other() -> None:
    first, second = (np.arange(n)[:, None] for n in (2500, 2100))
    np.random.seed(42)  # as the benchmark does
    expected = [np.random.choice(n, 2000, replace=False) for n in (2500, 2100)]
    drawn = subsampled(first, np.arange(3)[:, None], second)
    assert [cells[:, 0].tolist() for cells in drawn] == [expected[0].tolist(), [0, 1, 2], expected[1].tolist()]


def test_all_scores_are_of_the_genes_that_respond() -> None:
    rng = np.random.default_rng(0)
    control, real = rng.gamma(2, 1, (60, 300)), rng.gamma(2, 1, (50, 300))
    real[:, 100:200] += 4
    scores = all_scores(real + 0.5, real, control)
    assert scores["mse_300"] == pytest.approx(0.25)
    assert [scores["mse_100"], scores["mse_20"]] == pytest.approx([0.25, 0.25])
    assert scores["common_degs_100"] == pytest.approx(1, abs=0.1)
    assert scores["edistance_100"] == pytest.approx(edistance((real + 0.5)[:, 100:200], real[:, 100:200]))
    assert {name for name in scores if name.startswith("wasserstein")} == {f"wasserstein_{n}" for n in (20, 50, 100)}


# Cells.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    rng = np.random.default_rng(0)
    obs = pd.DataFrame(
        [(t, c, d) for t in TYPES for c in ("ctrl", "stim") for d in DONORS for _ in range(12)],
        columns=["cell_type_seurat", "condition", "donor"],
    )
    obs.index = [f"cell_{i}" for i in range(len(obs))]
    obs["cell_type"] = "as the file names it"
    rates = rng.lognormal(0.5, 0.3, N_GENES)[None] * np.where(obs["condition"] == "stim", 1.5, 1.0)[:, None] ** (
        np.arange(N_GENES) < 200
    )
    counts = rng.poisson(rates)
    counts[:, -3:] = 0
    counts[:9, -3:] = 1  # genes of nine cells, too few
    AnnData(sparse.csr_matrix(counts, dtype=np.float32), obs=obs.astype("category")).write(folder / KANG)
    excluded = [*obs.index[obs["donor"] == "unassigned"], "cell_0"]
    pd.DataFrame({"cell": excluded}).to_csv(folder / EXCLUDED, index=False)
    pd.concat([made_up_table(PREPARE[task](folder), task) for task in PREPARE]).to_csv(folder / TABLE, index=False)
    return folder


def made_up_table(prepared: Prepared, task: str) -> pd.DataFrame:
    """Scores of the untreated cells, and of a method that is half as far away."""
    rows = []
    for context in prepared.contexts:
        for name, value in published.untreated_scores(prepared, context).items():
            metric, _, n_genes = name.rpartition("_")
            row = {"dataset": DATASETS[task], "left_out": context, "n_genes": int(n_genes), "metric": metric}
            value = 0.5 if np.isnan(value) else value
            rows += [{**row, "method": "baseControl", "value": value}, {**row, "method": "halfway", "value": value / 2}]
    return pd.DataFrame(rows)


def test_cells_are_those_of_the_types_and_donors(folder: Path) -> None:
    types, donors = of_types(folder), of_donors(folder)
    assert types.contexts == ["B", "CD14_Mono", "CD16_Mono"]
    assert donors.contexts == ["Pat101", "Pat1015"]
    assert (types.counts.n_obs, donors.counts.n_obs) == (3 * 2 * 3 * 12, 3 * 2 * 2 * 12 - 1)
    for prepared in (types, donors):
        assert prepared.counts.n_vars == N_GENES - 3
        assert prepared.scored.sum() == 5000


def test_expression_is_normalised_over_all_genes_before_the_choice(folder: Path) -> None:
    prepared = of_types(folder)
    counts = prepared.counts.X.toarray()
    expected = np.log1p(1e4 * counts / counts.sum(1, keepdims=True))[:, prepared.scored]
    np.testing.assert_allclose(prepared.expression(prepared.counts), expected, rtol=1e-5, atol=1e-6)


def test_only_the_stimulated_cells_of_the_context_are_kept_from_training(folder: Path) -> None:
    prepared = of_donors(folder)
    train = prepared.without("Pat101")
    left_out = prepared.counts[~prepared.counts.obs_names.isin(train.obs_names)].obs
    assert set(zip(left_out["context"], left_out["condition"], strict=True)) == {("Pat101", "stim")}
    assert not ((train.obs["context"] == "Pat101") & (train.obs["condition"] == "stim")).any()


def test_simple_predictions_do_not_see_the_left_out_cells(folder: Path) -> None:
    prepared = of_types(folder)
    before = _published_predictions.changes(prepared, without="B")
    counts = prepared.counts.copy()
    others = ~np.isin(np.arange(counts.n_obs), prepared.rows("B", "stim"))
    counts.X = sparse.csr_matrix(np.where(others[:, None], counts.X.toarray(), 3.0))
    after = _published_predictions.changes(Prepared(counts, prepared.scored), without="B")
    assert set(before) == {"CD14_Mono", "CD16_Mono"}
    for name in before:
        np.testing.assert_array_equal(before[name][1], after[name][1])


def test_a_file_that_is_not_there_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, tasks in ((tmp_path, []), (folder, ["types", "donors"])):
        monkeypatch.setattr(published, "FOLDER", where)
        assert published.available_tasks() == tasks
    with pytest.raises(MissingData, match=KANG):
        of_types(tmp_path)


# Runs.


@pytest.fixture
def _made_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "FOLDER", folder)


@pytest.mark.usefixtures("_made_up")
def test_a_run_scores_every_prediction_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--task", "types", "--seeds", "0", "--left-out", "B", "--quick"]
    arguments += ["--threads", "1", "--output", str(tmp_path)]
    published.main(arguments)
    result = read_result(tmp_path / "published-kang-types.json")
    rows = pd.DataFrame(result["rows"]).set_index("prediction")
    names = [*_published_predictions.SETUPS["types"], "controls", "one real half against the other"]
    assert set(names) < set(rows.index)
    assert rows["edistance_5000"].notna().all()
    assert rows.loc["one real half against the other", "mse_100"] < rows.loc["controls", "mse_100"]
    assert set(result["published"]["best"]) == {"B"}
    assert str(FOLDER) not in json.dumps(result)

    monkeypatch.setattr(published, "predictions", lambda *_: pytest.fail("it was done before"))
    published.main([*arguments, "--resume"])


@pytest.mark.usefixtures("_made_up")
def test_rerun_cells_are_scored_beside_published_scores(folder: Path, tmp_path: Path) -> None:
    """Cells that were exported as controls score as the untreated cells, which were scored before."""
    arguments = ["--task", "types", "--left-out", "B", "--threads", "1", "--output", str(tmp_path)]
    published.main([*arguments, "--export", str(tmp_path / "cells")])
    known = anndata.read_h5ad(tmp_path / "cells/types-B-train.h5ad")
    asked = pd.read_csv(tmp_path / "cells/types-B-targets.csv")
    assert asked.to_dict("list") == {RESPONSE: ["stim"], CONTEXT: ["B"]}
    of_b = known[known.obs[CONTEXT] == "B"].copy()
    assert set(of_b.obs[RESPONSE]) == {"control"} and set(known.obs[RESPONSE]) == {"control", "stim"}
    of_b.uns["recipe"] = {"epochs": 3}
    (tmp_path / "theirs").mkdir()
    of_b.write_h5ad(tmp_path / "theirs/types-B-seed0.h5ad")
    untreated, result = published.untreated_scores(PREPARE["types"](folder), "B"), made_up_result([1.0, 3.0])
    rows = [row | {"left_out": "B"} | untreated for row in result["rows"] if row["left_out"] == "a"]
    result["published"]["best"] = {"B": result["published"]["best"]["a"]}
    path = tmp_path / "published-kang-types.json"
    path.write_text(json.dumps(result | {"rows": rows}))
    name = "halfway, run here"
    for _ in range(2):
        published.main([*arguments, "--seeds", "0", "--external", f"{name}={tmp_path / 'theirs'}"])
    result = read_result(path)
    (row,) = [row for row in result["rows"] if row["prediction"] == name]
    assert row["mse_100"] == pytest.approx(untreated["mse_100"], rel=1e-5)
    assert result["recipes"] == {f"{name}, B, 0": {"epochs": 3}}
    of_half = f"{untreated['mse_100']:.4f}; {untreated['mse_100'] / 2:.4f}; {untreated['mse_100']:.4f}"
    assert of_half in rerun_table(result, name).splitlines()[-1]
    replaced = with_rerun(result, name)
    assert replaced["published"]["means"]["halfway"]["mse_100"] == row["mse_100"]
    best = published.published(folder, "types").xs("B", level="left_out")["mse_100"].min()
    assert best == pytest.approx(untreated["mse_100"] / 2), "halfway, as it was published"
    assert replaced["published"]["best"]["B"]["mse_100"][1] == pytest.approx(untreated["mse_100"], rel=1e-5)
    assert len(rerun_tables(result)) == 4, "with our places, as all that was left out was run"
    result["rows"] += [row | {"left_out": "CD14_Mono", "prediction": "scdiffgen"}]
    result["published"]["best"]["CD14_Mono"] = result["published"]["best"]["B"]
    assert len(rerun_tables(result)) == 2
    with pytest.raises(ValueError, match="begin with a published method, such as 'baseControl'"):
        published.main([*arguments, "--seeds", "0", "--external", f"another={tmp_path / 'theirs'}"])


@pytest.mark.usefixtures("_made_up")
def test_a_run_refuses_other_scores_of_untreated_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = published.published

    def other(folder: Path, task: str) -> pd.DataFrame:
        return theirs(folder, task) + 0.001

    monkeypatch.setattr(published, "published", other)
    with pytest.raises(RuntimeError, match="scores of untreated cells are not those published"):
        published.main(["--task", "types", "--quick", "--threads", "1", "--output", str(tmp_path)])
    assert not list(tmp_path.iterdir())
    assert "place among" not in capsys.readouterr().out


@needs_data
@pytest.mark.parametrize(
    ("task", "context", "n_cells", "n_genes"), [("types", "DC", 13576, 12481), ("donors", "Pat107", 13093, 12417)]
)
def test_real_untreated_cells_have_the_published_scores(task: str, context: str, n_cells: int, n_genes: int) -> None:
    prepared = PREPARE[task](FOLDER)
    assert prepared.counts.shape == (n_cells, n_genes)
    theirs = published.published(FOLDER, task)
    assert len(theirs) == 14 * 8
    proof = published.proved({context: published.untreated_scores(prepared, context)}, theirs)
    assert proof["n_values"] == 15


# The page.


def made_up_result(ours: list[float]) -> dict[str, Any]:
    """Two types and two methods: energy distances of 1 and 3, and of 2 and 2; ours of one seed, and one seed more."""
    names = [
        f"{metric}_{n}"
        for n in (20, 50, 100, 5000)
        for metric in ("mse", "pearson_delta", "edistance", "sym_kldiv", "wasserstein", "common_degs")
        if (metric, n) != ("wasserstein", 5000) and (metric != "common_degs" or n == 100)
    ]
    predictions = {
        "scdiffgen": ours,
        "controls": [9.0, 9.0],
        "controls + mean change of similar ones": [4.0, 4.0],
        "one real half against the other": [0.0, 0.0],
    }
    rows = [
        {"seed": seed, "left_out": context, "prediction": prediction, **dict.fromkeys(names, value)}
        for seed in (0, 1)
        for prediction, values in predictions.items()
        for context, value in zip("ab", values, strict=True)
    ]
    return {
        "benchmark": "published",
        "task": "types",
        "data": {"name": "kangCrossCell", "n_cells": 7, "n_genes": 5},
        "proof": {"n_values": 3, "largest_difference": 0.0, "largest_relative_difference_of_wasserstein": 0.0},
        "environment": environment(1, [0, 1]),
        "published": {
            "means": {"first": dict.fromkeys(names, 1.5), "second": dict.fromkeys(names, 3.0)},
            "best": {
                "a": {name: ["first", 1.0] for name in names},
                "b": {name: ["second" if name.startswith("pearson") else "first", 2.0] for name in names},
            },
        },
        "rows": rows,
    }


def test_places_are_of_means_and_firsts_of_what_was_left_out() -> None:
    result = made_up_result([1.0, 3.0])
    assert means(result).loc["scdiffgen", "edistance_5000"] == 2
    assert (rank(result, "edistance_5000"), firsts(result, "edistance_5000")) == (2, 1)
    assert (rank(result, "pearson_delta_20"), firsts(result, "pearson_delta_20")) == (2, 2)


def test_results_are_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "published-kang-types.json").write_text(json.dumps(made_up_result([1.0, 3.0])))
    page = render.render(tmp_path, tmp_path)["published_responses.md"].read_text()
    assert "### A type left out" in page and "2 (first in 1 of 2)" in page


# The in-distribution setting.


def test_distances_are_recovered_from_min_max_scores_of_two_methods() -> None:
    distances = pd.Series({"best": 0.5, "trainMean": 2.0, "controlMean": 4.0, "worst": 10.5})
    scores = pd.Series({"best": 1.0, "trainMean": 0.85, "controlMean": 0.65, "worst": 0.0})
    pd.testing.assert_series_equal(min_max(distances), scores)
    pd.testing.assert_series_equal(recovered(scores, 4.0, 2.0), distances)
    assert recovered(scores, 4.0, 1.0)["best"] == 0, "not below zero"
    assert recovered(scores.replace(0.85, 0.66), 4.0, 2.0).isna().all(), "two known scores that are nearly equal"


def test_a_row_of_ours_joins_the_published_methods_and_changes_their_scores() -> None:
    scores = {"best": 1.0, "trainMean": 0.85, "controlMean": 0.65, "worst": 0.0}
    ours = {"scdiffgen": [0.0, 20.5], "controlMean": [4.0, 4.0], "trainMean": [2.0, 2.0]}
    names = ("pearson_delta_100", "edistance_100", "mse_100")
    result = {
        "published": {context: {m: dict.fromkeys(names, score) for m, score in scores.items()} for context in "ab"},
        "rows": [
            {"seed": 0, "left_out": context, "prediction": name, **dict.fromkeys(names, value)}
            for name, values in ours.items()
            for context, value in zip("ab", values, strict=True)
        ],
    }
    table = beside_published(result, "scdiffgen")
    assert table.at["best", "edistance_100"] == pytest.approx((10 / 10.5 + 1) / 2)
    assert table.at["worst", "mse_100"] == pytest.approx((0 + 10 / 20) / 2)
    assert table.at["scdiffgen", "edistance_100"] == pytest.approx((1 + 0) / 2)
    assert table.at["trainMean", "pearson_delta_100"] == 0.85, "as published"


def test_half_of_each_group_and_condition_are_training_cells(folder: Path) -> None:
    obs = of_types(folder).counts.obs
    train = split_in_half(obs, 0)
    assert (obs.assign(train=train).groupby(["context", "condition"], observed=True)["train"].mean() == 0.5).all()
    assert (split_in_half(obs, 0) == train).all() and (split_in_half(obs, 1) != train).any()


def test_predictions_are_compared_with_treated_test_cells_alone(folder: Path) -> None:
    prepared = of_types(folder)
    obs, train = prepared.counts.obs, split_in_half(prepared.counts.obs, 0)
    before, after = (
        prepared.expression(prepared.counts[(obs["context"] == "B") & (obs["condition"] == condition) & ~train])
        for condition in ("ctrl", "stim")
    )
    found = {name: cells for name, *cells in iid_predictions(prepared, "B", train, {}, 0)}
    for name in ("controls", "controls + mean change of the training cells", "treated training cells", "trainMean"):
        np.testing.assert_array_equal(found[name][1], after)
    np.testing.assert_array_equal(found["controls"][0], before)
    treated, control = (
        prepared.expression(prepared.counts[train & (obs["condition"] == condition)]).mean(0)
        for condition in ("stim", "ctrl")
    )
    drawn = found["trainMean"][0].mean(0)
    assert np.square(drawn - treated).sum() < np.square(drawn - control).sum()


@pytest.mark.usefixtures("_made_up")
def test_models_know_training_cells_and_predict_from_control_test_cells(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up_iid_table(of_donors(folder)).to_csv(folder / IID_TABLE, index=False)
    assert published.available_tasks() == ["types", "donors", *IID]
    seen: list[set[str]] = []
    asked: list[set[str]] = []
    make, predict = _published_iid.untrained_model, TokenDiffusion.predict_perturbation

    def made(cells: AnnData, *arguments: Any) -> TokenDiffusion:
        seen.append(set(cells.obs_names))
        assert set(zip(cells.obs["context"], cells.obs["condition"], strict=True)) == {
            (context, condition) for context in ("Pat101", "Pat1015") for condition in ("ctrl", "stim")
        }
        return make(cells, *arguments)

    def predicted(self: TokenDiffusion, adata: AnnData, *arguments: Any, **options: Any) -> Any:
        asked.append(set(adata.obs_names))
        assert set(adata.obs["condition"]) == {"ctrl"} and adata.obs["context"].nunique() == 1
        return predict(self, adata, *arguments, **options)

    monkeypatch.setattr(_published_iid, "untrained_model", made)
    monkeypatch.setattr(TokenDiffusion, "predict_perturbation", predicted)
    arguments = ["--task", "donors-iid", "--seeds", "0", "--quick", "--threads", "1"]
    published.main([*arguments, "--output", str(tmp_path)])
    assert len(seen) == 2 and len(asked) == 4, "one model a setup, which predicts every donor"
    assert not seen[0] & set.union(*asked)
    result = read_result(tmp_path / "published-kang-donors-iid.json")
    rows = pd.DataFrame(result["rows"]).set_index("prediction")
    assert {*_published_predictions.SETUPS["donors"], "controls", "trainMean", "treated training cells"} < set(
        rows.index
    )
    assert rows["edistance_5000"].notna().all()
    assert rows.loc["treated training cells", "mse_100"].max() < rows.loc["controls", "mse_100"].min()
    assert "| **scdiffgen** |" in capsys.readouterr().out
    assert "### Every donor partly known" in render.render(tmp_path, tmp_path)["published_responses.md"].read_text()
    monkeypatch.setattr(_published_iid, "untrained_model", lambda *_: pytest.fail("it was done before"))
    published.main([*arguments, "--output", str(tmp_path), "--resume"])
    with pytest.raises(SystemExit):
        published.main([*arguments, "--export", str(tmp_path)])


def made_up_iid_table(prepared: Prepared) -> pd.DataFrame:
    """Scores of the two known methods and of two others."""
    scores = {"best": 1.0, "trainMean": 0.9, "worst": 0.0}
    return pd.DataFrame(
        {
            "dataset": "kangCrossPatient",
            "left_out": f"stimulated_{context}",
            "n_genes": n,
            "method": method,
            **dict.fromkeys(("pearson_of_changes", "edistance_score", "mse_score"), score),
        }
        for context in prepared.contexts
        for n in (100, 5000)
        for method, score in (scores | {"controlMean" if n == 100 else "baseControl": 0.5}).items()
    )


@pytest.mark.skipif(not (FOLDER / IID_TABLE).exists(), reason="the published table is not there")
@pytest.mark.parametrize("task", IID)
def test_published_scores_of_every_group_have_a_best_and_a_worst_method(task: str) -> None:
    table = published_iid(FOLDER, task)
    assert len(table) == 14 * 8 and table.notna().all(axis=None)
    scores = table.filter(regex="edistance|mse").groupby(level="left_out")
    assert (scores.min() == 0).all(axis=None) and (scores.max() == 1).all(axis=None)
