"""Scores of a response against scipy, scikit-learn and scperteval."""

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from scipy.stats import false_discovery_control, linregress, mannwhitneyu, pearsonr, spearmanr, ttest_ind
from sklearn.metrics import average_precision_score

from scdiffgen import metrics
from scdiffgen.metrics._response import (
    de_overlap,
    de_pr_auc,
    discrimination_score,
    fold_change_slope,
    fold_change_spearman,
    rank_genes,
    sign_agreement,
    weighted_mse,
)


@pytest.fixture
def changes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    real = rng.normal(size=50) * (np.arange(50) < 20)
    return real, 0.6 * real + 0.2 * rng.normal(size=50)


@pytest.fixture
def cells() -> tuple[np.ndarray, np.ndarray]:
    """Expression with many ties of treated and control cells; the last gene never varies."""
    rng = np.random.default_rng(1)
    rates = 0.2 + rng.gamma(0.7, size=40)
    treated = np.log1p(rng.poisson(rates * np.where(np.arange(40) < 10, 3, 1), size=(35, 40)))
    control = np.log1p(rng.poisson(rates, size=(45, 40)))
    treated[:, -1] = control[:, -1] = 0
    return treated, control


def test_called_genes_are_those_of_scipy(cells) -> None:
    treated, control = cells
    varying = np.arange(40) < 39
    ranks = mannwhitneyu(treated[:, varying], control[:, varying], method="asymptotic", use_continuity=False)
    expected = false_discovery_control(np.append(ranks.pvalue, 1.0))
    tests = rank_genes(sparse.csr_matrix(treated), sparse.csr_matrix(control))
    np.testing.assert_allclose(tests.pvalue, expected, rtol=1e-6)
    assert tests.pvalue[~varying] == 1
    assert tests.significant.sum() == (expected < 0.05).sum() > 3


def test_t_is_that_of_scipy(cells) -> None:
    treated, control = cells
    expected = ttest_ind(treated[:, :-1], control[:, :-1], equal_var=False).statistic
    tests = rank_genes(treated, sparse.csr_matrix(control))
    np.testing.assert_allclose(tests.t[:-1], expected, rtol=1e-4)
    assert tests.t[-1] == 0


def test_correlations_and_slope_are_those_of_scipy(changes) -> None:
    real, predicted = changes
    called = np.arange(50) < 20
    assert metrics.pearson_delta(real, predicted) == pytest.approx(pearsonr(real, predicted).statistic)
    assert fold_change_spearman(real, predicted, called) == pytest.approx(
        spearmanr(real[called], predicted[called]).statistic
    )
    line = linregress(real[called], predicted[called])
    assert fold_change_slope(real, predicted, called) == pytest.approx(line.slope)
    assert fold_change_slope(real, real / 2, called) == pytest.approx(0.5)


def test_pr_auc_and_signs_follow_their_definitions(changes) -> None:
    real, predicted = changes
    called = np.arange(50) < 20
    expected = average_precision_score(called, np.abs(predicted))
    assert de_pr_auc(called, predicted) == pytest.approx(expected)
    assert sign_agreement(real, predicted, called) == ((real * predicted)[called] > 0).mean()
    assert sign_agreement(real, -real, called) == 0


def test_weighted_mse_and_overlap_are_those_of_scperteval(changes) -> None:
    theirs = pytest.importorskip("scperteval.protocols.metrics")
    weights = pytest.importorskip("scperteval.blocks.de").mejia_weights
    real, predicted = changes
    statistic = 5 * real + np.random.default_rng(2).normal(size=50)
    expected = weights(statistic) @ (real - predicted) ** 2
    assert weighted_mse(real, predicted, statistic) == pytest.approx(expected)

    class Truth:
        statistic = real

    for n_top in (3, 10, 20):
        assert de_overlap(real, predicted, n_top=n_top) == pytest.approx(
            theirs.de_overlap(Truth, np.abs(predicted), None, k=n_top)
        )


def test_discrimination_is_the_rank_by_cosine(changes) -> None:
    rng = np.random.default_rng(3)
    real = rng.normal(size=(8, 50))
    predicted = real[5] + 4 * rng.normal(size=50)
    rank = np.argsort(np.argsort(cdist(predicted[None], real, metric="cosine")[0]))[5]
    assert discrimination_score(real, predicted, own=5) == pytest.approx(1 - rank / 7)
    assert discrimination_score(real, real[2], own=2) == 1
    assert discrimination_score(real[[2, 2, 2, 1, 0]], real[2], own=0) == 1 - 0.5 * 2 / 4
    chance = [discrimination_score(real, rng.normal(size=50), own=0) for _ in range(200)]
    assert np.mean(chance) == pytest.approx(0.5, abs=4 * np.std(chance) / np.sqrt(200))


def test_no_change_scores_nothing_rather_than_something_arbitrary(changes) -> None:
    real, _ = changes
    none, called = np.zeros(50), np.arange(50) < 20
    assert np.isnan(metrics.pearson_delta(real, none))
    assert np.isnan(metrics.pearson_delta(real, none + 1e-15 * real))
    assert np.isnan(discrimination_score(np.stack([real, -real]), none, own=0))
    assert np.isnan(fold_change_spearman(real, none, called))
    assert de_overlap(real, none, n_top=10) == 0
    assert de_pr_auc(called, none) == pytest.approx(0.4)
    assert fold_change_slope(real, none, called) == 0


def test_undefined_scores_are_nan(changes) -> None:
    real, predicted = changes
    none = np.zeros(50, dtype=bool)
    for score in (sign_agreement, fold_change_slope, fold_change_spearman):
        assert np.isnan(score(real, predicted, none))
    nine, ten = np.arange(50) < 9, np.arange(50) < 10
    for score in (fold_change_slope, fold_change_spearman):
        assert np.isnan(score(real, predicted, nine)) and np.isfinite(score(real, predicted, ten))
    assert np.isnan(de_pr_auc(none, predicted))
    assert np.isnan(de_overlap(real, predicted, n_top=50))
    assert np.isnan(discrimination_score(real[None], predicted, own=0))
    assert np.isnan(rank_genes(np.ones((1, 3)), np.ones((5, 3))).t).all()
    with pytest.warns(metrics.FewCellsWarning, match="needs 2 cells, `control` has 1"):
        assert np.isnan(rank_genes(np.ones((5, 3)), np.ones((1, 3))).t).all()
    with pytest.raises(ValueError, match="one number per gene"):
        metrics.pearson_delta(real, predicted[1:])
