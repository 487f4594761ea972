"""Scores of predicted perturbation responses, with baselines and a real-versus-real ceiling."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen._messages import counted, listed, warn_user
from scdiffgen._names import as_names
from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics import _response as scores
from scdiffgen.metrics.baselines import shift_counts
from scdiffgen.responses import UNEQUAL_DEPTH

from ._comparison import ALL, EMPTY, METRICS, Direction, Key, Metric, Pair, Sample, Settings, choose, compare
from ._held_out import Arm, Controls, HeldOut, Keys, TrainingResponses
from ._input import FEWEST_CELLS, Matrix
from ._response import MIN_CELLS, Called, GeneTests, RealResponse, ResponseHeterogeneity, Vector, mean_expression
from ._space import ExpressionSpace

BASELINES = (
    *("no_change", "train_mean", "other_contexts", "nearest_context", "similar_contexts"),
    *("additive", "linear", "latent_pca", "dose_interpolation", "real_half"),
)
SHORT = ("no_change", "train_mean", "similar_contexts", "additive", "dose_interpolation", "real_half")
DISTANCES = ["weighted_mse", "energy_distance", "wasserstein"]  # to compare held-out cells with controls
COLUMNS = ("context", "perturbation", "dose", "prediction", "n_real", "n_predicted", "n_significant")


class Predicted(NamedTuple):
    """Predicted change and, if available, cells as components and counts; ``shift`` is added to their log expression.

    The disjoint change has the first half of the controls as reference, and no cells that start from the second half.
    """

    change: Vector
    disjoint: Vector
    pcs: NDArray[np.float64]
    counts: sparse.csr_matrix | None = None
    shift: Vector | None = None


class Outcome(NamedTuple):
    """Held-out response and its prediction: changes of mean log expression, (genes,)."""

    real: Vector  # change of the reference against control
    predicted: Vector
    disjoint: tuple[Vector, Vector]  # real and predicted changes against disjoint halves of the control
    tests: GeneTests  # tests of the reference against control
    siblings: NDArray[np.float64]  # changes of all conditions of the context, (conditions, genes)
    own: int  # row of this condition in `siblings`
    heterogeneity: Callable[[], ResponseHeterogeneity]


def _metric(direction: Direction, ideal: float, score: Callable[[Outcome], float], n_cells: int = MIN_CELLS) -> Metric:
    return Metric(direction, ideal, lambda pair: np.array([score(pair.response)]), n_cells)


def _of_responding(direction: Direction, score: Callable[[Vector, Vector, Called], float]) -> Metric:
    return _metric(direction, 1.0, lambda r: score(r.real, r.predicted, r.tests.significant))


RESPONSE_METRICS: dict[str, Metric] = {
    "pearson_delta": _metric("higher", 1.0, lambda r: scores.pearson_delta(*r.disjoint)),
    "weighted_mse": _metric("lower", 0.0, lambda r: scores.weighted_mse(r.real, r.predicted, r.tests.t)),
    "discrimination": _metric("higher", 1.0, lambda r: scores.discrimination_score(r.siblings, r.predicted, r.own)),
    "de_overlap": _metric("higher", 1.0, lambda r: scores.de_overlap(r.real, r.predicted)),
    "de_pr_auc": _metric("higher", 1.0, lambda r: scores.de_pr_auc(r.tests.significant, r.predicted)),
    "sign_agreement": _of_responding("higher", scores.sign_agreement),
    "fold_change_spearman": _of_responding("higher", scores.fold_change_spearman),
    "fold_change_slope": _of_responding("closest to", scores.fold_change_slope),
    "response_spread": _metric("closest to", 1.0, lambda r: r.heterogeneity().spread, FEWEST_CELLS),
    "non_responders_error": _metric("lower", 0.0, lambda r: r.heterogeneity().non_responders_error, FEWEST_CELLS),
    "energy_distance": METRICS["energy_distance"]._replace(n_cells=MIN_CELLS),
    "wasserstein": METRICS["wasserstein"]._replace(n_cells=MIN_CELLS, ideal="real_half"),
    "c2st_auc": METRICS["c2st_auc_forest_pcs"],
}
SHORT_METRICS = ("pearson_delta", "de_overlap", "fold_change_slope", "energy_distance", "c2st_auc")


@shared_docs
def perturbation_report(
    real: AnnData,
    predictions: Mapping[str, AnnData],
    train: AnnData,
    control: AnnData,
    *,
    perturbation_key: str,
    context_key: str | None = None,
    dose_key: str | None = None,
    control_label: str | Sequence[str] | None = None,
    layer: str | None = None,
    log_normalised: Sequence[str] = (),
    metrics: Sequence[str] | str = SHORT_METRICS,
    baselines: Sequence[str] | str = SHORT,
    baselines_as_counts: bool = False,
    n_pcs: int = 30,
    max_cells: int = 2000,
    n_trees: int = 100,
    n_jobs: int = 1,
    seed: int = 0,
) -> pd.DataFrame:
    """Score predictions of held-out perturbation responses, with baselines and a real-versus-real ceiling.

    A condition is a perturbation (``"A+B"`` equals ``"B+A"``), in a context such as a cell type, at a dose. Changes are
    differences of mean log(1 + counts per 10,000) against the real control cells of the context. Predictions are
    compared with one half of the real perturbed cells of the condition, the *reference*. A gene responds if
    scanpy's Wilcoxon test of the reference against the controls, with tie correction, has an adjusted p-value below
    0.05.

    Sequencing depth is no response, but changes these means. Cells that are more than 5 % deeper than the other arm, in
    mean library size, are therefore thinned binomially to its depth: real, predicted (unless log-normalised) and
    training cells.

    Baselines, where they apply:

    - ``"no_change"``: the control cells;
    - ``"train_mean"``: mean change over the training perturbations of the context, or of all contexts if it has none;
    - ``"other_contexts"``, ``"nearest_context"``: change by this perturbation in other contexts, or in the nearest one;
    - ``"similar_contexts"``: mean change in other contexts, weighted by similarity;
    - ``"additive"``: sum of the changes by the parts of a combination;
    - ``"linear"``: the linear model of Ahlmann-Eltze et al. (2025), if perturbations are genes of the data;
    - ``"latent_pca"``: latent arithmetic in principal components (as in scGen, Lotfollahi et al. 2019), with the change
      in other contexts or of the parts;
    - ``"dose_interpolation"``: interpolation between training doses of this perturbation in this context;
    - ``"real_half"``: the other half of the real perturbed cells, the real-versus-real ceiling.

    All baselines but the last start from control cells and their library sizes. Predictions should do so, too:
    predicting from the perturbed cells, or at their library sizes, scores reconstruction.

    Metrics: `pearson_delta`, with disjoint halves of the control cells as references of real and predicted changes,
    because a shared reference correlates even random predictions (predicted cells with names of the second half are
    left out here); ``"weighted_mse"``, weighted by Welch's t (Mejia et al. 2025); ``"discrimination"``, 1 minus the
    fraction of other conditions of the context with a larger cosine; ``"de_overlap"`` of the 100 genes with the largest
    changes; over responding genes, ``"de_pr_auc"`` (average precision of their detection), ``"sign_agreement"`` and,
    for at least ten genes, ``"fold_change_spearman"`` and ``"fold_change_slope"`` (below 1 if attenuated);
    and in principal components `energy_distance`, `wasserstein` and ``"c2st_auc"`` (`classifier_auc`).

    Two metrics describe how cells differ in their response. The response of a cell is its projection on the mean real
    change over the responding genes. ``"response_spread"`` is the ratio of its standard deviations over predicted and
    real cells, without sampling noise (molecular cross-validation); it is about 10 % too large for cells with a tenth
    of the molecules of the other cells. ``"non_responders_error"`` is the absolute difference of the shares of
    non-responders: cells with a response below that of 95 % of the control cells.

    Parameters
    ----------
    real
        Held-out real perturbed counts.
    predictions
        Predicted counts by name of the prediction, with the same ``obs`` columns as ``real``. Cells predicted from
        cells of ``control`` must keep their names, as in `predict_perturbation`.
    train
        Training counts, on which space and baselines are fitted, with controls of each context with perturbed cells.
    control
        Real control counts of the contexts of ``real``; treated cells among them are ignored. If they are also training
        cells, responses that were learned in the same context share their noise with the real change.
    perturbation_key, context_key, dose_key
        Columns of ``obs`` with the perturbation, and optionally the context and the dose.
    control_label
        Label, or labels, of control cells; by default the only label of ``control``.
    log_normalised
        Names of predictions whose ``.X`` is log(1 + counts per 10,000 of the genes of ``train``), for methods that do
        not predict counts. Such cells lack sampling noise, which distinguishes them from real cells.
    metrics
        Metric or metrics to compute, or ``"all"`` (``"wasserstein"`` only if POT is installed); by default five.
    baselines
        Baseline or baselines to compute, or ``"all"``; by default the strongest for each type of task, and the ceiling.
    baselines_as_counts
        Whether baselines that add a change predict counts instead of log expression. Log expression with a change added
        to zeros is easily distinguished from real cells.
    {forests}
    {draws}

    Returns
    -------
    One row per condition and prediction: ``context``, ``perturbation``, ``dose``, ``prediction``, ``n_real`` (cells of
    the reference), ``n_predicted``, ``n_significant`` (responding genes), and the metrics, NaN where they are not
    defined. ``.attrs`` holds ``direction`` and ``ideal`` of each metric, and ``settings``.

    Raises
    ------
    ValueError
        If a condition of ``real`` is in ``train``, a context has no controls, a prediction has the name of a baseline,
        has labels that are in neither ``real`` nor ``train``, or has no condition of ``real``.
    TypeError
        If ``predictions`` is not a mapping.

    Warns
    -----
    {warns}
    UserWarning
        If held-out cells of a condition cannot distinguish predictions: no gene responds significantly, or
        ``"real_half"`` is not closer than ``"no_change"`` by any computed distance (``"weighted_mse"``,
        `energy_distance`, `wasserstein`); or mean library sizes of both arms differ more than 1.3-fold, or those of a
        prediction are as far below them.

    Examples
    --------
    >>> from scdiffgen.datasets import simulate
    >>> cells = simulate(n_cells=400, n_genes=50, doses=[3.0])
    >>> given = cells.obs["perturbation"]
    >>> real, train, control = cells[given == "A+B"], cells[given != "A+B"], cells[given == "control"]
    >>> options = {"perturbation_key": "perturbation", "layer": "counts", "metrics": ["pearson_delta"]}
    >>> report = perturbation_report(real, {"perfect": real}, train, control, **options)
    >>> report["prediction"].tolist()
    ['perfect', 'no_change', 'train_mean', 'additive', 'real_half']
    """
    if not isinstance(predictions, Mapping):
        raise TypeError(
            f"`predictions` is of type {type(predictions).__name__}: pass a mapping from names to predicted cells, "
            "such as `{'model': predicted}`."
        )
    baselines = as_names(BASELINES if isinstance(baselines, str) and baselines == ALL else baselines)
    chosen = choose(metrics, RESPONSE_METRICS, baselines, BASELINES, "baselines")
    taken = sorted(set(predictions) & set(BASELINES))
    if taken:
        raise ValueError(f"`predictions` has the names of baselines: {taken}. Rename these predictions.")
    labels = () if control_label is None else tuple(as_names(control_label))
    keys = Keys(perturbation_key, context_key, dose_key, labels).controls(control)
    settings = Settings(layer, n_pcs, max_cells, n_trees=n_trees, n_jobs=n_jobs, seed=seed)
    space = settings.space(train, "train")
    held_out = HeldOut.fit(real, control, space, keys, settings)
    training = TrainingResponses.fit(train, space, keys, held_out, seed)
    logged = as_names(log_normalised)
    if unknown := sorted(set(logged) - set(predictions)):
        raise ValueError(f"`log_normalised` has {unknown}: choose from the predictions {[*predictions]}.")
    answers = {}
    for name, cells in predictions.items():
        shown, read = f"predictions[{name!r}]", Sample.of_log_normalised if name in logged else Sample.of
        answers[name] = keys.conditions(cells, shown), read(space, cells, shown), cells.obs_names
        keys.check_predicted(answers[name][0], shown, {*held_out.references}, training.conditions)
    depths: dict[str, float] = {}  # of predictions, relative to real cells

    def pairs() -> Iterator[tuple[Key, Pair]]:
        for condition, reference in held_out.references.items():
            measured, depth = held_out.controls[condition.context], min(held_out.depths[condition])
            controls, shifts = measured.at(depth, space, settings), training.baselines(condition, measured.mean)
            predicted = {}
            for name, (conditions, whole, names) in answers.items():
                rows = conditions.get(condition, np.arange(0))
                own = whole.take(rows).thinned(space, depth, [seed, 2])
                depths[f"{name} of {condition}"] = own.depth / depth if depth else 1.0
                before = measured if name in logged else controls.at(own.depth, space, settings)
                predicted[name] = _predicted(own, before, ~names[rows].isin(measured.second))
            predicted |= _baselines(shifts, controls, space, baselines, baselines_as_counts, seed)
            if "real_half" in baselines:
                predicted["real_half"] = _predicted(held_out.others[condition], controls)
            tests = scores.rank_genes(reference.expression, controls.cells.expression)
            sides = reference.counts, controls.cells.counts
            responses = RealResponse(*sides, tests.significant, seed)
            change, siblings = held_out.changes[condition], held_out.responses(condition)
            disjoint = held_out.means[condition] - controls.halves[1]
            for name, cells in predicted.items():
                n_cells = len(reference.pcs), len(cells.pcs)
                key = dict(zip(COLUMNS, (*condition, name, *n_cells, int(tests.significant.sum())), strict=True))
                heterogeneity = cache(partial(responses.compare, cells.counts, cells.shift))
                response = Outcome(change, cells.change, (disjoint, cells.disjoint), tests, *siblings, heterogeneity)
                yield key, settings.pair(reference, Sample(cells.pcs), min(n_cells), (seed, seed), response)

    report = compare(pairs(), chosen, COLUMNS, space, settings, _in_words)
    report.attrs["settings"] |= {"baselines_as_counts": baselines_as_counts}
    arms = {str(c): treated / untreated for c, (treated, untreated) in held_out.depths.items() if untreated}
    _warn_of_depths(arms, depths)
    _warn_of_undecided(report)
    return report


def _warn_of_depths(arms: Mapping[str, float], predictions: Mapping[str, float], fold: float = UNEQUAL_DEPTH) -> None:
    """Warn if mean library sizes of treated and control cells differ, or predictions are below both."""
    unequal = [f"{name} ({ratio:.2g}-fold)" for name, ratio in arms.items() if not 1 / fold <= ratio <= fold]
    if unequal:
        warn_user(
            f"Mean library sizes of treated and control cells differ more than {fold}-fold in "
            f"{counted(len(unequal), 'condition')}: {listed(unequal)}. Deeper cells are thinned binomially before "
            "scoring, because sequencing depth is no response."
        )
    shallow = [f"{name} ({ratio:.2g}-fold)" for name, ratio in predictions.items() if ratio < 1 / fold]
    if shallow:
        warn_user(
            f"Mean library sizes of {counted(len(shallow), 'prediction')} are more than {fold}-fold below those of "
            f"real cells: {listed(shallow)}. Distances include this difference: predict at the library sizes of "
            "controls."
        )


def _warn_of_undecided(report: pd.DataFrame) -> None:
    """Warn once of conditions without a responding gene, or with a real half no closer than the controls."""
    undecided = []
    scored = report[report["n_real"] >= MIN_CELLS]  # fewer cells have NaN scores and another warning
    for (context, perturbation, dose), rows in scored.groupby([*COLUMNS[:3]], sort=False, dropna=False):
        distances = rows.set_index("prediction").reindex(["no_change", "real_half"], columns=DISTANCES).dropna(axis=1)
        silent = rows["n_significant"].iloc[0] == 0
        if silent or (distances.size and not distances.diff().loc["real_half"].lt(0).any()):
            condition = Arm(context, perturbation, None if pd.isna(dose) else dose)
            reason = "cannot be told from noise: no responding gene" if silent else "real_half no closer than no_change"
            undecided.append(f"{condition} ({counted(rows['n_real'].iloc[0], 'reference cell')}, {reason})")
    if undecided:
        warn_user(
            f"The held-out cells cannot distinguish predictions of {counted(len(undecided), 'condition')}: "
            f"{listed(undecided)}. Hold out more cells, or stronger responses."
        )


def _predicted(cells: Sample, controls: Controls, apart: NDArray[np.bool_] | None = None) -> Predicted:
    """Compute changes of predicted cells; ``apart`` marks those that do not start from the second half."""
    counts = None if cells.counts is EMPTY else cells.counts  # log-normalised predictions have none
    return Predicted(*_changes(cells.expression, controls, apart), cells.pcs, counts)


def _changes(expression: Matrix, controls: Controls, apart: NDArray[np.bool_] | None) -> tuple[Vector, Vector]:
    disjoint = mean_expression(expression if apart is None else expression[np.flatnonzero(apart)])
    return mean_expression(expression) - controls.mean, disjoint - controls.halves[0]


def _baselines(
    shifts: dict[str, Vector], controls: Controls, space: ExpressionSpace, wanted: list[str], as_counts: bool, seed: int
) -> dict[str, Predicted]:
    """Apply changes to control cells, and add latent arithmetic with the change in other contexts or of the parts."""
    predicted, start, apart = {}, controls.start, controls.start_in_first
    for name in (name for name in BASELINES if name in shifts and name in wanted):
        shift = shifts[name]
        if as_counts:
            counts = shift_counts(start.counts, shift, seed=seed)
            predicted[name] = _predicted(Sample.of(space, counts, name), controls, apart)
        else:
            pcs = start.pcs + shift @ space.components.T
            predicted[name] = Predicted(shift, shift, pcs, start.counts, shift)
    change = shifts.get("other_contexts", shifts.get("additive"))
    if change is not None and "latent_pca" in wanted:
        difference = change @ space.components.T  # components are linear, so differences of means are preserved
        cells = space.reconstruct(start.pcs + difference)
        predicted["latent_pca"] = Predicted(*_changes(cells, controls, apart), space.project(cells))
    return predicted


def _in_words(key: Key) -> tuple[str, str]:
    """Name a prediction, and its condition with the numbers of cells."""
    condition = Arm(key["context"], key["perturbation"], key["dose"])
    return key["prediction"], f"{condition}, {key['n_real']} real, {key['n_predicted']} predicted cells"
