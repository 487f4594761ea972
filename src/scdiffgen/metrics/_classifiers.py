"""Classifiers that tell generated cells from real ones, and that find the label cells were generated for."""

from __future__ import annotations

import warnings
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics._input import Matrix, Points, as_feature_pair, as_features, label_codes, to_dense
from scdiffgen.metrics._resampling import Weights, unresampled, weight_below

ClassifierKind: TypeAlias = Literal["forest", "logistic"]
Features: TypeAlias = Literal["pcs", "expression"]  # of cells, as classifiers see them
CLASSIFIERS: dict[str, tuple[ClassifierKind, Features]] = {  # columns of `evaluate`
    "c2st_auc_forest_pcs": ("forest", "pcs"),
    "c2st_auc_forest_genes": ("forest", "expression"),
    "c2st_auc_logistic_genes": ("logistic", "expression"),
}
N_FOLDS = 5
N_TREES = 200
MIN_LEAF = 5  # cells in a leaf: finds small differences as well as pure leaves do, at less cost
PENALTY = 0.01  # inverse strength of the L2 penalty on standardised features: many genes, few cells
MAX_ITERATIONS = 200
DENSE_ENTRIES = 50_000_000  # a forest is fitted to a dense copy up to this size (200 MB): about twice as fast


class LabelAccuracy(NamedTuple):
    """Fractions of generated and of held-out real cells classified as their label; see `label_accuracy`."""

    generated: float
    real: float


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
    labels: tuple[ArrayLike, ArrayLike] | None = None,
    classifier: ClassifierKind = "forest",
    n_trees: int = N_TREES,
    n_jobs: int = 1,
    seed: int = 0,
) -> float:
    """Classifier two-sample test (C2ST): cross-validated AUC of telling generated cells from real ones.

    Five stratified folds; the AUC is computed within each test fold and averaged, so that scores of different fits are
    never compared. 0.5 is perfect; below 0.5 by chance only. Lopez-Paz & Oquab (2017, ICLR).

    Parameters
    ----------
    real, generated
        Cells, (cells, features): principal components or expression, dense or sparse.
    labels
        Labels of the real and of the generated cells: folds then hold equal shares of each that has five cells.
    classifier
        ``"forest"``: random forest with leaves of five cells or more; ``"logistic"``: logistic regression on features
        scaled to unit variance, with L2 penalty ``C = 0.01``.
    {forests}
    {draws}

    Returns
    -------
    The AUC; NaN, with a warning, for fewer than five cells on a side.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.random.default_rng(0).normal(size=(2, 100, 3))
    >>> classifier_auc(x, y + 10.0, n_trees=20)
    1.0
    """

    def score(x: Matrix, y: Matrix, wx: Weights, wy: Weights) -> NDArray[np.float64]:
        strata = None if labels is None else _strata(labels, x.shape[0], y.shape[0])
        folds = cross_validated_scores(x, y, classifier, strata, n_trees=n_trees, n_jobs=n_jobs, seed=seed)
        return auc_resampled(folds, wx, wy)

    return unresampled("classifier_auc", N_FOLDS, score, *as_feature_pair(real, generated))


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
    """Accuracy of a logistic classifier of real training cells on generated cells, and on held-out real cells.

    The second number is what the first is to be compared with: generated cells that are classified much better than
    real ones are too typical.

    Parameters
    ----------
    real, generated, train
        Held-out real cells, generated cells, and real training cells, (cells, features) each.
    real_labels, generated_labels, train_labels
        Their labels; of generated cells those that they were generated for.
    {draws}

    Returns
    -------
    The accuracies ``generated`` and ``real``.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.r_[np.zeros((20, 2)), np.ones((20, 2))]
    >>> label_accuracy(x[:2], list("aa"), x[:4], list("aaab"), x, ["a"] * 20 + ["b"] * 20)
    LabelAccuracy(generated=0.75, real=1.0)
    """
    model = fit_labels(train, train_labels, seed=seed)
    sides = ((generated, generated_labels, "generated"), (real, real_labels, "real"))
    return LabelAccuracy(*(float(label_hits(model, *side).mean()) for side in sides))


def fit_classifier(
    kind: ClassifierKind, features: Matrix, target: NDArray, *, n_trees: int = N_TREES, n_jobs: int = 1, seed: int = 0
) -> ClassifierMixin:
    """Fit a classifier of the given kind."""
    if kind == "forest":
        model = RandomForestClassifier(n_trees, min_samples_leaf=MIN_LEAF, n_jobs=n_jobs, random_state=seed)
    elif kind == "logistic":
        logistic = LogisticRegression(C=PENALTY, max_iter=MAX_ITERATIONS, random_state=seed)
        model = make_pipeline(StandardScaler(with_mean=False), logistic)
    else:
        raise ValueError(f"`classifier`={kind!r} is not known. Pass 'forest' or 'logistic'.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the iteration limit is part of the definition
        return model.fit(features, target)


def fit_labels(train: Points, labels: ArrayLike, *, seed: int = 0) -> ClassifierMixin:
    """Fit a logistic classifier of labels to real training cells."""
    features, names = _labelled(train, labels, "train")
    if len(np.unique(names)) < 2:
        raise ValueError(f"`train_labels` has one label only ({names[0]!r}); a classifier needs two.")
    return fit_classifier("logistic", features, names, seed=seed)


def label_hits(model: ClassifierMixin, cells: Points, labels: ArrayLike, name: str) -> NDArray[np.float64]:
    """Whether each cell is classified as its label, 0 or 1, (cells,); NaN without cells."""
    features, names = _labelled(cells, labels, name)
    if features.shape[0] == 0:
        return np.full(1, np.nan)
    return (model.predict(features) == names).astype(np.float64)


def _labelled(cells: Points, labels: ArrayLike, name: str) -> tuple[Matrix, NDArray]:
    """Check features and labels of the same cells."""
    features, names = as_features(cells, name), np.asarray(labels).astype(str)
    if len(names) != features.shape[0]:
        raise ValueError(f"`{name}_labels` has {len(names)} labels for {features.shape[0]} cells.")
    return features, names


def cross_validated_scores(
    x: Matrix,
    y: Matrix,
    kind: ClassifierKind,
    strata: NDArray | None = None,
    *,
    n_trees: int = N_TREES,
    n_jobs: int = 1,
    seed: int = 0,
) -> list[FoldScores]:
    """Scores of every cell by a classifier that was fitted without it; folds share sides, or ``strata`` of these."""
    features = sparse.vstack([x, y], format="csr") if sparse.issparse(x) else np.concatenate([x, y])
    if sparse.issparse(features) and kind == "forest" and np.prod(features.shape) <= DENSE_ENTRIES:
        features = to_dense(features)
    is_generated = np.repeat([0, 1], [x.shape[0], y.shape[0]])
    folds: list[FoldScores] = []
    strata = is_generated if strata is None else strata
    for train, test in StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed).split(strata, strata):
        forest = {"n_trees": n_trees, "n_jobs": n_jobs, "seed": seed}
        model = fit_classifier(kind, features[train], is_generated[train], **forest)
        scores = model.predict_proba(features[test])[:, 1]
        side = is_generated[test] == 1
        folds.append(FoldScores(test[~side], test[side] - x.shape[0], scores[~side], scores[side]))
    return folds


def _strata(labels: tuple[ArrayLike, ArrayLike], n_real: int, n_generated: int) -> NDArray[np.intp]:
    """Side and label of every cell as one number (cells,); labels of fewer cells than folds count as one."""
    of_side = []
    for side, n in enumerate((n_real, n_generated)):
        _, codes = label_codes(labels[side], n, "labels")
        n_cells = np.bincount(codes)
        few = n_cells < N_FOLDS
        if 0 < n_cells[few].sum() < N_FOLDS:
            few[np.argmin(np.where(few, n + 1, n_cells))] = True  # the least of the others joins them
        of_side.append(2 * np.where(few[codes], -1, codes) + side)
    return np.concatenate(of_side)


def auc_resampled(folds: list[FoldScores], wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Mean over the folds of the AUC under each row of weights, (rows,); the classifiers are not fitted again.

    Folds in which a side has no weight do not count; where none does, the AUC is NaN.
    """
    per_fold = [weighted_auc(f.real_scores, f.generated_scores, wx[:, f.real], wy[:, f.generated]) for f in folds]
    n_defined = np.isfinite(per_fold).sum(axis=0)
    return np.divide(np.nansum(per_fold, axis=0), n_defined, out=np.full(len(wx), np.nan), where=n_defined > 0)


def weighted_auc(negative: NDArray, positive: NDArray, wn: Weights, wp: Weights) -> NDArray[np.float64]:
    """Probability that a positive cell scores above a negative one, ties half, under each row of weights, (rows,)."""
    below = weight_below(negative, wn, positive, "left") + weight_below(negative, wn, positive, "right")
    wins = np.einsum("rp,rp->r", wp, below / 2)
    pairs = wn.sum(axis=1) * wp.sum(axis=1)
    return np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
