"""One prediction of one response, and its scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen.metrics._baselines import shift_counts
from scdiffgen.metrics._classifiers import classifier_auc
from scdiffgen.metrics._differential import GeneTests, mean_expression
from scdiffgen.metrics._distances import energy_distance
from scdiffgen.metrics._resampling import subsample
from scdiffgen.metrics._response import (
    de_overlap,
    de_pr_auc,
    discrimination_score,
    fold_change_slope,
    fold_change_spearman,
    pearson_delta,
    sign_agreement,
    weighted_mse,
)
from scdiffgen.metrics._scores import Metric
from scdiffgen.metrics._space import ExpressionSpace, normalise
from scdiffgen.metrics._transport import wasserstein

RESPONSE_METRICS: dict[str, Metric] = {
    "pearson_delta": Metric("higher", 1.0),
    "pearson_delta_perturbed": Metric("higher", 1.0),
    "weighted_mse": Metric("lower", 0.0),
    "discrimination": Metric("higher", 1.0),
    "de_overlap": Metric("higher", 1.0),
    "de_pr_auc": Metric("higher", 1.0),
    "sign_agreement": Metric("higher", 1.0),
    "fold_change_spearman": Metric("higher", 1.0),
    "fold_change_slope": Metric("closest to", 1.0),
    "energy_distance": Metric("lower", 0.0),
    "wasserstein": Metric("lower", "real_half"),
    "c2st_auc": Metric("closest to", 0.5),
}

PERTURBATION_METRICS = tuple(RESPONSE_METRICS)
MIN_CELLS = 2


class Predicted(NamedTuple):
    """A prediction: its mean and its cells."""

    mean: NDArray[np.float64]  # (genes,)
    pcs: NDArray[np.float64]  # (cells, components)


class Controls(NamedTuple):
    """Real control cells of a context: the mean of all, and the cells that baselines start from."""

    mean: NDArray[np.float64]  # (genes,)
    expression: sparse.csr_matrix  # of all, (cells, genes)
    start: sparse.csr_matrix  # counts of some, over all genes, (cells, genes)
    start_expression: sparse.csr_matrix
    start_pcs: NDArray[np.float64]


class Target(NamedTuple):
    """A held-out response: the reference half of its real cells, and what it is compared with."""

    mean: NDArray[np.float64]  # of the reference, (genes,)
    tests: GeneTests  # of the reference against control
    pcs: NDArray[np.float64]  # of the reference, (cells, components)
    control: NDArray[np.float64]  # mean of the controls, (genes,)
    perturbed: NDArray[np.float64]  # mean of all perturbed cells as training cells have it, (genes,); NaN without
    responses: NDArray[np.float64]  # changes of all targets of the context, (targets, genes)
    own: int  # the row of this target among them


class Scoring(NamedTuple):
    """How predictions are scored."""

    metrics: tuple[str, ...]
    max_cells: int
    n_trees: int
    n_jobs: int
    seed: int


def from_expression(expression: NDArray | sparse.csr_matrix, space: ExpressionSpace) -> Predicted:
    """Make a prediction of log expression of cells, (cells, genes)."""
    return Predicted(mean_expression(expression), space.project(expression))


def from_shift(shift: NDArray[np.float64], controls: Controls, space: ExpressionSpace) -> Predicted:
    """Make a prediction of control cells with a change added to their log expression."""
    return Predicted(controls.mean + shift, controls.start_pcs + shift @ space.components.T)


def from_shift_as_counts(
    shift: NDArray[np.float64], controls: Controls, space: ExpressionSpace, *, seed: int
) -> Predicted:
    """Make a prediction of control cells with a change, brought back to counts."""
    everywhere = np.zeros(space.n_genes)
    everywhere[space.columns] = shift
    counts = shift_counts(controls.start, everywhere, seed=seed)
    return from_expression(normalise(counts)[:, space.columns], space)


def score_response(target: Target, predicted: Predicted, scoring: Scoring) -> dict[str, float]:
    """Score a prediction by the metrics asked for."""
    real, change = target.mean - target.control, predicted.mean - target.control
    called = target.tests.significant
    n = min(scoring.max_cells, len(target.pcs), len(predicted.pcs))
    x, y = (cells[subsample(len(cells), n, scoring.seed)] for cells in (target.pcs, predicted.pcs))
    compute = {
        "pearson_delta": lambda: pearson_delta(real, change),
        "pearson_delta_perturbed": lambda: pearson_delta(
            target.mean - target.perturbed, predicted.mean - target.perturbed
        ),
        "weighted_mse": lambda: weighted_mse(real, change, target.tests.t),
        "discrimination": lambda: discrimination_score(change, target.responses, target.own),
        "de_overlap": lambda: de_overlap(real, change),
        "de_pr_auc": lambda: de_pr_auc(called, change),
        "sign_agreement": lambda: sign_agreement(real, change, called),
        "fold_change_spearman": lambda: fold_change_spearman(real, change, called),
        "fold_change_slope": lambda: fold_change_slope(real, change, called),
        "energy_distance": lambda: energy_distance(x, y),
        "wasserstein": lambda: wasserstein(x, y, max_cells=n),
        "c2st_auc": lambda: classifier_auc(x, y, n_trees=scoring.n_trees, n_jobs=scoring.n_jobs, seed=scoring.seed),
    }
    return {name: compute[name]() for name in scoring.metrics}
