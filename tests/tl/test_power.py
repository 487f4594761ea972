"""Power is that of closed forms, and false discoveries are as many as the test admits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from known_generator import KnownGenerator
from scipy import optimize, stats
from statsmodels.stats.power import TTestIndPower

from scdiffgen import tl
from scdiffgen.tl import _power
from scdiffgen.tl._power import cell_test, log_pseudobulks, moderated_variances, pseudobulk_test


def even(n_genes: int, library: float) -> KnownGenerator:
    """One type, all genes alike."""
    return KnownGenerator({"a": np.full(n_genes, 1 / n_genes)}, library)


def student(adata: AnnData) -> pd.Series:
    """Student's t test of log counts of donors."""
    logs = pd.DataFrame(np.log(adata.X.toarray()), columns=adata.var_names)
    arms, donors = (adata.obs[name].to_numpy() for name in ("arm", "donor"))
    means = logs.groupby([arms, donors]).mean()
    return pd.Series(stats.ttest_ind(means.loc["control"], means.loc["treated"]).pvalue, index=adata.var_names)


@pytest.mark.filterwarnings("ignore:50% of the genes change:UserWarning")
def test_power_equals_that_of_the_t_test_at_the_fdr_threshold() -> None:
    """Of many genes, Benjamini-Hochberg rejects those with p < t, where t = alpha * (share of genes with p < t)."""
    alpha, changed, sd, effect = 0.1, 0.5, 0.25, 0.5
    options = {"n_donors": [7, 9, 12], "n_cells": [2], "n_replicates": 1, "alpha": alpha, "share_changed": changed}
    deep = even(3000, 1e7)  # only donors vary
    table = tl.power_analysis(deep, [effect], test=student, experiment={"donor_sd": sd, "sample_sd": 0.0}, **options)
    table = table[table["stratum"] == "all"].set_index("n_donors")

    def expected(level: float, n_donors: int) -> float:
        return TTestIndPower().power(effect * np.log(2) / sd, n_donors, level)

    for n_donors, row in table.iterrows():
        threshold = optimize.brentq(
            lambda t, n=n_donors: (1 - changed) * t + changed * expected(t, n) - t / alpha, 1e-4, alpha
        )
        assert row["power"] == pytest.approx(expected(threshold, n_donors), abs=0.05)  # effects are cut at two sd
        assert row["low"] < row["power"] < row["high"] and row["high"] - row["low"] < 0.06
        assert row["false_discoveries"] == pytest.approx((1 - changed) * alpha, abs=0.025)
        assert row["type_1_error"] == pytest.approx(alpha, abs=0.03)
    assert table["power"].is_monotonic_increasing and table["n_genes"].eq(1500).all()
    assert table["detectable"].isna().tolist() == (table["power"] < 0.8).tolist()


RESULTS: dict[str, tuple[Callable[[AnnData], Any], str]] = {
    "logarithms": (lambda a: pd.Series(np.linspace(0, 9, a.n_vars), a.var_names), "not their logarithms"),
    "statistics": (lambda a: pd.Series(np.linspace(-1, 0.9, a.n_vars), a.var_names), "not their logarithms"),
    "genes twice": (
        lambda a: pd.Series(0.5, [*a.var_names, "gene0"]),
        "not unique: 'gene0' .*one p-value",
    ),
    "text": (lambda a: pd.Series("a", a.var_names), "a pandas Series of p-values"),
    "an array": (lambda a: np.zeros(a.n_vars), "a pandas Series of p-values"),
}


@pytest.mark.parametrize("what", RESULTS)
def test_results_that_are_no_p_values_are_named(what: str) -> None:
    test, message = RESULTS[what]
    with pytest.raises((TypeError, ValueError), match=message):
        tl.power_analysis(even(30, 1e3), [1.0], n_donors=[2], n_cells=[4], n_replicates=1, test=test)


@pytest.mark.parametrize("test", ["pseudobulk", "cells"])
def test_labels_too_rare_for_a_test_are_named(test: str) -> None:
    shares = {"a": np.full(30, 1 / 30), "rare": np.full(30, 1 / 30)}
    experiment = {"label_key": "cell_type", "in_labels": "rare", "shares": {"a": 0.999, "rare": 0.001}}
    options = {"n_donors": [3], "n_cells": [4], "n_replicates": 1, "test": test, "seed": 3}
    with pytest.raises(ValueError, match=r"`in_labels` of `experiment` is \['rare'\].*larger `n_cells`|is not a label"):
        tl.power_analysis(KnownGenerator(shares, 1e3), [1.0], experiment=experiment, **options)


@pytest.mark.parametrize("n_genes", [1, 2])
def test_genes_too_few_for_strata_are_named(n_genes: int) -> None:
    with pytest.raises(ValueError, match=f"`model`: only {n_genes} gene.*3 strata"):
        tl.power_analysis(even(n_genes, 1e3), [1.0], n_donors=[2], n_cells=[4], n_replicates=1)


def test_planted_genes_are_as_asked_and_subsamples_are_of_the_designs() -> None:
    seen: list[AnnData] = []

    def watch(adata: AnnData) -> pd.Series:
        seen.append(adata)
        return pd.Series(0.5, index=adata.var_names)

    model = even(300, 1e4)
    table = tl.power_analysis(
        model, [-0.5, 0.5, -1, 1], n_donors=[2, 3], n_cells=[5, 9], test=watch, n_replicates=2, share_changed=0.2
    )
    assert len(model.sizes) == 6 and (table["power"] == 0).all() and table["detectable"].isna().all()
    sizes = [set(cells.obs.groupby(["arm", "donor"], observed=True).size()) for cells in seen]
    assert sizes == 2 * [{5}, {9}, {5}, {9}] and [cells.obs["donor"].nunique() for cells in seen] == 2 * [4, 4, 6, 6]
    assert set(seen[0].obs_names) < set(seen[3].obs_names)
    change = seen[0].var["log2_fold_change"]
    assert change.value_counts().to_dict() == {0.0: 240, 0.5: 15, -0.5: 15, 1.0: 15, -1.0: 15}
    assert (table["n_genes"][table["stratum"] == "all"] == 30).all() and (table["type_1_error"] == 0).all()
    assert (change != seen[-1].var["log2_fold_change"]).any()


def test_an_oracle_has_all_the_power_and_a_guess_makes_false_discoveries() -> None:
    def truth(adata: AnnData) -> pd.Series:
        return adata.var["log2_fold_change"].eq(0).astype(float)

    def wrong(adata: AnnData) -> pd.Series:
        return 1 - truth(adata)

    options = {"n_donors": [2], "n_cells": [2], "n_replicates": 1, "share_changed": 0.2}
    table = tl.power_analysis(even(300, 1e4), [-1, 0.5, 1], test=truth, **options)
    assert (table["power"] == 1).all() and (table["high"] == 1).all()
    assert (table["detectable"] <= table["effect"].map({-1: 1, 0.5: 0.5, 1: 0.5})).all()
    assert (table["donors_needed"] == 2).all() and (table["cost"] == 2 * 2 * 2).all()
    assert (table["false_discoveries"] == 0).all() and (table["type_1_error"] == 0).all()
    assert (table["n_false"] == 0).all()
    assert (table["n_discoveries"] == np.where(table["stratum"] == "all", 60, 20)).all()
    table = tl.power_analysis(even(300, 1e4), [0.5, 1], test=wrong, **options)
    assert (
        (table["power"] == 0).all() and (table["false_discoveries"] == 1).all() and (table["type_1_error"] == 1).all()
    )
    assert (table["n_false"] == table["n_discoveries"]).all() and table["n_false"].max() == 240
    assert np.isinf(table["donors_needed"]).all() and np.isinf(table["cost"]).all()


def test_detectable_effects_and_donors_needed_are_those_of_the_t_test() -> None:
    """Small designs predict what a larger design needs; the level is that of Benjamini-Hochberg at the wanted power."""
    alpha, changed, sd, effects = 0.1, 0.5, 0.25, [0.3, 0.5]
    options = {"n_replicates": 8, "alpha": alpha, "share_changed": changed, "costs": (10, 1)}  # 2 are too noisy
    with pytest.warns(UserWarning, match="50% of the genes change, by 0.4 on average .* false"):
        table = tl.power_analysis(
            even(3000, 1e7),
            effects,
            n_donors=[8, 12],
            n_cells=[2],
            test=student,
            experiment={"donor_sd": sd, "sample_sd": 0.0},
            **options,
        )
    table = table[table["stratum"] == "all"].set_index(["n_donors", "effect"])
    detected = alpha * changed * 0.8 / (1 - alpha * (1 - changed))
    for effect in effects:
        solved = TTestIndPower().solve_power(effect * np.log(2) / sd, alpha=detected, power=0.8)
        donors = table["donors_needed"].xs(effect, level="effect")
        assert donors.nunique() == 1 and donors.iloc[0] == pytest.approx(solved, rel=0.2)
        assert (table["cost"].xs(effect, level="effect") == 2 * donors * (10 + 2)).all()
    # at a given design, the level is the one of its own discoveries
    own = table.loc[12]
    level = own["n_false"].iloc[0] / 1500
    solved = TTestIndPower().solve_power(nobs1=12, alpha=level, power=0.8) * sd / np.log(2)
    assert own["detectable"].iloc[0] == pytest.approx(solved, rel=0.05)
    assert own["n_false"].iloc[0] / own["n_discoveries"].iloc[0] == pytest.approx(
        own["false_discoveries"].iloc[0], abs=0.01
    )


def test_depth_needed_reaches_the_power_where_poisson_noise_is_all() -> None:
    options = {"n_donors": [4], "n_replicates": 4, "experiment": {"donor_sd": 0.0, "sample_sd": 0.0}}
    pilot = tl.power_analysis(even(900, 1e3), [-0.5, 0.5], n_cells=[20], **options)
    pilot = pilot[pilot["stratum"] == "all"].set_index("effect")
    assert (pilot["power"] < 0.3).all() and (pilot["depth_needed"] > 2).all()
    for effect, factor in pilot["depth_needed"].items():
        deep = tl.power_analysis(even(900, 1e3 * factor), [-0.5, 0.5], n_cells=[20], **options)
        deep = deep[deep["stratum"] == "all"].set_index("effect")
        assert deep.loc[effect, "power"] == pytest.approx(0.8, abs=0.12)


def null_study(seed: int, **options: object) -> AnnData:
    shares = np.random.default_rng(0).dirichlet(np.full(1000, 1.0))
    return tl.simulate_experiment(KnownGenerator({"a": shares}, 3000), seed=seed, **options)


@pytest.mark.parametrize("paired", [False, True])
def test_only_tests_of_donors_keep_their_level(paired: bool) -> None:
    """Under the null, genes are independent: binomial limits. Cells of a donor are not, and their test rejects more."""
    study = null_study(1, n_donors=5, n_cells=60, paired=paired, donor_sd=0.3)
    p = pseudobulk_test(study).dropna()
    assert len(p) > 900
    for level in (0.01, 0.05, 0.2):
        low, high = stats.binom.ppf([1e-3, 1 - 1e-3], len(p), level)
        assert low <= (p < level).sum() <= high
    if not paired:
        assert (cell_test(study) < 0.05).mean() > 0.15
        alike = null_study(2, n_donors=5, n_cells=60, donor_sd=0.0, sample_sd=0.0)
        assert (cell_test(alike) < 0.05).mean() < 0.08


@pytest.mark.parametrize("paired", [False, True])
def test_without_moderation_the_test_of_donors_is_student_s(paired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_power, "moderated_variances", lambda variance, df, mean: (variance, df))
    study = null_study(3, n_donors=4, n_cells=20, paired=paired)
    bulks = log_pseudobulks(study)
    test = stats.ttest_rel if paired else stats.ttest_ind
    expected = test(bulks.loc["treated"], bulks.loc["control"]).pvalue
    np.testing.assert_allclose(pseudobulk_test(study)[bulks.columns], expected)
    few = np.asarray(study.X.sum(0)).ravel() < 10
    assert few.any() and (pseudobulk_test(study).isna() == few).all()


def test_few_large_changes_do_not_move_the_rest() -> None:
    """A gene that takes a third of the molecules lowers the shares of all others, and no count of theirs."""
    shares = np.r_[0.15, np.full(499, 0.85 / 499)]
    study = tl.simulate_experiment(KnownGenerator({"a": shares}, 5000), {"gene0": 2.0}, n_donors=6, n_cells=100)
    p = pseudobulk_test(study)
    assert p.iloc[0] < 1e-4 and (p.iloc[1:] < 0.05).mean() < 0.09


def test_moderated_variances_find_the_prior() -> None:
    """Variances drawn from a scaled inverse chi-square law with a trend, 10 degrees of freedom, are shrunk to it."""
    rng, n, df, prior_df = np.random.default_rng(0), 20_000, 4, 10
    mean = rng.uniform(0, 10, n)
    scale = np.exp(-0.3 * mean)
    truth = scale * prior_df / rng.chisquare(prior_df, n)
    shrunk, total = moderated_variances(truth * rng.chisquare(df, n) / df, df, mean)
    assert total - df == pytest.approx(prior_df, rel=0.1)
    assert np.mean(np.log(shrunk / truth) ** 2) < 0.7 * np.mean(np.log(scale / truth) ** 2)
    z = rng.normal(0, np.sqrt(truth))
    assert stats.kstest(2 * stats.t.sf(np.abs(z) / np.sqrt(shrunk), total), "uniform").pvalue > 1e-3
    equal, df_equal = moderated_variances(scale * rng.chisquare(df, n) / df, df, mean)
    assert df_equal > 100 and np.abs(np.log(equal / scale)).max() < 0.15
    alike, df_alike = moderated_variances(scale * rng.uniform(0.9, 1.1, n), df, mean)
    assert df_alike > 1e6 and np.ptp(np.log(alike / scale)) < 0.02


def test_only_cells_of_the_changed_type_are_tested() -> None:
    """The other type is ten times as frequent; with it the change would be diluted."""
    seen: list[AnnData] = []

    def watch(adata: AnnData) -> pd.Series:
        seen.append(adata)
        return pseudobulk_test(adata)

    types = KnownGenerator(dict.fromkeys(["a", "b"], np.full(300, 1 / 300)), 3000)
    experiment = {"label_key": "cell_type", "in_labels": "a", "shares": {"a": 0.1, "b": 1.0}, "share_sd": 0.0}
    options = {"n_donors": [4], "n_cells": [200], "n_replicates": 1, "experiment": experiment}
    table = tl.power_analysis(types, [2.0], test=watch, **options)
    assert seen[0].obs["cell_type"].eq("a").all() and (table["power"] > 0.9).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"effect": [0.0]}, ValueError, r"`effect` is \[0.0\]: pass log2 fold changes"),
        ({"n_donors": [1]}, ValueError, "`n_donors` is 1: pass a whole number of at least 2"),
        ({"costs": (5, -1)}, ValueError, r"`costs` is \(5, -1\): pass the costs of a sample and of a cell"),
        ({"test": "edgeR"}, ValueError, r"`test` is 'edgeR': choose one of \['pseudobulk', 'cells'\]"),
        ({"n_donors": []}, ValueError, "`n_donors` is 0: pass a whole number of at least 2"),
        ({"test": lambda _: np.ones(300)}, TypeError, "`test` returned array.*: return a pandas Series of p-values"),
        ({"test": lambda _: pd.Series(np.ones(300))}, TypeError, "`test` returned .*, with the genes as index"),
        ({"share_changed": 0.01}, ValueError, "`share_changed` is 0.01, which selects 1 of 100 genes of low"),
        ({"experiment": {"pared": True}}, TypeError, "no argument 'pared'. Did you mean 'paired'"),
        ({"experiment": {"seed": 1}}, TypeError, "no argument 'seed'. It is an argument of `power_analysis`"),
    ],
)
def test_errors_name_argument_value_and_way_out(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="(?s)" + message):
        tl.power_analysis(even(300, 1e4), **{"n_replicates": 1, "n_donors": 2, "n_cells": 2} | options)
