"""Classifier metrics against scikit-learn, and at the two ends of their range."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score

from scdiffgen import metrics
from scdiffgen.metrics._classifiers import LabelAccuracy, auc_resampled, cross_validated_scores, weighted_auc


@pytest.mark.parametrize("classifier", ["forest", "logistic"])
def test_cells_of_one_population_are_not_distinguished(classifier) -> None:
    rng = np.random.default_rng(0)
    aucs = [
        metrics.classifier_auc(*rng.normal(size=(2, 150, 4)), classifier=classifier, n_trees=30, seed=seed)
        for seed in range(6)
    ]
    assert np.mean(aucs) == pytest.approx(0.5, abs=3 * np.std(aucs) / np.sqrt(6))


def test_logistic_auc_of_gaussians_is_the_closed_form() -> None:
    # The best classifier of two unit Gaussians at distance d has AUC Phi(d / sqrt(2))
    from scipy.stats import norm

    x, y = np.random.default_rng(1).normal(size=(2, 3000, 3))
    y[:, 0] += 1.0
    auc = metrics.classifier_auc(x, y, classifier="logistic")
    assert auc == pytest.approx(norm.cdf(1 / np.sqrt(2)), abs=0.02)


@pytest.mark.parametrize("classifier", ["forest", "logistic"])
def test_auc_is_the_mean_of_the_folds_by_scikit_learn(classifier) -> None:
    x, y = np.random.default_rng(2).normal(size=(2, 41, 3))
    folds = cross_validated_scores(x, y + 0.5, classifier, n_trees=10)
    expected = [
        roc_auc_score(
            np.repeat([0, 1], [len(f.real), len(f.generated)]), np.concatenate([f.real_scores, f.generated_scores])
        )
        for f in folds
    ]
    assert metrics.classifier_auc(x, y + 0.5, classifier=classifier, n_trees=10) == pytest.approx(
        np.mean(expected), abs=1e-6
    )
    assert np.array_equal(np.sort(np.concatenate([f.real for f in folds])), np.arange(41))
    assert np.array_equal(np.sort(np.concatenate([f.generated for f in folds])), np.arange(41))


def test_folds_share_out_the_labels_of_both_sides() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(2, 83, 2))
    labels = rng.choice(["a", "b", "c"], size=(2, 83), p=[0.7, 0.26, 0.04])
    folds = cross_validated_scores(x, y, "logistic", (labels[0], labels[1]))
    for label in "abc":
        for side, of_folds in zip(labels, ([f.real for f in folds], [f.generated for f in folds]), strict=True):
            assert np.ptp([(side[rows] == label).sum() for rows in of_folds]) <= 1


def test_cells_in_the_order_of_their_labels_are_no_easier_to_distinguish() -> None:
    """Training cells against others of the same labels: without shuffling, whole labels are left out of a fit."""
    rng, labels = np.random.default_rng(7), np.repeat(np.arange(10), 30)
    means = 5 * rng.normal(size=(10, 5))
    aucs = []
    for _ in range(4):
        x, y = means[labels] + rng.normal(size=(2, 300, 5))
        aucs.append(metrics.classifier_auc(x, y, real_labels=labels, generated_labels=labels, n_trees=30))
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.04)
    with pytest.raises(ValueError, match="`generated_labels` has 299 labels for 300 cells"):
        metrics.classifier_auc(x, y, generated_labels=labels[1:])


def test_weighted_auc_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    negative, positive = rng.integers(0, 8, size=30), rng.integers(2, 10, size=20)  # with ties
    wn, wp = rng.integers(0, 4, size=(5, 30)).astype(float), rng.integers(0, 4, size=(5, 20)).astype(float)
    expected = [
        roc_auc_score(np.repeat([0, 1], [30, 20]), np.r_[negative, positive], sample_weight=np.r_[a, b])
        for a, b in zip(wn, wp, strict=True)
    ]
    np.testing.assert_allclose(weighted_auc(negative, positive, wn, wp), expected)


def test_without_any_weight_the_auc_is_missing() -> None:
    x, y = np.random.default_rng(4).normal(size=(2, 10, 2))
    folds = cross_validated_scores(x, y, "logistic")
    weights = np.stack([np.zeros(10), np.ones(10)])
    np.testing.assert_array_equal(np.isnan(auc_resampled(folds, weights, np.ones((2, 10)))), [True, False])


def test_sparse_and_dense_features_give_the_same_auc() -> None:
    x, y = np.random.default_rng(5).poisson(0.5, size=(2, 60, 20)).astype(np.float32)
    for classifier in ("forest", "logistic"):
        dense, same = (
            metrics.classifier_auc(container(x), container(y), classifier=classifier, n_trees=10)
            for container in (np.asarray, sparse.csr_matrix)
        )
        assert same == pytest.approx(dense, abs=1e-3)


def test_too_few_cells_are_nan_with_a_warning() -> None:
    x = np.zeros((10, 2))
    with pytest.warns(metrics.FewCellsWarning, match="needs 5 cells, `generated` has 4"):
        assert np.isnan(metrics.classifier_auc(x, x[:4]))


def test_label_accuracy_counts_hits() -> None:
    rng = np.random.default_rng(7)
    labels = np.repeat(["a", "b", "c"], 40)
    x = rng.normal(size=(120, 2)) * 0.1 + np.repeat([[0, 0], [3, 0], [0, 3]], 40, axis=0)
    wrong = labels.copy()
    wrong[:30] = "c"
    score = metrics.label_accuracy(x[:50], labels[:50], x, wrong, x, labels)
    assert score == LabelAccuracy(generated=0.75, real=1.0)


def test_bad_arguments_are_named() -> None:
    x = np.zeros((10, 2))
    with pytest.raises(ValueError, match="`classifier` is 'svm'"):
        metrics.classifier_auc(x, x, classifier="svm")
    with pytest.raises(ValueError, match="only one label"):
        metrics.label_accuracy(x, ["a"] * 10, x, ["a"] * 10, x, ["a"] * 10)
    with pytest.raises(ValueError, match="`train_labels` has 3 labels for 10 cells"):
        metrics.label_accuracy(x, ["a"] * 10, x, ["a"] * 10, x, ["a"] * 3)
