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
from scdiffgen.metrics._summaries import (
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
    types = rng.integers(0, n_types, n)
    rates = np.random.default_rng(0).gamma(0.7, 3.0, size=(n_types, len(GENES)))
    programme = np.exp(rng.normal(size=(n, 1)) * (np.arange(len(GENES)) % 2))
    counts = rng.poisson(rates[types] * programme * rng.gamma(4.0, 0.25, size=(n, 1)))
    counts[:, 0] += 1
    obs = pd.DataFrame({"type": np.array([*"abcdefgh"])[types]}, index=[f"{seed}-{i}" for i in range(n)])
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
    table = joint_embedding(real, generated, "type", basis="pca", max_cells=1000)
    assert table["source"].value_counts().to_dict() == {"real": 70, "generated": 70}
    of_real, of_generated = (table[table["source"] == source] for source in ("real", "generated"))
    assert of_real["cell"].is_unique and list(of_generated["cell"]) == list(range(70))
    np.testing.assert_array_equal(of_real["group"], real.obs["type"].to_numpy()[of_real["cell"]])
    pca = PCA(2, svd_solver="full")
    expected = pca.fit_transform(log_normalised(real[of_real["cell"].to_numpy()], generated[:, GENES]))
    signs = np.sign((expected * table[["PC1", "PC2"]]).sum().to_numpy())
    np.testing.assert_allclose(table[["PC1", "PC2"]], expected * signs, atol=1e-3)
    np.testing.assert_allclose(table.attrs["explained"], pca.explained_variance_ratio_, rtol=1e-4)


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
    scores = metrics.evaluate(real, generated, n_pcs=5, n_trees=10, sources=["generated"], n_bootstrap=0)
    for name, folds in scores.folds.items():
        assert roc_of_folds(folds).auc.mean() == pytest.approx(scores.frame.loc[("overall", "generated"), name])
    assert len(scores.folds) == 3


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, y: gene_summary(x, y[:, :20]), ValueError, "`generated` lacks 10 of 30 genes"),
        (lambda x, y: gene_summary(x.X, y), TypeError, "`generated` is an AnnData, but `real` is a matrix"),
        (lambda x, y: gene_summary(x, y.X[:, :7]), ValueError, "`generated` has 7 genes, expected 30"),
        (lambda x, y: gene_summary(x, y[:0]), ValueError, "`generated` has no cells"),
        (lambda x, y: gene_correlations(x[:2], y, 9), ValueError, "`real` has 2 cells"),
        (lambda x, y: joint_embedding(x, y[:9]), ValueError, "needs 10 cells per side, but one side has 9"),
    ],
)
def test_what_cannot_be_computed_is_named(real, generated, call, error, message) -> None:
    with pytest.raises(error, match=message):
        call(real, generated)
