"""Classifiers: two-sample tests of generated against real cells, label accuracy, and cells of a wrong label."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scdiffgen._shared_docs import shared_docs

from ._input import Matrix, Points, as_feature_pair, as_features, to_dense
from ._resampling import Seed, Weights, unresampled, weight_below

ClassifierName: TypeAlias = Literal["forest", "logistic"]
Features: TypeAlias = Literal["pcs", "expression"]  # inputs of classifiers
CLASSIFIERS: dict[str, tuple[ClassifierName, Features, str]] = {  # by column of `evaluate`: classifier, input, label
    "c2st_auc_forest_pcs": ("forest", "pcs", "forest, components"),
    "c2st_auc_forest_genes": ("forest", "expression", "forest, genes"),
    "c2st_auc_logistic_genes": ("logistic", "expression", "logistic, genes"),
}
N_FOLDS = 5
N_TREES = 200


class FoldScores(NamedTuple):
    """Out-of-fold scores of one test fold; a higher score means "generated"."""

    real: NDArray[np.intp]  # positions among the real cells
    generated: NDArray[np.intp]
    real_scores: NDArray[np.float64]
    generated_scores: NDArray[np.float64]


@shared_docs
def classifier_auc(
    real: Points,
    generated: Points,
    *,
    classifier: ClassifierName = "forest",
    real_labels: ArrayLike | None = None,
    generated_labels: ArrayLike | None = None,
    n_trees: int = N_TREES,
    n_jobs: int = 1,
    seed: int = 0,
) -> float:
    """Compute the classifier two-sample test (C2ST): cross-validated AUC between generated and real cells.

    Five shuffled folds are stratified by side and label. The AUC is computed within each test fold and averaged, so
    scores of different fits are never compared. The best value is 0.5; lower values are sampling noise. Source:
    Lopez-Paz & Oquab (2017, ICLR).

    Parameters
    ----------
    real, generated
        Principal components or expression, ``(cells, features)``, dense or sparse.
    classifier
        ``"forest"``: random forest with at least five cells per leaf; ``"logistic"``: logistic regression on features
        scaled to unit variance, with L2 penalty ``C = 0.01``.
    real_labels, generated_labels
        Labels of the cells, ``(cells,)``, to stratify folds; by default none.
    {forests}
    {draws}

    Returns
    -------
    The AUC; NaN, with a warning, for fewer than five cells on a side.

    Raises
    ------
    ValueError
        If labels and cells differ in number.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.random.default_rng(0).normal(size=(2, 100, 3))
    >>> classifier_auc(x, y + 10.0, n_trees=20)
    1.0
    """
    x, y = as_feature_pair(real, generated)
    sides = (x, real_labels, "real"), (y, generated_labels, "generated")
    first, second = (
        np.zeros(side.shape[0]) if labels is None else labelled(side, labels, name)[1] for side, labels, name in sides
    )

    def score(x: Matrix, y: Matrix, wx: Weights, wy: Weights) -> NDArray[np.float64]:
        folds = cross_validated_scores(x, y, classifier, (first, second), n_trees=n_trees, n_jobs=n_jobs, seed=seed)
        return auc_resampled(folds, wx, wy)

    return unresampled("classifier_auc", N_FOLDS, score, x, y)


def fit_classifier(
    name: ClassifierName, features: Matrix, target: NDArray, *, n_trees: int = N_TREES, n_jobs: int = 1, seed: int = 0
) -> ClassifierMixin:
    """Fit a classifier by its name."""
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        # leaves of five cells are as powerful as pure leaves, at lower cost
        model = RandomForestClassifier(n_trees, min_samples_leaf=5, n_jobs=n_jobs, random_state=seed)
    elif name == "logistic":
        logistic = LogisticRegression(C=0.01, max_iter=200, random_state=seed)  # strong: many genes, few cells
        model = make_pipeline(StandardScaler(with_mean=False), logistic)
    else:
        raise ValueError(f"`classifier` is {name!r}: pass 'forest' or 'logistic'.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the iteration limit is part of the definition
        return model.fit(features, target)


def labelled(cells: Points, labels: ArrayLike, name: str) -> tuple[Matrix, NDArray]:
    """Check features and labels of the same cells."""
    features, names = as_features(cells, name), np.asarray(labels).astype(str)
    if len(names) != features.shape[0]:
        raise ValueError(f"`{name}_labels` has {len(names)} labels for {features.shape[0]} cells: pass one per cell.")
    return features, names


def cross_validated_scores(
    x: Matrix,
    y: Matrix,
    classifier: ClassifierName,
    labels: tuple[NDArray, NDArray] | None = None,
    *,
    n_trees: int = N_TREES,
    n_jobs: int = 1,
    seed: int = 0,
) -> list[FoldScores]:
    """Compute out-of-fold scores of all cells; folds are stratified by side and label."""
    features = sparse.vstack([x, y], format="csr") if sparse.issparse(x) else np.concatenate([x, y])
    most = 50_000_000  # a forest is fitted to a dense copy up to this size (200 MB): about twice as fast
    if sparse.issparse(features) and classifier == "forest" and np.prod(features.shape) <= most:
        features = to_dense(features)
    is_generated = np.repeat([0, 1], [x.shape[0], y.shape[0]])
    folds: list[FoldScores] = []
    strata = (np.zeros(x.shape[0]), np.zeros(y.shape[0])) if labels is None else labels
    fold_of = np.concatenate([folds_within_labels(of_side, [seed, side]) for side, of_side in enumerate(strata)])
    for fold in range(N_FOLDS):
        train, test = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        forest = {"n_trees": n_trees, "n_jobs": n_jobs, "seed": seed}
        model = fit_classifier(classifier, features[train], is_generated[train], **forest)
        scores = model.predict_proba(features[test])[:, 1]
        side = is_generated[test] == 1
        folds.append(FoldScores(test[~side], test[side] - x.shape[0], scores[~side], scores[side]))
    return folds


def folds_within_labels(labels: NDArray, seed: Seed) -> NDArray[np.intp]:
    """Assign cells to folds, shuffled within labels, (cells,)."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.intp)
    folds[order] = np.arange(len(labels)) % N_FOLDS
    return folds


def auc_resampled(folds: list[FoldScores], wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Average the AUC over folds under each row of weights, (rows,), without refitting; NaN where no fold has any."""
    per_fold = [weighted_auc(f.real_scores, f.generated_scores, wx[:, f.real], wy[:, f.generated]) for f in folds]
    n_defined = np.isfinite(per_fold).sum(axis=0)
    return np.divide(np.nansum(per_fold, axis=0), n_defined, out=np.full(len(wx), np.nan), where=n_defined > 0)


def weighted_auc(negative: NDArray, positive: NDArray, wn: Weights, wp: Weights) -> NDArray[np.float64]:
    """Compute the AUC, with ties counted half, under each row of weights, (rows,)."""
    below = weight_below(negative, wn, positive, "left") + weight_below(negative, wn, positive, "right")
    wins = np.einsum("rp,rp->r", wp, below / 2)
    pairs = wn.sum(axis=1) * wp.sum(axis=1)
    return np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)


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
