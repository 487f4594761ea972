"""Score predicted perturbation responses beside every baseline that applies and the ceiling of real cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from scdiffgen._names import as_names
from scdiffgen.metrics._comparison import Cells, Key, Metric, Pair, Settings, choose_metrics, compare, describe
from scdiffgen.metrics._evaluation_metrics import METRICS
from scdiffgen.metrics._input import Matrix
from scdiffgen.metrics._response import (
    MIN_CELLS,
    GeneTests,
    de_overlap,
    de_pr_auc,
    discrimination_score,
    fold_change_slope,
    fold_change_spearman,
    mean_expression,
    pearson_delta,
    rank_genes,
    sign_agreement,
    weighted_mse,
)
from scdiffgen.metrics._responses import Condition, Controls, HeldOut, Keys, TrainingResponses, Vector
from scdiffgen.metrics._space import ExpressionSpace
from scdiffgen.metrics.baselines import shift_counts

BASELINES = (
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
Predicted: TypeAlias = tuple[Vector, NDArray[np.float64]]  # a mean, and cells in principal components
COLUMNS = ("context", "perturbation", "dose", "prediction", "n_real", "n_predicted", "n_significant")


class Response(NamedTuple):
    """A held-out response and a prediction of it, as means of log expression, (genes,)."""

    real_mean: Vector  # of the reference
    predicted_mean: Vector
    control: Vector
    perturbed: Vector  # mean of the perturbed training cells; NaN without
    tests: GeneTests  # of the reference against control
    siblings: NDArray[np.float64]  # changes of all conditions of the context, (conditions, genes)
    own: int  # the row of this condition among them

    @property
    def changes(self) -> tuple[Vector, Vector]:
        """Real and predicted change against control."""
        return self.real_mean - self.control, self.predicted_mean - self.control

    @property
    def changes_of_perturbed(self) -> tuple[Vector, Vector]:
        """Real and predicted change against the mean of the perturbed training cells."""
        return self.real_mean - self.perturbed, self.predicted_mean - self.perturbed


def _metric(
    direction: Literal["lower", "higher", "closest to"], ideal: float, score: Callable[[Response], float]
) -> Metric:
    return Metric(direction, ideal, lambda pair: np.array([score(pair.response)]), MIN_CELLS)


RESPONSE_METRICS: dict[str, Metric] = {
    "pearson_delta": _metric("higher", 1.0, lambda r: pearson_delta(*r.changes)),
    "pearson_delta_perturbed": _metric("higher", 1.0, lambda r: pearson_delta(*r.changes_of_perturbed)),
    "weighted_mse": _metric("lower", 0.0, lambda r: weighted_mse(*r.changes, r.tests.t)),
    "discrimination": _metric("higher", 1.0, lambda r: discrimination_score(r.siblings, r.changes[1], r.own)),
    "de_overlap": _metric("higher", 1.0, lambda r: de_overlap(*r.changes)),
    "de_pr_auc": _metric("higher", 1.0, lambda r: de_pr_auc(r.tests.significant, r.changes[1])),
    "sign_agreement": _metric("higher", 1.0, lambda r: sign_agreement(*r.changes, r.tests.significant)),
    "fold_change_spearman": _metric("higher", 1.0, lambda r: fold_change_spearman(*r.changes, r.tests.significant)),
    "fold_change_slope": _metric("closest to", 1.0, lambda r: fold_change_slope(*r.changes, r.tests.significant)),
    "energy_distance": METRICS["energy_distance"]._replace(n_cells=MIN_CELLS),
    "wasserstein": METRICS["wasserstein"]._replace(n_cells=MIN_CELLS, ideal="real_half"),
    "c2st_auc": METRICS["c2st_auc_forest_pcs"],
}


def perturbation_report(
    real: AnnData,
    predictions: Mapping[str, AnnData],
    train: AnnData,
    control: AnnData,
    *,
    perturbation_key: str,
    context_key: str | None = None,
    dose_key: str | None = None,
    control_label: str = "control",
    layer: str | None = None,
    metrics: Sequence[str] | None = None,
    baselines: Sequence[str] = BASELINES,
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
    *reference*, which also decides which genes respond: those that scanpy's Wilcoxon test against the controls, with
    tie correction, calls at an adjusted p-value below 0.05.

    Baselines, where they apply:

    - ``"no_change"``: the control cells;
    - ``"train_mean"``: mean change over the training perturbations of the context, of all contexts if it has none;
    - ``"other_contexts"``: mean change of this perturbation in other contexts; ``"nearest_context"``: in the nearest;
    - ``"additive"``: sum of the changes of the parts of a combination;
    - ``"linear"``: `baselines.linear_shift`, if perturbations are genes of the data;
    - ``"latent_pca"``: controls moved in principal components (Lotfollahi et al. 2019, scGen), by the change in other
      contexts or of the parts;
    - ``"dose_interpolation"``: between training doses of this perturbation in this context;
    - ``"real_half"``: the other half of the real perturbed cells, the real-versus-real ceiling.

    Baselines other than the last start from control cells and their library sizes. Predictions should as well:
    predicting from the perturbed cells, or at their library sizes, scores reconstruction.

    Metrics: `pearson_delta`, also against the mean of the training perturbations (``"pearson_delta_perturbed"``);
    `weighted_mse`, weighted by Welch's t; ``"discrimination"``, `discrimination_score` among the conditions of the
    context; `de_overlap`; ``"de_pr_auc"``, average precision of finding the responding genes by the absolute predicted
    change; of the responding genes ``"sign_agreement"``, the fraction predicted in the right direction,
    ``"fold_change_spearman"`` and `fold_change_slope`; and of the cells, in principal components, `energy_distance`,
    `wasserstein` and ``"c2st_auc"``, `classifier_auc`.

    Parameters
    ----------
    real
        Held-out real perturbed counts.
    predictions
        Predicted counts by name, with the same ``obs`` columns as ``real``.
    train
        Training counts, with control cells of every context that has perturbed ones. Space and baselines are fitted on
        them.
    control
        Real control counts of the contexts of ``real``.
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
        Column or columns to compute, by default all, but ``"wasserstein"`` only where POT is installed.
    baselines
        Baseline or baselines to compute.
    baselines_as_counts
        Whether baselines that add a change predict counts, by `baselines.shift_counts`, instead of log expression.
        Expression with something added to every zero is told from real cells at once, and counts are not.
    n_pcs
        Number of principal components of energy distance, Wasserstein distance and classifier.
    n_top_genes
        Number of most variable genes to compare; ``None`` compares all.
    max_cells
        Cells compared of each side by metrics of cells, and control cells that baselines start from.
    n_trees, n_jobs
        Trees and threads of the forest.
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
        If there are too few cells of a condition, or none are predicted; these scores are NaN.

    Examples
    --------
    >>> from scdiffgen.datasets import simulate
    >>> cells = simulate(n_cells=400, n_genes=50, doses=[3.0])
    >>> given = cells.obs["perturbation"]
    >>> guess = cells[given == "A"].copy()
    >>> guess.obs["perturbation"] = "A+B"
    >>> report = perturbation_report(
    ...     cells[given == "A+B"],
    ...     predictions={"A alone": guess},
    ...     train=cells[given != "A+B"],
    ...     control=cells[given == "control"],
    ...     perturbation_key="perturbation",
    ...     layer="counts",
    ...     metrics=["pearson_delta"],
    ... )
    >>> report["prediction"].tolist()
    ['A alone', 'no_change', 'train_mean', 'additive', 'latent_pca', 'real_half']
    """
    baselines = as_names(baselines)
    chosen = choose_metrics(metrics, RESPONSE_METRICS, baselines, BASELINES, "baselines")
    taken = sorted(set(predictions) & set(BASELINES))
    if taken:
        raise ValueError(f"`predictions` has the names of baselines: {taken}. Call them otherwise.")
    keys = Keys(perturbation_key, context_key, dose_key, control_label)
    space = ExpressionSpace.fit(train, n_pcs=n_pcs, n_top_genes=n_top_genes, layer=layer, seed=seed)
    held_out = HeldOut.fit(real, control, space, keys, max_cells=max_cells, seed=seed)
    training = TrainingResponses.fit(train, space, keys, held_out)
    settings = Settings(max_cells, 0, n_trees, n_jobs, seed)
    answers = {name: _by_condition(cells, space, keys, f"predictions[{name!r}]") for name, cells in predictions.items()}

    def pairs() -> Iterator[tuple[Key, Pair]]:
        for condition, cells in held_out.references.items():
            controls = held_out.controls[condition.context]
            shifts = training.baselines(condition, controls.mean)
            predicted = {name: answer(condition) for name, answer in answers.items()}
            predicted |= _baselines(shifts, controls, space, baselines, as_counts=baselines_as_counts, seed=seed)
            if "real_half" in baselines:
                predicted["real_half"] = _predicted(held_out.others[condition], space)
            pcs, tests = space.project(cells), rank_genes(cells, controls.expression)
            perturbed, siblings = controls.mean + shifts.get("train_mean", np.nan), held_out.responses(condition)
            response = Response(held_out.means[condition], perturbed, controls.mean, perturbed, tests, *siblings)
            for name, (mean, predicted_pcs) in predicted.items():
                n_cells = {"n_real": len(pcs), "n_predicted": len(predicted_pcs)}
                n_significant = int(tests.significant.sum())
                key = {**condition._asdict(), "prediction": name, **n_cells, "n_significant": n_significant}
                sides, n = (Cells(pcs), Cells(predicted_pcs)), min(n_cells.values())
                yield key, settings.pair(*sides, n, (seed, seed), response._replace(predicted_mean=mean))

    report = compare(pairs(), chosen, COLUMNS, intervals=False, in_words=_in_words)
    report.attrs = describe(chosen, space, settings, {"baselines_as_counts": baselines_as_counts})
    return report


def _predicted(expression: Matrix, space: ExpressionSpace) -> Predicted:
    """Predict by log expression of cells, (cells, genes)."""
    return mean_expression(expression), space.project(expression)


def _by_condition(cells: AnnData, space: ExpressionSpace, keys: Keys, name: str) -> Callable[[Condition], Predicted]:
    """The predicted cells of one method, condition by condition."""
    conditions, expression = keys.conditions(cells, name), space.expression(cells, name=name)
    return lambda condition: _predicted(expression[conditions.get(condition, np.arange(0))], space)


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
    for name in (name for name in BASELINES if name in shifts and name in wanted):
        if as_counts:
            everywhere = np.zeros(space.n_genes)
            everywhere[space.columns] = shifts[name]
            counts = shift_counts(controls.start, everywhere, seed=seed)
            predicted[name] = _predicted(space.of_counts(counts), space)
        else:
            pcs = controls.start_pcs + shifts[name] @ space.components.T
            predicted[name] = controls.mean + shifts[name], pcs
    known = shifts.get("other_contexts", shifts.get("additive"))
    if known is not None and "latent_pca" in wanted:
        difference = known @ space.components.T  # components are linear: the mean difference is that of the means
        cells = space.reconstruct(space.project(controls.start_expression) + difference)
        predicted["latent_pca"] = _predicted(cells, space)
    return predicted


def _in_words(keys: list[Key]) -> str:
    """Predictions that lack cells."""
    return ", ".join(
        f"{key['prediction']} of {Condition(key['context'], key['perturbation'], key['dose'])} "
        f"({key['n_real']} real, {key['n_predicted']} predicted cells)"
        for key in keys
    )
