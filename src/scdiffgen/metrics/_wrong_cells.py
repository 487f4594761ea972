"""Label classifiers: how many cells are classified as their label, and how many are clearly cells of another label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest
from sklearn.base import ClassifierMixin

from scdiffgen._shared_docs import shared_docs

from ._classifiers import N_FOLDS, fit_classifier, folds_within_labels, labelled
from ._comparison import OVERALL
from ._input import Matrix, Points


class LabelAccuracy(NamedTuple):
    """Classification accuracies of generated and of held-out real cells; see `label_accuracy`."""

    generated: float
    real: float


Judged = tuple[NDArray, NDArray[np.float64]]  # labels (cells,), and 1 of wrong cells, else 0, see `LabelClassifier`


@dataclass(frozen=True)
class LabelClassifier:
    """Logistic classifier of training cells."""

    features: Matrix  # training cells (cells, features)
    labels: NDArray  # (cells,)
    names: NDArray  # (labels,)
    seed: int

    @classmethod
    def of(cls, train: Points, train_labels: ArrayLike, *, seed: int = 0) -> LabelClassifier:
        features, labels = labelled(train, train_labels, "train")
        if len(names := np.unique(labels)) < 2:
            raise ValueError(f"`train_labels` has only one label ({names[0]!r}): pass cells of at least two labels.")
        return cls(features, labels, names, seed)

    @cached_property
    def model(self) -> ClassifierMixin:
        return fit_classifier("logistic", self.features, self.labels, seed=self.seed)

    @cached_property
    def limits(self) -> NDArray[np.float64]:
        """Compute the confidence in another label that 99 % of the training cells of each label stay below."""
        codes, folds = np.searchsorted(self.names, self.labels), folds_within_labels(self.labels, self.seed)
        confidence = np.zeros(len(codes))
        for fold in range(N_FOLDS):
            test, train = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            if len(test) and len(np.unique(codes[train])) > 1:
                model = fit_classifier("logistic", self.features[train], self.labels[train], seed=self.seed)
                confidence[test] = self._confidences(model, self.features[test], codes[test])[0]
        of_labels = (confidence[codes == code] for code in range(len(self.names)))
        return np.array([np.quantile(values, 0.99, method="higher") for values in of_labels])

    def hits(self, cells: Points, labels: ArrayLike, name: str) -> NDArray[np.float64]:
        """Classify cells (``name`` in messages): 1 if as their label, else 0 ``(cells,)``; NaN without cells."""
        features, labels = labelled(cells, labels, name)
        return (self.model.predict(features) == labels).astype(float) if len(labels) else np.full(1, np.nan)

    def wrong(self, cells: Points, labels: ArrayLike, name: str) -> NDArray[np.float64]:
        """Find cells that are clearly of another label: 1, else 0 ``(cells,)``; NaN if the label is unknown."""
        features, labels = labelled(cells, labels, name)
        wrong, known = np.full(len(labels), np.nan), np.flatnonzero(np.isin(labels, self.names))
        if len(known):
            codes = np.searchsorted(self.names, labels[known])
            other, own = self._confidences(self.model, features[known], codes)
            wrong[known] = (other > own) & (other > self.limits[codes])
        return wrong

    def _confidences(self, model: ClassifierMixin, cells: Matrix, codes: NDArray[np.intp]) -> NDArray[np.float64]:
        """Compute probabilities ``(2, cells)`` of the most probable other label, and of the label of the cell."""
        rows, others = np.arange(len(codes)), np.zeros((len(codes), len(self.names)))
        others[:, np.searchsorted(self.names, model.classes_)] = model.predict_proba(cells)
        own = others[rows, codes]
        others[rows, codes] = 0
        return np.stack([others.max(axis=1), own])


@shared_docs
def label_accuracy(
    real: Points,
    real_labels: ArrayLike,
    generated: Points,
    generated_labels: ArrayLike,
    train: Points,
    train_labels: ArrayLike,
    *,
    seed: int = 0,
) -> LabelAccuracy:
    """Compute the label accuracy of generated and held-out real cells, by a logistic classifier of training cells.

    Compare the accuracy of generated cells with that of real cells: generated cells that are classified much better are
    too typical of their label.

    Parameters
    ----------
    real, generated, train
        Held-out real cells, generated cells, and real training cells, ``(cells, features)`` each.
    real_labels, generated_labels, train_labels
        Labels of these cells, ``(cells,)``; for generated cells the requested labels.
    {draws}

    Returns
    -------
    The accuracies ``generated`` and ``real``, between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.r_[np.zeros((20, 2)), np.ones((20, 2))]
    >>> label_accuracy(x[:2], list("aa"), x[:4], list("aaab"), x, ["a"] * 20 + ["b"] * 20)
    LabelAccuracy(generated=0.75, real=1.0)
    """
    sides = {"generated": (generated, generated_labels), "real": (real, real_labels)}
    classifier = LabelClassifier.of(train, train_labels, seed=seed)
    return LabelAccuracy(*(float(classifier.hits(*side, name).mean()) for name, side in sides.items()))


def wrong_by_label(generated: Judged, real: Judged) -> pd.DataFrame:
    """Tabulate wrong cells by label, see `Evaluation`; an exact test compares two Poisson rates, given their sum."""
    tolerated, fewest = 1.5, 20  # ratio of the shares of wrong cells, and cells of a label that is tested
    sides, rows = [pd.Series(wrong, labels.astype(str)).dropna() for labels, wrong in (generated, real)], {}
    for label in [OVERALL, *np.unique(np.concatenate([side.index for side in sides]))]:
        chosen = [side if label == OVERALL else side[side.index == label] for side in sides]
        (n, n_real), (k, k_real) = (len(side) for side in chosen), (int(side.sum()) for side in chosen)
        expected = tolerated * n / (tolerated * n + n_real)
        p_value = binomtest(k, k + k_real, expected, "greater").pvalue if k else 1.0
        apart = p_value < 0.05 and min(n, n_real) >= fewest
        rows[label] = [*(side.mean() for side in chosen), n, n_real, p_value, apart]
    columns = "share real n n_real p_value apart".split()
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("group")
