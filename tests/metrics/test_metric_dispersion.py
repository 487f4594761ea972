"""Variation that generated cells miss: against numpy, scipy, closed forms, and cells from which an axis was taken."""

import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse, stats
from sklearn.decomposition import PCA

from scdiffgen import metrics
from scdiffgen.metrics._response import contrast_slope, label_contrasts
from scdiffgen.metrics._spread import log_variance_ratios, variances

N_GENES = 60
CYCLE = [f"cycle{i}" for i in range(8)]
NAMES = [*CYCLE, *(f"gene{i}" for i in range(N_GENES - 8))]


def simulate(n: int, seed: int, cycle: float = 1.0) -> ad.AnnData:
    """Negative binomial counts of three labels, and eight genes that a programme raises and lowers in all of them."""
    rng = np.random.default_rng(seed)
    types = rng.integers(0, 3, n)
    rates = 3 * np.random.default_rng(0).gamma(1.5, size=(3, N_GENES))
    rates[:, :8] = 8.0
    programme = cycle * rng.normal(size=(n, 1)) * (np.arange(N_GENES) < 8)
    means = rates[types] * np.exp(programme - 0.5 * cycle**2 * (np.arange(N_GENES) < 8))
    counts = rng.poisson(means * rng.gamma(5.0, 0.2, size=(n, N_GENES)))
    obs = pd.DataFrame({"type": np.array([*"abc"])[types]}, index=[f"{seed}-{i}" for i in range(n)])
    return ad.AnnData(sparse.csr_matrix(counts.astype(np.float32)), obs=obs, var=pd.DataFrame(index=NAMES))


@pytest.fixture(scope="module")
def train() -> ad.AnnData:
    return simulate(600, 1)


@pytest.fixture(scope="module")
def real() -> ad.AnnData:
    return simulate(300, 2)


@pytest.fixture(scope="module")
def other() -> ad.AnnData:
    return simulate(300, 3)


def dispersion(*cells: ad.AnnData, n_bootstrap: int = 200, **options: object) -> pd.DataFrame:
    how = {"metrics": "mean_distance", "sources": ["generated", "other_real"], "silent": True}
    return metrics.evaluate(*cells, n_bootstrap=n_bootstrap, **how, **options).dispersion


def log_normalised(cells: ad.AnnData) -> np.ndarray:
    cells = cells.copy()
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    return cells.X.toarray().astype(float)


def test_ratios_are_those_of_numpy_and_scikit_learn(train, real, other) -> None:
    generated = simulate(300, 4, cycle=0.5)
    table = dispersion(real, generated, train, "type", other_real=other, n_pcs=4, n_bootstrap=2)
    pca = PCA(4, svd_solver="full").fit(log_normalised(train))
    x, y, z = (pca.transform(log_normalised(cells)) for cells in (real, generated, other))
    ratios = table["ratio"].unstack("component")
    np.testing.assert_allclose(ratios.loc["overall"], y.var(axis=0) / x.var(axis=0), rtol=1e-4)
    np.testing.assert_allclose(table.loc["overall", "other_real"], z.var(axis=0) / x.var(axis=0), rtol=1e-4)
    shares = x.var(axis=0) / log_normalised(real).var(axis=0).sum()
    np.testing.assert_allclose(table.loc["overall", "share"], shares, rtol=1e-4)
    within = [
        (pd.DataFrame(p) - pd.DataFrame(p).groupby(c.obs["type"].to_numpy()).transform("mean")).pow(2).sum()
        for p, c in ((x, real), (y, generated))
    ]
    np.testing.assert_allclose(ratios.loc["within"], within[1] / within[0], rtol=1e-4)
    top = np.array(NAMES)[np.abs(pca.components_).argmax(axis=1)]
    assert [genes.split(", ")[0] for genes in table.loc["overall", "genes"]] == top.tolist()
    assert list(table.index.unique("group")) == ["overall", "within", "a", "b", "c"]


def test_an_axis_that_was_taken_away_is_found_and_named(train, real) -> None:
    table = dispersion(real, simulate(300, 5, cycle=0.3), train, "type", n_pcs=10)
    cycle = table[[set(genes.split(", ")) <= set(CYCLE) for genes in table["genes"]]]
    assert set(cycle.index.unique("group")) == {"overall", "within", "a", "b", "c"}
    assert (cycle["ratio"] < 0.5).all() and cycle["apart"].all()
    assert table.drop(cycle.index)["apart"].sum() <= 2


def test_one_population_has_no_axis_apart(train, real, other) -> None:
    table = dispersion(real, other, train, "type", n_pcs=20)
    assert table["apart"].mean() < 0.03
    alike = (table["low"] < 1) & (table["high"] > 1)
    assert 0.8 < alike.mean() <= 1


def test_intervals_of_gaussians_are_those_of_the_f_distribution() -> None:
    rng, n = np.random.default_rng(0), 400
    x, y = rng.normal(size=(n, 3)), 0.5 * rng.normal(size=(n, 3))
    weights = [np.vstack([np.ones(n), rng.multinomial(n, np.ones(n) / n, size=400)]) for _ in range(2)]
    rows = log_variance_ratios(x, y, *weights)
    np.testing.assert_allclose(np.exp(rows[0]), y.var(axis=0, ddof=1) / x.var(axis=0, ddof=1))
    assert np.exp(rows[0]).mean() == pytest.approx(0.25, rel=0.1)
    expected = np.log(stats.f(n - 1, n - 1).ppf([0.025, 0.975]))
    np.testing.assert_allclose(1.96 * rows[1:].std(axis=0), expected[1], rtol=0.2)


def test_variances_of_sparse_and_weighted_cells_are_those_of_numpy() -> None:
    rng = np.random.default_rng(1)
    x, labels, drawn = rng.poisson(1.0, size=(40, 6)), rng.integers(0, 3, 40), rng.integers(0, 3, 40)
    again = np.repeat(x, drawn, axis=0)
    for form in (x.astype(float), sparse.csr_matrix(x)):
        np.testing.assert_allclose(variances(form, drawn[None].astype(float))[0], again.var(axis=0, ddof=1))
    parts = [again[np.repeat(labels, drawn) == label] for label in range(3)]
    pooled = sum(part.var(axis=0) * len(part) for part in parts) / (len(again) - 3)
    np.testing.assert_allclose(variances(x.astype(float), drawn[None].astype(float), labels)[0], pooled)


@pytest.mark.parametrize("slope", [1.0, 0.6])
def test_the_slope_of_fold_changes_is_not_attenuated_by_noise(slope: float) -> None:
    rng = np.random.default_rng(3)
    means, labels = 0.6 * rng.normal(size=(4, 80)), np.repeat([*"abcd"], 15)

    def sample(of: np.ndarray, times: int = 1) -> np.ndarray:
        return np.tile(of[np.repeat(np.arange(4), 15)], (times, 1)) + rng.normal(size=(60 * times, 80))

    fitted, ones = label_contrasts(sample(means, 4), np.tile(labels, 4)), np.ones((1, 60))
    found, naive = [], []
    for _ in range(20):
        x, y = sample(means), sample(slope * means)
        found.append(contrast_slope(fitted, x, y, ones, ones, (labels, labels))[0])
        a, b = (
            np.concatenate([side[labels == label].mean(0) - side[labels != label].mean(0) for label in "abcd"])
            for side in (x, y)
        )
        naive.append(stats.linregress(a, b).slope)
    assert np.mean(found) == pytest.approx(slope, abs=0.03)
    assert np.mean(naive) < 0.93 * slope


def test_genes_of_labels_are_those_that_scipy_calls() -> None:
    rng = np.random.default_rng(4)
    labels = np.repeat([*"ab"], 50)
    x = rng.normal(size=(100, 40)) + 0.8 * (labels == "a")[:, None] * (np.arange(40) < 10)
    fitted = label_contrasts(x, labels)
    pvalues = stats.ttest_ind(x[labels == "a"], x[labels == "b"], equal_var=False).pvalue
    np.testing.assert_array_equal(fitted.significant[0], stats.false_discovery_control(pvalues) < 0.05)
    ones = np.ones((1, 100))
    slope = contrast_slope(fitted, x, 2 * x, ones, ones, (labels, labels))
    np.testing.assert_allclose(slope, 2)
    assert np.isnan(contrast_slope(fitted, x, x, ones, ones, (labels, np.repeat("a", 100)))).all()


def test_too_few_cells_are_nan_with_a_warning_and_names_of_groups_are_free(train, real) -> None:
    rare = real[np.r_[np.flatnonzero(real.obs["type"] != "c"), np.flatnonzero(real.obs["type"] == "c")[:8]]].copy()
    with pytest.warns(metrics.FewCellsWarning, match="too few cells: mean_distance of generated, other_real .c, "):
        table = dispersion(rare, rare, train, "type", n_pcs=3)
    assert table.loc["c", "ratio"].isna().all() and not table.loc["c", "apart"].any()
    assert table.drop(index="c")["ratio"].notna().all()
    rare.obs["type"] = "within"
    with pytest.raises(ValueError, match="has a group 'within'"):
        dispersion(rare, rare, groupby="type", n_pcs=3)


def test_matrices_have_rows_over_all_cells_and_genes_by_position(real) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = dispersion(real.X, real.X, n_pcs=3)
    assert list(table.index.unique("group")) == ["overall"]
    assert all(gene.isdigit() for gene in table["genes"].iloc[0].split(", "))
