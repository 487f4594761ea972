"""`evaluate` against the single metrics, and what it says of cells that are copied, shuffled, few or badly given."""

import json
import sys
import tracemalloc
import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import ks_2samp

from scdiffgen import metrics
from scdiffgen.metrics._distances import overlap_resampled

N = 160
ANY = object()  # value of a column that has tests of its own
FAST = {"n_pcs": 5, "n_trees": 10, "n_bootstrap": 5, "silent": True}


def simulate(n: int, seed: int) -> ad.AnnData:
    """Two kinds of cells in equal numbers, with correlated genes and uneven depth."""
    rng = np.random.default_rng(seed)
    types = np.arange(n) % 2
    rates = np.random.default_rng(0).gamma(1.0, size=(2, 40))
    programme = np.exp(rng.normal(size=(n, 1)) * (np.arange(40) < 20))
    counts = rng.poisson(3 * rates[types] * programme * rng.gamma(4.0, 0.25, size=(n, 1)))
    counts[:, -1] += 1
    obs = pd.DataFrame({"type": pd.Categorical.from_codes(types, ["a", "b"])}, index=[f"{seed}-{i}" for i in range(n)])
    return ad.AnnData(sparse.csr_matrix(counts.astype(np.float32)), obs=obs)


@pytest.fixture(scope="module")
def cells() -> dict[str, ad.AnnData]:
    return {name: simulate(N, seed) for seed, name in enumerate(("train", "real", "other", "generated"))}


@pytest.fixture(scope="module")
def evaluation(cells) -> metrics.Evaluation:
    """All metrics, with the genes of the generated cells the other way round: they are aligned by name."""
    turned = cells["generated"][:, ::-1].copy()
    return metrics.evaluate(
        cells["real"], turned, cells["train"], "type", other_real=cells["other"], metrics="all", **FAST
    )


@pytest.fixture(scope="module")
def scores(evaluation) -> pd.DataFrame:
    return evaluation.frame


def test_every_column_is_its_metric(cells, scores) -> None:
    space = metrics.ExpressionSpace.fit(cells["train"], n_pcs=5)
    train, x, y = (space.pcs(cells[name]) for name in ("train", "real", "generated"))
    genes_x, genes_y = (space.expression(cells[name]) for name in ("real", "generated"))
    labels = [cells[name].obs["type"] for name in ("train", "generated", "real")]
    both = {"real_labels": labels[2], "generated_labels": labels[1]}
    once, (a, b) = (np.ones((1, N)), np.ones((1, N))), (side.astype(float).toarray() for side in (genes_x, genes_y))
    expected = {
        "mmd": metrics.mmd(x, y),
        "wasserstein": metrics.wasserstein(x, y),
        "energy_distance": metrics.energy_distance(x, y),
        "c2st_auc_forest_pcs": metrics.classifier_auc(x, y, n_trees=10, **both),
        "c2st_auc_forest_genes": metrics.classifier_auc(genes_x, genes_y, n_trees=10, **both),
        "c2st_auc_logistic_genes": metrics.classifier_auc(genes_x, genes_y, classifier="logistic", **both),
        **{name: values[0] for name, values in overlap_resampled(x, y, *once).items()},
        "library_size_ks": ks_2samp(*(np.ravel(cells[name].X.sum(1)) for name in ("real", "generated"))).statistic,
        "mean_distance": ((a.mean(0) - b.mean(0)) ** 2 - a.var(0, ddof=1) / N - b.var(0, ddof=1) / N)
        @ (2 / (a.var(0) + b.var(0))),
        "gene_correlation": metrics.gene_correlation_error(genes_x, genes_y),
        "label_fold_change_slope": ANY,
        "label_accuracy": metrics.label_accuracy(x, labels[2], y, labels[1], train, labels[0]).generated,
        "novelty": metrics.novelty(x, y, train).ratio,
    }
    row = scores.loc[("overall", "generated")]
    words = set(scores.attrs["verdict"].values())
    assert [c for c in scores if not c.endswith(("_low", "_high")) and c not in words] == ["n", *expected]
    assert row[list(expected)].notna().all()
    known = {name: value for name, value in expected.items() if value is not ANY}
    assert row[list(known)].to_dict() == pytest.approx(known)


def test_rows_are_groups_by_sources_each_scored_on_its_own_cells(cells, scores) -> None:
    assert list(scores.index.unique("group")) == ["overall", "a", "b"]
    assert list(scores.index.unique("source")) == ["generated", "other_real", "null_poisson", "null_shuffled"]
    assert (scores["n"].loc["overall"] == N).all() and (scores["n"].loc[["a", "b"]] == N // 2).all()
    space = metrics.ExpressionSpace.fit(cells["train"], n_pcs=5)
    x, y = (space.pcs(c[c.obs["type"] == "b"]) for c in (cells["real"], cells["generated"]))
    assert scores.loc[("b", "generated"), "wasserstein"] == pytest.approx(metrics.wasserstein(x, y))


def test_nulls_are_worse_than_new_cells_where_they_should_be(scores) -> None:
    overall = scores.loc["overall"]
    for null in ("null_poisson", "null_shuffled"):
        for column in ("gene_correlation", "library_size_ks"):
            assert overall.loc["generated", column] < 0.8 * overall.loc[null, column]


def test_intervals_hold_the_estimate_and_stay_in_range(scores) -> None:
    for column, direction in scores.attrs["direction"].items():
        low, values, high = (scores[f"{column}{end}"].dropna() for end in ("_low", "", "_high"))
        assert (low <= values + 1e-12).all() and (values <= high + 1e-12).all()
        assert len(low) == len(scores) or column == "label_fold_change_slope"
        assert direction in ("lower", "higher", "closest to")
    assert scores["c2st_auc_forest_genes_high"].max() <= 1
    assert scores["library_size_ks_low"].min() >= 0


def test_attributes_are_plain_values(scores) -> None:
    attributes = json.loads(json.dumps(scores.attrs))
    assert attributes["ideal"]["c2st_auc_forest_pcs"] == 0.5
    assert attributes["ideal"]["label_accuracy"] == "other_real"
    assert attributes["n_cells"]["generated"] == N
    assert attributes["settings"]["seed"] == 0
    assert attributes["verdict"]["mmd"] in scores


def test_same_seed_same_scores(cells) -> None:
    first, again, other = (
        metrics.evaluate(cells["real"], cells["generated"], metrics=chosen, sources=sources, seed=seed, **FAST).frame
        for chosen, sources, seed in (
            (["coverage"], ["generated"], 0),
            ("coverage", "generated", 0),
            ("coverage", "generated", 1),
        )
    )
    pd.testing.assert_frame_equal(first, again)  # one name needs no list
    assert not first.equals(other)


def test_sources_do_not_depend_on_which_others_are_asked_for(cells) -> None:
    options = {"groupby": "type", "metrics": ["mmd"], "max_cells": 15, **FAST}
    both = metrics.evaluate(cells["real"], cells["generated"], **options).frame
    one = metrics.evaluate(cells["real"], cells["generated"], sources=["null_poisson"], **options).frame
    pd.testing.assert_frame_equal(both[list(one)].xs("null_poisson", level="source"), one.droplevel("source"))


def test_without_training_cells_real_cells_are_split(cells) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = metrics.evaluate(
            cells["real"].X, cells["generated"].X.toarray(), metrics=["mmd", "novelty"], **FAST
        ).frame
    assert list(scores.columns) == ["n", "mmd", "mmd, lower is better", "mmd_low", "mmd_high"]
    assert scores.attrs["n_cells"]["fitted"] == N // 2
    assert scores.attrs["n_cells"]["reference"] == scores.attrs["n_cells"]["other_real"] == N // 4
    assert scores.attrs["settings"]["fitted_on"] == "real"


def test_copied_training_cells_are_warned_of(cells) -> None:
    options = {"metrics": ["novelty"], "sources": ["generated"], **FAST}
    with pytest.warns(metrics.CopyWarning, match=f"{N} of {N} are copies"):
        scores = metrics.evaluate(cells["real"], cells["train"], cells["train"], **options).frame
    assert scores.loc[("overall", "generated"), "novelty"] == 0


def test_absent_and_small_groups_are_nan_with_one_warning(cells) -> None:
    generated = cells["generated"][:53].copy()
    generated.obs["type"] = ["a"] * 50 + ["b"] * 3
    real = cells["real"].copy()
    real.obs["type"] = real.obs["type"].astype(str).replace("b", "c").to_numpy()
    real.obs.iloc[:8, 0] = "b"
    with pytest.warns(metrics.FewCellsWarning) as caught:
        scores = metrics.evaluate(
            real,
            generated,
            groupby="type",
            metrics=["wasserstein", "mmd", "coverage"],
            sources=["generated", "other_real"],
            **FAST,
        ).frame
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "mmd, wasserstein, coverage of generated (c, 0 cells)" in message
    assert "coverage of generated, other_real (b, 2 cells)" in message
    assert scores.loc[("c", "generated"), ["mmd", "coverage"]].isna().all()
    assert np.isfinite(scores.loc[("b", "generated"), "mmd"])
    assert np.isfinite(scores.loc[("c", "other_real"), "mmd"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"metrics": ["mmd", "fid"]}, ValueError, r"Unknown metrics or sources \['fid'\]"),
        ({"groupby": "typ"}, ValueError, "`real` has no obs column 'typ'"),
        ({"groupby": "bad"}, ValueError, "has a group 'overall'"),
        ({"groupby": "gap"}, ValueError, "is missing for 1 cells"),
    ],
)
def test_bad_arguments_are_named(cells, change, error, message) -> None:
    real = cells["real"].copy()
    real.obs["bad"] = "overall"
    real.obs["gap"] = [np.nan, *["a"] * (N - 1)]
    with pytest.raises(error, match=message):
        metrics.evaluate(real, cells["generated"], **{**FAST, **change})


def test_expression_instead_of_counts_is_named(cells) -> None:
    generated = cells["generated"].copy()
    generated.X = generated.X.log1p()
    with pytest.raises(ValueError, match="`generated` holds .* not whole numbers"):
        metrics.evaluate(cells["real"], generated, **FAST)
    with pytest.raises(TypeError, match="`generated` is a csr_matrix without labels"):
        metrics.evaluate(cells["real"], cells["generated"].X, groupby="type", **FAST)


def test_without_pot_the_wasserstein_distance_is_skipped_with_a_warning(cells, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    pair = cells["real"], cells["generated"]
    with pytest.warns(UserWarning, match=r"`wasserstein` is left out.*pip install 'scdiffgen\[eval\]'"):
        scores = metrics.evaluate(*pair, metrics="all", **FAST).frame
    assert "wasserstein" not in scores and scores["energy_distance"].notna().all()
    with pytest.raises(ImportError, match=r"pip install 'scdiffgen\[eval\]'"):
        metrics.evaluate(*pair, metrics=["mmd", "wasserstein"])


def test_a_bar_is_shown_unless_silent_and_does_not_change_the_scores(cells, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"metrics": "mmd", "groupby": "type", **FAST}
    quiet = metrics.evaluate(cells["real"], cells["generated"], **options)
    assert capsys.readouterr() == ("", "")
    loud = metrics.evaluate(cells["real"], cells["generated"], **options | {"silent": False})
    shown = capsys.readouterr()
    assert shown.out == "" and "Scoring" in shown.err and "100%" in shown.err
    pd.testing.assert_frame_equal(loud.frame, quiet.frame)


def test_dispersion_names_genes_and_needs_other_real_cells(cells) -> None:
    named = cells["real"].copy()
    named.var["symbol"] = [f"symbol of {name}" for name in named.var_names]
    options = {"groupby": "type", "n_pcs": 5, "n_bootstrap": 5, "gene_symbols": "symbol"}
    found = metrics.evaluate(named, cells["generated"], metrics="mmd", silent=True, **options)
    assert found.dispersion["genes"].str.startswith("symbol of ").all()
    assert metrics.evaluate(named, cells["generated"], sources="generated", metrics="mmd", **FAST).dispersion is None
    with pytest.raises(TypeError, match="`gene_symbols` is 'symbol', but `real` is a matrix"):
        metrics.evaluate(named.X, cells["generated"].X, gene_symbols="symbol", **FAST)


@pytest.mark.parametrize("side", ["real", "generated", "train"])
def test_the_side_that_is_not_counts_is_named_with_its_layer(cells, side) -> None:
    sides = {name: cells[name].copy() for name in ("real", "generated", "train")}
    for each in sides.values():
        each.layers["raw"] = each.X
    sides[side].layers["raw"] = sides[side].X.log1p()
    with pytest.raises(ValueError, match=rf"`{side}` holds \d+,\d+ values .*, so layer 'raw' is not counts"):
        metrics.evaluate(**sides, layer="raw", metrics="mmd", **FAST)
    if side == "real":
        with pytest.raises(ValueError, match="`real` holds"):
            metrics.evaluate(sides["real"], sides["generated"], layer="raw", metrics="mmd", **FAST)


N_GENES = 3000


def random_counts(n_cells: int, seed: int) -> sparse.csr_matrix:
    """One molecule each of some genes at random."""
    return sparse.random(n_cells, N_GENES, 0.05, "csr", np.float32, random_state=seed, data_rvs=np.ones)


def peak_and_inputs(n_cells: int) -> tuple[int, int]:
    """Bytes at the peak of `evaluate`, above the inputs; and bytes of the inputs."""
    sides = [random_counts(n_cells, seed) for seed in (0, 1)]
    tracemalloc.start()
    metrics.evaluate(*sides, metrics=["mmd", "recall", "gene_correlation"], n_pcs=5, max_cells=200, n_bootstrap=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, sum(part.nbytes for side in sides for part in (side.data, side.indices, side.indptr))


def test_more_cells_take_little_more_memory_than_they_are_large() -> None:
    """Copies of all cells, or expression of all of them, would take several times as much, and dense cells more."""
    peak_and_inputs(100)  # whatever is loaded at first use
    (few, small), (many, large) = peak_and_inputs(3000), peak_and_inputs(9000)
    assert many - few < 2 * (large - small)
