"""Wrong cells: planted cells of another label are counted, and two samples of real cells give nothing."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from scdiffgen.metrics._classifiers import LabelClassifier
from scdiffgen.metrics._comparison import wrong_by_label

N_LABELS, N_FEATURES = 6, 10
NAMES = np.array([f"label_{i}" for i in range(N_LABELS)])
MEANS = 2.2 * np.random.default_rng(0).normal(size=(N_LABELS, N_FEATURES))  # some labels overlap


def draw(labels: np.ndarray, seed: int, *, moved: int = 0) -> np.ndarray:
    """Cells of labels; the first ``moved`` cells of label 0 are drawn from label 1."""
    drawn = labels.copy()
    drawn[np.flatnonzero(labels == 0)[:moved]] = 1
    return MEANS[drawn] + np.random.default_rng(seed).normal(size=(len(labels), N_FEATURES))


def wrong_cells(x, x_labels, y, y_labels, train, train_labels) -> pd.DataFrame:
    """Wrong cells among generated cells ``y``, beside real cells ``x``."""
    classifier = LabelClassifier.of(train, train_labels)
    judged = ((labels, classifier.wrong(cells, labels, "cells")) for cells, labels in ((y, y_labels), (x, x_labels)))
    return wrong_by_label(*judged)


def table(seed: int, *, moved: int = 0, n: int = 135, n_train: int = 200) -> pd.DataFrame:
    """Wrong cells among ``n`` generated cells of each label, beside as many real ones."""
    labels, trained = np.repeat(np.arange(N_LABELS), n), np.repeat(np.arange(N_LABELS), n_train)
    x, y = draw(labels, 3 * seed), draw(labels, 3 * seed + 1, moved=moved)
    return wrong_cells(x, NAMES[labels], y, NAMES[labels], draw(trained, 3 * seed + 2), NAMES[trained])


@pytest.mark.parametrize("moved", [8, 14, 40])
def test_planted_cells_of_another_label_are_counted_and_their_label_is_marked(moved: int) -> None:
    found = table(1, moved=moved)
    assert found.loc["label_0", "share"] == pytest.approx(moved / 135, abs=0.02)
    assert found["apart"].drop("overall").tolist() == [True] + [False] * (N_LABELS - 1)
    assert found.loc["overall", "n"] == N_LABELS * 135
    assert found.loc["overall", "share"] == pytest.approx(found["share"].drop("overall").mean())


def test_two_samples_of_real_cells_have_about_one_percent_and_mark_no_label() -> None:
    found = [table(seed) for seed in range(8)]
    assert not any(x["apart"].any() for x in found)
    for side in ("share", "real"):
        assert np.mean([x.loc["overall", side] for x in found]) < 0.015


def test_the_order_of_cells_and_of_labels_does_not_matter() -> None:
    labels = np.repeat(np.arange(N_LABELS), 50)
    x, y, train = (draw(labels, seed, moved=10 * (seed == 1)) for seed in range(3))
    found = wrong_cells(x, NAMES[labels], y, NAMES[labels], train, NAMES[labels])
    order = np.random.default_rng(3).permutation(len(labels))
    again = wrong_cells(x[order], NAMES[labels][order], y[order], NAMES[labels][order], train, NAMES[labels])
    np.testing.assert_array_equal(found, again)


def test_the_test_is_the_exact_one_and_small_labels_are_not_tested() -> None:
    def judged(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full(n, "a"), (np.arange(n) < k).astype(float)

    for n, k, n_real, k_real in ((135, 6, 135, 0), (135, 5, 135, 0), (300, 30, 100, 4), (19, 19, 135, 0)):
        row = wrong_by_label(judged(n, k), judged(n_real, k_real)).loc["a"]
        expected = binom.sf(k - 1, k + k_real, 1.5 * n / (1.5 * n + n_real))
        assert row["p_value"] == pytest.approx(expected)
        assert row["apart"] == (expected < 0.05 and n >= 20)
    none = wrong_by_label(judged(50, 0), judged(0, 0)).loc["a"]
    assert none["p_value"] == 1 and np.isnan(none["real"])


def test_labels_that_are_rare_or_missing_in_training_are_no_error() -> None:
    labels = np.array(["a"] * 40 + ["b"] * 40 + ["rare"] + ["new"] * 5)
    x = np.random.default_rng(5).normal(size=(len(labels), 3)) + 5 * (labels == "a")[:, None]
    found = wrong_cells(x, labels, x, labels, x[:81], labels[:81])
    assert found.index.tolist() == ["overall", "a", "b", "rare"] and not found["apart"].any()
    two = np.array(["a"] * 20 + ["b"])
    assert not wrong_cells(x[:21], two, x[:21], two, x[:21], two)["apart"].any()
