"""The numbers behind the figures of evaluation, against numpy, scanpy and scikit-learn."""

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.metrics import roc_auc_score, roc_curve

from scdiffgen import metrics
from scdiffgen.metrics._classifiers import cross_validated_scores
from scdiffgen.metrics._comparison import Settings
from scdiffgen.metrics._score_verdicts import relative_scores
from scdiffgen.metrics._summaries import (
    classifier_curves,
    gene_correlations,
    gene_summary,
    joint_embedding,
    library_size_quantiles,
    roc_of_folds,
)

GENES = [f"g{i}" for i in range(30)]


def simulate(n: int, seed: int, n_types: int = 3) -> ad.AnnData:
    """Types of cells with genes of their own, of uneven depth, with a programme that runs through all of them."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, n_types, n)
    rates = np.random.default_rng(0).gamma(0.7, 3.0, size=(n_types, len(GENES)))
    programme = np.exp(rng.normal(size=(n, 1)) * (np.arange(len(GENES)) % 2))
    counts = rng.poisson(rates[kind] * programme * rng.gamma(4.0, 0.25, size=(n, 1)))
    counts[:, 0] += 1
    obs = pd.DataFrame({"kind": np.array([*"abcdefgh"])[kind]}, index=[f"{seed}-{i}" for i in range(n)])
    return ad.AnnData(sparse.csr_matrix(counts.astype(np.float32)), obs=obs, var=pd.DataFrame(index=GENES))


@pytest.fixture(scope="module")
def real() -> ad.AnnData:
    return simulate(90, 1)


@pytest.fixture(scope="module")
def generated() -> ad.AnnData:
    """Fewer cells, with the genes the other way round."""
    return simulate(70, 2)[:, ::-1].copy()


def log_normalised(*cells: ad.AnnData) -> np.ndarray:
    joint = ad.concat(cells, index_unique="-")
    sc.pp.normalize_total(joint, target_sum=1e4)
    sc.pp.log1p(joint)
    return joint.X.toarray()


def test_genes_are_summarised_as_by_scanpy_and_numpy(real, generated) -> None:
    table = gene_summary(real, generated)
    assert list(table.index) == GENES
    for source, cells in (("real", real), ("generated", generated)):
        expected = sc.pp.calculate_qc_metrics(cells, percent_top=None)[1].loc[GENES]
        np.testing.assert_allclose(table[source]["mean"], expected["mean_counts"], rtol=1e-6)
        np.testing.assert_allclose(100 * table[source]["zero_fraction"], expected["pct_dropout_by_counts"], atol=1e-4)
        np.testing.assert_allclose(table[source]["variance"], cells[:, GENES].X.toarray().var(0), rtol=1e-5)


def test_the_band_of_library_sizes_holds_95_of_100_new_samples(monkeypatch) -> None:
    monkeypatch.setattr("scdiffgen.metrics._summaries.N_QUANTILES", 20)
    rng = np.random.default_rng(0)

    def sample(n: int) -> np.ndarray:
        return np.rint(rng.lognormal(7, 0.6, size=(n, 1)))

    inside = []
    for _ in range(150):
        table = library_size_quantiles(sample(400), sample(250))
        inside.append(table["generated"].between(table["low"], table["high"]).to_numpy())
    inner = np.mean(inside, axis=0)[2:-2]
    assert inner.mean() == pytest.approx(0.95, abs=0.02)
    assert inner.min() > 0.88


def test_library_sizes_of_twice_the_depth_have_twice_the_quantiles(real, monkeypatch) -> None:
    monkeypatch.setattr("scdiffgen.metrics._summaries.N_QUANTILES", 7)
    table = library_size_quantiles(real, real.X * 2)
    np.testing.assert_allclose(table["generated"], 2 * table["real"])
    np.testing.assert_allclose(table["real"], np.quantile(real.X.sum(1).A1, table["share"]))
    assert table["share"].iloc[3] == 0.5


def test_correlations_are_those_of_numpy_over_the_most_variable_genes(real, generated) -> None:
    found = gene_correlations(real, generated, n_genes=12)
    variance = pd.Series(log_normalised(real).var(0), index=GENES)
    assert set(found[0].index) == set(variance.nlargest(12).index)
    positions = [GENES.index(gene) for gene in found[0].index]
    for matrix, cells in zip(found, (real, generated[:, GENES]), strict=True):
        expected = np.corrcoef(log_normalised(cells)[:, positions], rowvar=False)
        np.testing.assert_allclose(matrix, expected, atol=1e-5)
        assert list(matrix.columns) == list(matrix.index) == list(found[0].index)


def test_components_are_those_of_both_sides_together(real, generated) -> None:
    table = joint_embedding(real, generated, "kind", basis="pca", max_cells=1000)
    assert table["source"].value_counts().to_dict() == {"real": 70, "generated": 70}
    of_real, of_generated = (table[table["source"] == source] for source in ("real", "generated"))
    assert of_real["cell"].is_unique and list(of_generated["cell"]) == list(range(70))
    np.testing.assert_array_equal(of_real["group"], real.obs["kind"].to_numpy()[of_real["cell"]])
    pca = PCA(2, svd_solver="full")
    expected = pca.fit_transform(log_normalised(real[of_real["cell"].to_numpy()], generated[:, GENES]))
    signs = np.sign((expected * table[["PC1", "PC2"]]).sum().to_numpy())
    np.testing.assert_allclose(table[["PC1", "PC2"]], expected * signs, atol=1e-3)
    np.testing.assert_allclose(table.attrs["explained"], pca.explained_variance_ratio_, rtol=1e-4)


def test_components_of_both_sides_favour_neither() -> None:
    """Components of one half of noise set it apart from the other half, as components of both do not."""
    first, second = np.random.default_rng(0).poisson(2.0, size=(2, 120, 300))
    own = metrics.ExpressionSpace.fit(first, n_pcs=2)
    assert own.pcs(first).var() > 1.5 * own.pcs(second).var()
    table = joint_embedding(first, second, basis="pca")
    spread = table.groupby("source")[["PC1", "PC2"]].var().sum(axis=1)
    assert spread["real"] == pytest.approx(spread["generated"], rel=0.25)


def test_a_umap_keeps_neighbours_and_repeats_itself(real, generated) -> None:
    table, again = (joint_embedding(real, generated, seed=3) for _ in range(2))
    pd.testing.assert_frame_equal(table, again)
    chosen = table.loc[table["source"] == "real", "cell"].to_numpy()
    expression = log_normalised(real[chosen], generated[:, GENES])
    assert trustworthiness(expression, table[["UMAP1", "UMAP2"]], n_neighbors=10) > 0.85


def test_curves_are_those_of_scikit_learn() -> None:
    x, y = np.random.default_rng(2).normal(size=(2, 60, 3))
    y = y + 0.7
    folds = cross_validated_scores(x.astype(np.float32), y.astype(np.float32), "forest", n_trees=10)
    found = roc_of_folds(folds)
    for fold, area, curve in zip(folds, *found[:0:-1], strict=True):
        truth = np.repeat([0, 1], [len(fold.real), len(fold.generated)])
        scores = np.concatenate([fold.real_scores, fold.generated_scores])
        assert area == pytest.approx(roc_auc_score(truth, scores))
        false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
        between = (found.false_positive > 0.0) & ~np.isin(found.false_positive, false)
        np.testing.assert_allclose(curve[between], np.interp(found.false_positive[between], false, true))
    assert found.auc.mean() == pytest.approx(metrics.classifier_auc(x, y, n_trees=10))
    assert found.false_positive[0] == 0 and (found.true_positive[:, 0] == 0).all()
    assert (found.true_positive[:, -1] == 1).all()


def test_curves_are_those_of_the_areas_that_evaluate_gives(real, generated) -> None:
    options = {"n_pcs": 5, "n_trees": 10, "seed": 4}
    for train in (None, simulate(80, 5)):
        curves = classifier_curves(real, generated, train, "kind", Settings(**options))
        scores = metrics.evaluate(
            real, generated, train, "kind", metrics=list(curves), sources=["generated"], n_bootstrap=0, **options
        ).frame
        for name, curve in curves.items():
            assert curve.auc.mean() == pytest.approx(scores.loc[("overall", "generated"), name])


def made_up(values: dict[str, float], *, ideal: float | str, direction: str, width: float = 0.01) -> pd.DataFrame:
    """Scores of one metric, ``m``, over all cells, with intervals of a given width."""
    index = pd.MultiIndex.from_product([["overall"], values], names=["group", "source"])
    scores = pd.DataFrame({"n": 50, "m": values.values()}, index=index)
    scores["m_low"], scores["m_high"] = scores["m"] - width / 2, scores["m"] + width / 2
    scores.attrs = {"ideal": {"m": ideal}, "direction": {"m": direction}}
    return scores


@pytest.mark.parametrize(
    ("generated", "limit", "nulls", "ideal", "direction", "expected"),
    [
        (0.3, 0.1, (0.5, 0.2), 0.0, "lower", 0.5),
        (0.05, 0.1, (0.5, 0.2), 0.0, "lower", 0.0),
        (0.7, 0.1, (0.5, 0.2), 0.0, "lower", 1.5),
        (-0.4, -0.1, (0.4, 0.2), 0.0, "lower", 0.0),
        (0.7, 0.6, (0.9, 1.0), 0.5, "closest to", 0.25),
        (0.3, 0.6, (0.9, 1.0), 0.5, "closest to", 0.25),
        (0.8, 0.9, (0.5, 0.6), "other_real", "higher", 0.25),
        (1.0, 0.9, (0.5, 0.6), "other_real", "higher", 0.0),
        (1.0, 0.9, (0.5, 0.6), "other_real", "closest to", 0.25),
        (0.8, 0.9, (0.895, 0.905), "other_real", "higher", np.nan),
        (np.nan, 0.9, (0.5, 0.6), "other_real", "higher", np.nan),
    ],
)
def test_scores_stand_between_limit_and_null(generated, limit, nulls, ideal, direction, expected) -> None:
    values = {"generated": generated, "other_real": limit, "null_poisson": nulls[0], "null_shuffled": nulls[1]}
    found = relative_scores(made_up(values, ideal=ideal, direction=direction))
    assert found.loc["overall", "m"] == pytest.approx(expected, nan_ok=True)


def test_a_null_that_cannot_be_told_from_real_cells_is_no_measure() -> None:
    values = {"generated": 0.3, "other_real": 0.1, "null_poisson": 0.5, "null_shuffled": 0.2}
    of_width = {w: made_up(values, ideal=0.0, direction="lower", width=w) for w in (0.05, 0.3, 0.5)}
    found = [relative_scores(scores).loc["overall", "m"] for scores in of_width.values()]
    assert found == pytest.approx([0.5, 0.5, np.nan], nan_ok=True)
    few = of_width[0.05].assign(n=9)
    few.attrs = of_width[0.05].attrs
    assert np.isnan(relative_scores(few).loc["overall", "m"])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, y: gene_summary(x, y[:, :20]), ValueError, "`generated` lacks 10 of 30 genes"),
        (lambda x, y: gene_summary(x.X, y), TypeError, "`generated` is an AnnData, but `real` is a matrix"),
        (lambda x, y: gene_summary(x, y.X[:, :7]), ValueError, "`generated` has 7 genes, expected 30"),
        (lambda x, y: gene_summary(x, y[:0]), ValueError, "`generated` has no cells"),
        (lambda x, y: library_size_quantiles(x[:0], y), ValueError, "`real` has no cells"),
        (lambda x, y: gene_correlations(x, y, n_genes=1), ValueError, "`n_genes` is 1"),
        (lambda x, y: gene_correlations(x[:2], y, 9), ValueError, "`real` has 2 cells"),
        (lambda x, y: gene_correlations(x.X.log1p(), y.X, 9), ValueError, "`real` holds .* not whole numbers"),
        (lambda x, y: joint_embedding(x, y, basis="tsne"), ValueError, "`basis` is 'tsne'"),
        (lambda x, y: joint_embedding(x, y[:9]), ValueError, "needs 10 cells of each side; there are 9"),
        (lambda x, y: joint_embedding(x, y, "donor"), ValueError, "`real` has no obs column 'donor'"),
        (lambda x, y: joint_embedding(x.X, y.X, "kind"), TypeError, "`real` is a csr_matrix without labels"),
        (
            lambda x, y: classifier_curves(x, y[:4], None, None, Settings()),
            ValueError,
            "`generated` has 4 cells to compare",
        ),
        (lambda x, y: classifier_curves(x[:8], y, None, None, Settings()), ValueError, "`real` has 2 cells to compare"),
        (lambda x, y: relative_scores(pd.DataFrame({"mmd": [1.0]})), ValueError, "not what `metrics.evaluate`"),
        (
            lambda x, y: relative_scores(metrics.evaluate(x, y, metrics=["mmd"], sources=["generated"]).frame),
            ValueError,
            "lacks the source 'other_real'",
        ),
        (
            lambda x, y: relative_scores(
                metrics.evaluate(x, y, metrics=["mmd"], sources=["generated", "other_real"]).frame
            ),
            ValueError,
            "lacks the source 'null_poisson'",
        ),
        (
            lambda x, y: relative_scores(metrics.evaluate(x, y, metrics=["mmd"], n_bootstrap=0).frame),
            ValueError,
            "lacks the intervals .'mmd_low'.*n_bootstrap",
        ),
    ],
)
def test_what_cannot_be_computed_is_named(real, generated, call, error, message) -> None:
    with pytest.raises(error, match=message):
        call(real, generated)
