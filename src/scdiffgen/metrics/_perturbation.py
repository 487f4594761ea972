"""Score predicted perturbation responses beside every baseline that applies and the ceiling of real cells."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from anndata import AnnData

from scdiffgen._names import as_names
from scdiffgen.metrics._baselines import latent_arithmetic
from scdiffgen.metrics._held_out import HeldOut
from scdiffgen.metrics._input import FewCellsWarning
from scdiffgen.metrics._predicted import (
    MIN_CELLS,
    PERTURBATION_METRICS,
    RESPONSE_METRICS,
    Controls,
    Predicted,
    Scoring,
    Target,
    from_expression,
    from_shift,
    from_shift_as_counts,
    score_response,
)
from scdiffgen.metrics._space import ExpressionSpace
from scdiffgen.metrics._targets import Condition, Keys, conditions_of
from scdiffgen.metrics._training import TrainingResponses, Vector
from scdiffgen.metrics._transport import metrics_to_compute

PERTURBATION_BASELINES = (
    "no_change",
    "train_mean",
    "other_contexts",
    "nearest_context",
    "additive",
    "linear",
    "latent_pca",
    "dose_interpolation",
    "real_half",
)
COLUMNS = ("context", "perturbation", "dose", "prediction", "n_real", "n_predicted", "n_significant")


def perturbation_report(
    real: AnnData,
    control: AnnData,
    predictions: Mapping[str, AnnData],
    train: AnnData,
    *,
    perturbation_key: str,
    context_key: str | None = None,
    dose_key: str | None = None,
    control_label: str = "control",
    layer: str | None = None,
    metrics: Sequence[str] | None = None,
    baselines: Sequence[str] = PERTURBATION_BASELINES,
    baselines_as_counts: bool = False,
    n_pcs: int = 30,
    n_top_genes: int | None = None,
    max_cells: int = 2000,
    n_trees: int = 100,
    n_jobs: int = 1,
    seed: int = 0,
) -> pd.DataFrame:
    """Score predicted responses to perturbations that were held out, beside baselines and ceiling.

    A condition is a perturbation (``"A+B"`` and ``"B+A"`` are one), in a context such as a cell type, at a dose.
    Changes are differences of mean log(1 + counts per 10,000) against the real control cells of the context, and genes
    are ranked by them. Everything is compared with one half of the real perturbed cells of the condition, the
    *reference*, which also decides which genes respond.

    Baselines, where they apply:

    - ``"no_change"``: the control cells;
    - ``"train_mean"``: mean change over the training perturbations of the context, of all contexts if it has none;
    - ``"other_contexts"``: mean change of this perturbation in other contexts; ``"nearest_context"``: in the nearest;
    - ``"additive"``: sum of the changes of the parts of a combination;
    - ``"linear"``: `linear_shift`, if perturbations are genes of the data;
    - ``"latent_pca"``: `latent_arithmetic` in principal components, with the change in other contexts or of the parts;
    - ``"dose_interpolation"``: between training doses of this perturbation in this context;
    - ``"real_half"``: the other half of the real perturbed cells, the ceiling.

    Baselines other than the last start from control cells and their library sizes. Predictions should as well:
    predicting from the perturbed cells, or at their library sizes, scores reconstruction.

    Parameters
    ----------
    real
        Held-out real perturbed counts.
    control
        Real control counts of the contexts of ``real``.
    predictions
        Predicted counts by name, with the same ``obs`` columns as ``real``.
    train
        Training counts, with control cells of every context that has perturbed ones. Space and baselines are fitted on
        them.
    perturbation_key
        Column of ``obs`` with the perturbation.
    context_key
        Column of ``obs`` with the context; ``None`` if there is one.
    dose_key
        Column of ``obs`` with one dose a cell; ``None`` without doses.
    control_label
        What the perturbation of control cells is called.
    layer
        Layer that holds the counts; an AnnData without layers, as generated cells are, is read from ``.X``.
    metrics
        Column or columns to compute, by default all of ``PERTURBATION_METRICS``, but ``"wasserstein"`` only where POT
        is installed.
    baselines
        Baseline or baselines to compute, some of ``PERTURBATION_BASELINES``.
    baselines_as_counts
        Whether baselines that add a change predict counts, by `shift_counts`, instead of log expression. Expression
        with something added to every zero is told from real cells at once, and counts are not.
    n_pcs
        Number of principal components of energy distance, Wasserstein distance and classifier.
    n_top_genes
        Number of most variable genes to compare; ``None`` compares all.
    max_cells
        Cells compared of each side by metrics of cells, and control cells that baselines start from.
    n_trees
        Trees of the forest.
    n_jobs
        Threads of the forest.
    seed
        Seed of halves, subsamples, folds and forest.

    Returns
    -------
    A row per condition and prediction: ``context``, ``perturbation``, ``dose``, ``prediction``, ``n_real`` (cells of
    the reference), ``n_predicted``, ``n_significant`` (responding genes), and the metrics. ``.attrs`` holds
    ``direction`` and ``ideal`` of each metric, and ``settings``. Metrics that are not defined, such as the correlation
    of no change, are NaN.

    Raises
    ------
    ValueError
        If a condition of ``real`` is also in ``train``, a context has no controls, or a prediction has the name of a
        baseline.

    Warns
    -----
    UserWarning
        If ``metrics`` is ``None`` and POT is not installed.
    FewCellsWarning
        If there are too few cells of a condition, or none are predicted; these rows are NaN.

    Examples
    --------
    >>> from scdiffgen.datasets import simulate
    >>> cells = simulate(n_cells=400, n_genes=50, doses=[3.0])
    >>> given = cells.obs["perturbation"]
    >>> guess = cells[given == "A"].copy()
    >>> guess.obs["perturbation"] = "A+B"
    >>> report = perturbation_report(
    ...     real=cells[given == "A+B"],
    ...     control=cells[given == "control"],
    ...     predictions={"A alone": guess},
    ...     train=cells[given != "A+B"],
    ...     perturbation_key="perturbation",
    ...     layer="counts",
    ...     metrics=["pearson_delta"],
    ... )
    >>> report["prediction"].tolist()
    ['A alone', 'no_change', 'train_mean', 'additive', 'latent_pca', 'real_half']
    """
    wanted, baselines = metrics_to_compute(metrics, PERTURBATION_METRICS), as_names(baselines)
    _check_choices(wanted, baselines, predictions)
    keys = Keys(perturbation_key, context_key, dose_key, control_label)
    space = ExpressionSpace.fit(train, n_pcs=n_pcs, n_top_genes=n_top_genes, layer=layer, seed=seed)
    held_out = HeldOut.fit(real, control, space, keys, max_cells=max_cells, seed=seed)
    means = {context: controls.mean for context, controls in held_out.controls.items()}
    training = TrainingResponses.fit(train, space, keys, means)
    leaked = [str(condition) for condition in held_out.references if condition in training.means]
    if leaked:
        raise ValueError(
            f"`train` holds {len(leaked)} of {len(held_out.references)} conditions of `real`: {', '.join(leaked[:5])}. "
            "Score conditions that were held out whole; 'A+B' and 'B+A' are one."
        )
    scoring = Scoring(tuple(m for m in RESPONSE_METRICS if m in wanted), max_cells, n_trees, n_jobs, seed)
    answers = {name: _Answers(cells, space, keys, name) for name, cells in predictions.items()}
    rows: list[dict[str, object]] = []
    for condition in held_out.references:
        controls = held_out.controls[condition.context]
        shifts = training.baselines(condition, controls.mean)
        target = held_out.target(condition, controls.mean + shifts.get("train_mean", np.nan))
        predicted = {name: answer.predict(condition) for name, answer in answers.items()}
        predicted |= _baselines(shifts, controls, space, baselines, as_counts=baselines_as_counts, seed=seed)
        if "real_half" in baselines:
            predicted["real_half"] = held_out.other_half(condition)
        rows += [_row(condition, name, target, prediction, scoring) for name, prediction in predicted.items()]
    report = pd.DataFrame(rows, columns=[*COLUMNS, *scoring.metrics])
    _warn_of_few(report)
    report.attrs = {
        "direction": {name: RESPONSE_METRICS[name].direction for name in scoring.metrics},
        "ideal": {name: RESPONSE_METRICS[name].ideal for name in scoring.metrics},
        "settings": {
            "n_genes": len(space.columns),
            "n_pcs": len(space.components),
            "max_cells": max_cells,
            "n_trees": n_trees,
            "baselines_as_counts": baselines_as_counts,
            "seed": seed,
        },
    }
    return report


class _Answers:
    """The predicted cells of one method, by condition."""

    def __init__(self, cells: AnnData, space: ExpressionSpace, keys: Keys, name: str) -> None:
        argument = f"predictions[{name!r}]"
        self.space = space
        self.conditions = conditions_of(cells, keys, argument)
        self.expression = space.expression(cells, name=argument)

    def predict(self, condition: Condition) -> Predicted:
        rows = self.conditions.get(condition, np.arange(0))
        return from_expression(self.expression[rows], self.space)


def _row(condition: Condition, name: str, target: Target, predicted: Predicted, scoring: Scoring) -> dict[str, object]:
    n_real, n_predicted = len(target.pcs), len(predicted.pcs)
    row: dict[str, object] = {**condition._asdict(), "prediction": name, "n_real": n_real, "n_predicted": n_predicted}
    row["n_significant"] = int(target.tests.significant.sum())
    return row | (score_response(target, predicted, scoring) if min(n_real, n_predicted) >= MIN_CELLS else {})


def _baselines(
    shifts: Mapping[str, Vector],
    controls: Controls,
    space: ExpressionSpace,
    wanted: Sequence[str],
    *,
    as_counts: bool,
    seed: int,
) -> dict[str, Predicted]:
    """Turn changes into cells, and add latent arithmetic with the change in other contexts, or else of the parts."""
    predicted = {}
    for name in (name for name in PERTURBATION_BASELINES if name in shifts and name in wanted):
        if as_counts:
            predicted[name] = from_shift_as_counts(shifts[name], controls, space, seed=seed)
        else:
            predicted[name] = from_shift(shifts[name], controls, space)
    known = shifts.get("other_contexts", shifts.get("additive"))
    if known is not None and "latent_pca" in wanted:
        difference = known @ space.components.T  # components are linear: the mean difference is that of the means
        cells = latent_arithmetic(controls.start_expression, difference, space.project, space.reconstruct)
        predicted["latent_pca"] = from_expression(cells, space)
    return predicted


def _check_choices(metrics: Sequence[str], baselines: Sequence[str], predictions: Mapping[str, AnnData]) -> None:
    unknown = sorted(set(metrics) - set(RESPONSE_METRICS)) + sorted(set(baselines) - set(PERTURBATION_BASELINES))
    if unknown:
        raise ValueError(
            f"Unknown metrics or baselines {unknown}. "
            f"Metrics: {PERTURBATION_METRICS}; baselines: {PERTURBATION_BASELINES}."
        )
    taken = sorted(set(predictions) & set(PERTURBATION_BASELINES))
    if taken:
        raise ValueError(f"`predictions` has the names of baselines: {taken}. Call them otherwise.")


def _warn_of_few(report: pd.DataFrame) -> None:
    few = report[report[["n_real", "n_predicted"]].min(axis=1) < MIN_CELLS]
    if len(few):
        named = "; ".join(
            f"{row.prediction} of {Condition(row.context, row.perturbation, row.dose)} "
            f"({row.n_real} real, {row.n_predicted} predicted cells)"
            for row in few.itertuples()
        )
        warnings.warn(f"NaN for want of cells: {named}.", FewCellsWarning, stacklevel=3)
