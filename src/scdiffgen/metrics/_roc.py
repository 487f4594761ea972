"""How well classifiers tell generated cells from real ones, at every threshold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import auc, roc_curve

from scdiffgen.metrics._classifiers import (
    N_FOLDS,
    N_TREES,
    ClassifierKind,
    FoldScores,
    as_features,
    cross_validated_scores,
)
from scdiffgen.metrics._input import CountsLike, Points
from scdiffgen.metrics._prepare import Preparer, labelled, split_real
from scdiffgen.metrics._resampling import subsample
from scdiffgen.metrics._scores import CLASSIFIERS

N_POINTS = 201


class ClassifierRoc(NamedTuple):
    """Receiver operating characteristic of a cross-validated classifier; see `classifier_roc`.

    Parameters
    ----------
    false_positive
        Shares of the real cells taken for generated ones, (points,).
    true_positive
        Shares of the generated cells found at each of these, (folds, points).
    auc
        Area under the curve of each fold, (folds,).
    """

    false_positive: NDArray[np.float64]
    true_positive: NDArray[np.float64]
    auc: NDArray[np.float64]


def classifier_roc(
    real: Points,
    generated: Points,
    *,
    classifier: ClassifierKind = "forest",
    n_trees: int = N_TREES,
    n_jobs: int = 1,
    seed: int = 0,
) -> ClassifierRoc:
    """ROC of the classifier two-sample test: the share of generated cells found, against real cells taken for them.

    A curve for each test fold, as scores of different fits are never compared. `classifier_auc` is the mean of the
    areas.

    Parameters
    ----------
    real, generated, classifier, n_trees, n_jobs, seed
        As in `classifier_auc`.

    Returns
    -------
    false_positive
        Shares of the real cells taken for generated ones, (points,); from 0, which stands twice, to 1.
    true_positive
        Shares of the generated cells found at each of these, (folds, points).
    auc
        Area under the curve of each fold, (folds,).

    Raises
    ------
    ValueError
        If a side has fewer than five cells.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.random.default_rng(0).normal(size=(2, 100, 3))
    >>> classifier_roc(x, y + 10.0, n_trees=20).auc
    array([1., 1., 1., 1., 1.])
    """
    x, y = as_features(real, "real"), as_features(generated, "generated")
    _refuse_few(real=x.shape[0], generated=y.shape[0])
    curves = [
        _curve(fold) for fold in cross_validated_scores(x, y, classifier, n_trees=n_trees, n_jobs=n_jobs, seed=seed)
    ]
    at = np.linspace(0, 1, N_POINTS)
    found = [np.concatenate([[0.0], np.interp(at, *curve)]) for curve in curves]
    areas = [auc(*curve) for curve in curves]
    return ClassifierRoc(np.concatenate([[0.0], at]), np.array(found), np.array(areas))


def evaluation_roc(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None = None,
    groupby: str | None = None,
    *,
    layer: str | None = None,
    n_pcs: int = 30,
    n_top_genes: int | None = None,
    max_cells: int = 2000,
    n_trees: int = 100,
    n_jobs: int = 1,
    seed: int = 0,
) -> dict[str, ClassifierRoc]:
    """ROC of the three classifiers of `evaluate`, over all cells; given the same arguments, their AUCs are the same.

    Parameters
    ----------
    real, generated, train, groupby, layer, n_pcs, n_top_genes, max_cells, n_trees, n_jobs, seed
        As in `evaluate`. Groups only say how the real cells are halved.

    Returns
    -------
    The curves, by the name of the metric in `evaluate`.

    Raises
    ------
    ValueError
        If a side has fewer than five cells.

    Examples
    --------
    >>> import numpy as np
    >>> real, generated = np.random.default_rng(0).poisson(1.0, size=(2, 200, 20))
    >>> list(evaluation_roc(real, generated, n_pcs=5, n_trees=10))
    ['c2st_auc_forest_pcs', 'c2st_auc_forest_genes', 'c2st_auc_logistic_genes']
    """
    parts = split_real(real, train, None, groupby, layer=layer, n_pcs=n_pcs, n_top_genes=n_top_genes, seed=seed)
    preparer = Preparer.fit(parts, with_labels=False, with_train=False, seed=seed)
    judged = labelled(generated, parts.space, groupby, "generated")
    sizes = {"real": min(len(parts.reference.labels), len(parts.other.labels)), "generated": len(judged.labels)}
    _refuse_few(**sizes)
    n = min(max_cells, *sizes.values())
    x = preparer.cells(parts.reference.take(subsample(len(parts.reference.labels), n, [seed, 0])))
    y = preparer.cells(judged.take(subsample(len(judged.labels), n, [seed, 0, 0])))
    options = {"n_trees": n_trees, "n_jobs": n_jobs, "seed": seed}
    return {
        name: classifier_roc(getattr(x, features), getattr(y, features), classifier=kind, **options)
        for name, (kind, features) in CLASSIFIERS.items()
    }


def _refuse_few(**n_cells: int) -> None:
    for name, n in n_cells.items():
        if n < N_FOLDS:
            raise ValueError(f"`{name}` has {n} cells to compare; a classifier needs at least {N_FOLDS}.")


def _curve(fold: FoldScores) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    is_generated = np.repeat([0, 1], [len(fold.real_scores), len(fold.generated_scores)])
    false, true, _ = roc_curve(is_generated, np.concatenate([fold.real_scores, fold.generated_scores]))
    return false, true
