"""The accuracy of nearest neighbours, against scikit-learn."""

import numpy as np
import pytest
from benchmarks._scores import one_nn_accuracy
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier


def test_it_is_that_of_scikit_learn() -> None:
    x, y = np.random.default_rng(0).normal(np.reshape([0.0, 0.5], (2, 1, 1)), size=(2, 60, 3))
    expected = cross_val_score(KNeighborsClassifier(1), np.r_[x, y], np.repeat([0, 1], 60), cv=LeaveOneOut())
    assert one_nn_accuracy(x, y) == pytest.approx(expected.mean())


def test_ties_count_half() -> None:
    assert one_nn_accuracy(np.zeros((4, 2)), np.zeros((4, 2))) == 0.5
