"""Simulated experiments have the differences that were planted, whatever generates the cells."""

from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from anndata import AnnData
from known_generator import KnownGenerator
from scipy import stats
from small_cells import simulated_cells, trained_model
from treated_cells import treated_cells

from scdiffgen import tl

N_GENES = 30
SHARES = np.random.default_rng(0).dirichlet(np.full(N_GENES, 5.0), 2)
ALIKE = {"donor_sd": 0.0, "sample_sd": 0.0, "share_sd": 0.0}


def known(**options: object) -> KnownGenerator:
    return KnownGenerator(dict(zip(["a", "b"], SHARES, strict=True)), **options)


def sums(study: AnnData, by: list[str]) -> pd.DataFrame:
    """Pseudobulks."""
    return (
        pd.DataFrame(study.X.toarray(), columns=study.var_names)
        .groupby([study.obs[name].to_numpy() for name in by])
        .sum()
    )


def test_thinned_counts_are_poisson_of_the_planted_means() -> None:
    """Thinned Poisson counts are Poisson: sums and variances of every gene, by a z and a chi-square test."""
    change = pd.Series({"gene0": 2.0, "gene1": -1.0, "gene2": 0.7})
    study = tl.simulate_experiment(
        known(), change, conditions={"cell_type": "a"}, n_cells=1000, n_donors=2, depth=0.8, **ALIKE
    )
    factor = np.exp2(change.reindex(study.var_names, fill_value=0).to_numpy())
    for arm, ratio in (("control", np.ones(N_GENES)), ("treated", 0.8 * factor)):
        counts = study.X[(study.obs["arm"] == arm).to_numpy()].toarray()
        expected = 1000 * SHARES[0] * ratio
        z = (counts.sum(0) - 2000 * expected) / np.sqrt(2000 * expected)
        assert stats.kstest(z, "norm").pvalue > 1e-3 and np.abs(z).max() < 4
        dispersion = ((counts - expected) ** 2 / expected).sum(0)
        assert stats.kstest(stats.chi2.cdf(dispersion, 2000), "uniform").pvalue > 1e-3
    assert study.uns["simulation"]["library_factor"] == pytest.approx(4 * 0.8)


def test_ratios_are_exact_where_expression_depends_on_library_size() -> None:
    """Both arms are thinned from the same cells, so a model that is wrong about deep cells is wrong in both."""

    class Saturating(KnownGenerator):
        def bent(self, means: np.ndarray) -> np.ndarray:
            return 20 * means / (20 + means)

    model = Saturating({"a": SHARES[0]})
    study = tl.simulate_experiment(model, {"gene0": -1.0, "gene1": 2.0}, n_cells=4000, n_donors=1, depth=0.5, **ALIKE)
    bulks = sums(study, ["arm"])
    z = np.log(bulks.loc["treated"] / bulks.loc["control"]) - np.log(0.5 * np.exp2(study.var["log2_fold_change"]))
    z /= np.sqrt(1 / bulks.loc["treated"] + 1 / bulks.loc["control"])
    assert stats.kstest(z, "norm").pvalue > 1e-3 and np.abs(z).max() < 4


def test_control_cells_are_as_cells_of_usual_size() -> None:
    """The model expresses genes more in deep cells than in proportion; thinning alone would keep too many molecules."""

    class Accelerating(KnownGenerator):
        def bent(self, means: np.ndarray) -> np.ndarray:
            return means * (1 + means / 20)

    model = Accelerating({"a": SHARES[0]})
    study = tl.simulate_experiment(model, {"gene1": 2.0}, n_cells=2000, n_donors=1, **ALIKE)
    found, means = sums(study, ["arm"]).loc["control"] / 2000, SHARES[0] * model.library
    assert np.abs(np.log(found / model.bent(means))).max() < 0.2
    uncorrected = model.bent(4 * means) / 4
    assert np.log(uncorrected / model.bent(means)).max() > 0.5


def test_normalised_changes_are_those_of_the_expected_shares() -> None:
    """Within the changed type, by the closed form; unchanged genes shift by one constant."""
    options = {"label_key": "cell_type", "in_labels": "b", "n_cells": 2000, "n_donors": 1, **ALIKE}
    study = tl.simulate_experiment(known(), {"gene0": 3.0, "gene5": -2.0}, **options)
    after = SHARES[1] * np.exp2(study.var["log2_fold_change"])
    exact = np.log2(after / after.sum() / SHARES[1])
    np.testing.assert_allclose(study.var["log2_fold_change_normalised"], exact, atol=0.01)
    bulks = sums(study, ["cell_type", "arm"])
    bulks = np.log2(bulks.div(bulks.sum(axis=1), axis=0))
    for label, expected in (("a", np.zeros(N_GENES)), ("b", exact)):
        change = bulks.loc[label, "treated"] - bulks.loc[label, "control"]
        assert np.abs(change - expected).max() < 0.1


def test_a_token_plants_its_loadings() -> None:
    study = tl.simulate_experiment(known(), {"token_1": -1.5, "gene0": 0.5}, n_cells=2)
    expected = -1.5 * np.linspace(-2, 4, N_GENES) / 4
    expected[0] += 0.5
    np.testing.assert_allclose(study.var["log2_fold_change"], expected)


def slope(study: AnnData, least: float) -> tuple[float, float]:
    """Slope of observed on planted log2 fold changes of pseudobulks, and its standard error."""
    bulks = sums(study, ["arm"])
    used = (bulks.loc["control"] >= least).to_numpy()
    planted, control = study.var["log2_fold_change"][used], bulks.loc["control"][used]
    change = np.log2((bulks.loc["treated"][used] + 0.5) / (control + 0.5))
    weights = control / (1 + 2.0**-planted)  # from expected counts: observed ones would weigh noise
    fit = sm.WLS(change.to_numpy(), sm.add_constant(planted.to_numpy()), weights.to_numpy()).fit()
    return fit.params[1], fit.bse[1]


def test_changes_of_a_trained_model_are_unbiased(example: tuple) -> None:
    """On the simulated cells of the tests and the bundled PBMC: slope one, whatever the model has learned."""
    small = trained_model(simulated_cells(120), labels_key="cell_type", batch_key="batch")
    for model, n_cells in ((small, 1500), (example[1], 400)):
        genes = model.get_var_names()
        change = pd.Series(np.random.default_rng(1).uniform(-1.5, 1.5, len(genes)), index=genes)
        study = tl.simulate_experiment(model, change, n_donors=1, n_cells=n_cells, n_steps=8, silent=True, **ALIKE)
        estimate, error = slope(study, 100)
        assert abs(estimate - 1) < 5 * error < 0.1  # genes vary together, which the standard error does not know


def test_donors_and_samples_differ_as_stored_and_as_asked() -> None:
    options = {"n_donors": 8, "n_cells": 2, "paired": True, "donor_sd": 0.3, "sample_sd": 0.1}
    study = tl.simulate_experiment(KnownGenerator({"a": np.full(2000, 1 / 2000)}), **options)
    effects, samples = study.varm["sample_effects"].T, study.uns["simulation"]["samples"]
    assert samples["donor"].tolist() == 2 * [f"donor_{i}" for i in range(1, 9)]
    control, treated = effects[:8], effects[8:]
    assert np.std(control) == pytest.approx(np.hypot(0.3, 0.1), rel=0.03)
    assert np.std(treated - control) == pytest.approx(0.1 * np.sqrt(2), rel=0.03)
    unpaired = tl.simulate_experiment(known(), **{**options, "paired": False})
    assert unpaired.obs["donor"].nunique() == 16 and not set(
        unpaired.obs["donor"][unpaired.obs["arm"] == "control"]
    ) & set(unpaired.obs["donor"][unpaired.obs["arm"] == "treated"])
    deep = tl.simulate_experiment(known(), n_donors=2, n_cells=3000, conditions={"cell_type": "a"}, donor_sd=0.5)
    bulks, deep_effects = sums(deep, ["donor"]), deep.varm["sample_effects"].T
    z = (bulks - 3e6 * SHARES[0] * np.exp(deep_effects)) / np.sqrt(3e6 * SHARES[0] * np.exp(deep_effects))
    assert stats.kstest(z.to_numpy().ravel(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("key", ["batch", "donor", "sample", "arm"])
def test_donors_are_categories_of_the_model_each_once(key: str) -> None:
    model = known(donors=tuple("uvwxyz"), donor_key=key)
    study = tl.simulate_experiment(model, n_donors=3, n_cells=4, donor_key=key)
    generated = study.obs[f"generated_{key}" if key in ("arm", "donor") else key]
    assert sorted(study.obs["donor"].unique()) == [*"uvwxyz"] and (study.obs["donor"] == generated).all()
    with pytest.raises(ValueError, match=f"`donor_key` is '{key}'.* 6 categories .*, but 8 donors are needed: lower"):
        tl.simulate_experiment(model, n_donors=4, donor_key=key)


def test_shares_and_depth_change_as_asked() -> None:
    model = known()
    shares = {"shares": {"a": 3, "b": 1}, "treated_shares": {"a": 1, "b": 1}, "label_key": "cell_type"}
    study = tl.simulate_experiment(model, n_donors=2, n_cells=4000, depth=2.0, library_size=100, **shares, **ALIKE)
    of_b = study.obs["cell_type"].eq("b").groupby(study.obs["arm"], observed=True).sum()
    assert stats.binomtest(int(of_b["control"]), 8000, 0.25).pvalue > 1e-3
    assert stats.binomtest(int(of_b["treated"]), 8000, 0.5).pvalue > 1e-3
    np.testing.assert_allclose(study.uns["simulation"]["shares"], [[0.75, 0.25]] * 2 + [[0.5, 0.5]] * 2)
    library = sums(study, ["arm"]).sum(axis=1)
    ratio = library["treated"] / library["control"]
    assert abs(ratio - 2) < 4 * 2 * np.sqrt(1 / library).max() and (model.sizes[0] == 200).all()
    varied = tl.simulate_experiment(model, n_donors=40, n_cells=1, share_sd=0.5, donor_sd=0.0, sample_sd=0.0, **shares)
    odds = np.log(np.divide(*varied.uns["simulation"]["shares"][:40].T))
    assert odds.mean() == pytest.approx(np.log(3), abs=0.4) and odds.std() == pytest.approx(0.5 * np.sqrt(2), rel=0.3)


def test_same_seed_same_cells_and_a_file_keeps_the_truth(example: tuple, tmp_path: Path) -> None:
    options = {"n_donors": 2, "n_cells": 4, "n_steps": 4, "label_key": "cell_type", "in_labels": ["Dendritic"]}
    options |= {"shares": {"Dendritic": 0.5, "CD19+ B": 0.5}, "silent": True}
    study, again, other = (
        tl.simulate_experiment(example[1], {"LYZ": -1.0, "token_1": 0.5}, seed=seed, **options) for seed in (1, 1, 2)
    )
    assert (study.X != again.X).nnz == 0 and (study.X != other.X).nnz > 0 and study.X.dtype.kind == "i"
    study.write_h5ad(tmp_path / "study.h5ad")
    read = anndata.read_h5ad(tmp_path / "study.h5ad")
    pd.testing.assert_frame_equal(read.obs, study.obs)
    pd.testing.assert_frame_equal(read.var, study.var)
    before, after = study.uns["simulation"], read.uns["simulation"]
    assert set(before) == set(after) and after["n_donors"] == 2 and after["in_labels"].tolist() == ["Dendritic"]
    pd.testing.assert_frame_equal(before["samples"], after["samples"])
    np.testing.assert_allclose(before["shares"], after["shares"])


def test_drawn_conditions_are_those_of_generated_cells(example: tuple) -> None:
    model = example[1]
    drawn = model.draw_conditions(n_cells=50, seed=3)
    cells = model.generate(n_cells=50, n_steps=4, seed=3, silent=True)
    np.testing.assert_array_equal(drawn.pop("library_size"), cells.X.sum(1).A1)
    pd.testing.assert_frame_equal(drawn, cells.obs)
    given = model.draw_conditions(n_cells=50, seed=3, library_size=7)
    assert (given.pop("library_size") == 7).all() and given.equals(drawn)


@pytest.mark.parametrize("columns", [["guide"], ["first", "second"]])
def test_both_arms_are_untreated_unless_a_perturbation_is_asked_for(columns: list[str]) -> None:
    cells = treated_cells()
    cells.obs["first"], cells.obs["second"] = (cells.obs["guide"].replace(name, "ctrl") for name in "BA")
    model = trained_model(cells, labels_key="cell_type", perturbation_key=columns, control="ctrl")
    asked = dict.fromkeys(columns, "ctrl") | {columns[0]: "A"}
    for conditions, expected in ((None, dict.fromkeys(columns, "ctrl")), (asked, asked)):
        study = tl.simulate_experiment(model, None, conditions=conditions, n_donors=1, n_steps=2, silent=True)
        assert (study.obs[columns] == pd.Series(expected)).all(axis=None)
    given = {"label_key": columns[0], "shares": {"A": 1.0}, "n_donors": 1, "n_steps": 2, "silent": True}
    assert tl.simulate_experiment(model, **given).obs[columns[0]].eq("A").all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log2_fold_change": {"gen0": 1}}, "'gen0' is not a token or gene .* Did you mean 'gene"),
        ({"log2_fold_change": {"gene0": np.nan}}, "`log2_fold_change` of 'gene0' is nan: pass finite"),
        (
            {"log2_fold_change": {"gene0": 2.0}, "depth": 3, **ALIKE},
            "'gene0' would increase 12.0-fold, .*: 3-fold by `depth`, .* 4-fold by `log2_fold_change` and 1-fold by",
        ),
        ({"depth": 3000, **ALIKE}, "3000-fold by `depth`, the ratio of library sizes"),
        ({"depth": 0}, "`depth` is 0: pass a number above 0"),
        ({"donor_sd": -1}, "`donor_sd` is -1: pass a number of at least 0"),
        ({"n_donors": 0}, "`n_donors` is 0: pass a whole number of at least 1"),
        ({"in_labels": "a"}, "`in_labels` needs `label_key`, which is None: name"),
        ({"in_labels": [], "label_key": "cell_type"}, "`in_labels` is empty, so no gene would change: name labels"),
        ({"in_labels": "c", "label_key": "cell_type"}, "`in_labels`: 'c' is not a label of the simulated cells"),
        ({"n_cells": [10, 20]}, r"`n_cells` is \[10, 20\]"),
        ({"depth": [3]}, r"`depth` is \[3\]"),
        ({"in_labels": "a", "label_key": "type"}, "`label_key`: 'type' is not a registered condition"),
        ({"treated_shares": {"a": 1}, "label_key": "cell_type"}, "`treated_shares` are given without `shares`"),
        ({"shares": {"a": -1, "b": 2}, "label_key": "cell_type"}, "`shares` .* pass nonnegative numbers"),
        ({"donor_key": "batch"}, "`donor_key`: 'batch' is not a registered condition"),
        ({"conditions": {"cell_type": "a"}, "donor_key": "cell_type"}, "both name 'cell_type': leave it out"),
        (
            {"conditions": {"cell_type": "a"}, "shares": {"a": 1}, "label_key": "cell_type"},
            "both name 'cell_type': leave it out",
        ),
    ],
)
def test_errors_name_argument_value_and_way_out(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tl.simulate_experiment(known(), **options)
