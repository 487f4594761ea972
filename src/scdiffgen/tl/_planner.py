"""Ranking of possible experiments by the expected error of predicted responses, under a Gaussian process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from scdiffgen._arguments import check_whole_number, is_finite_number
from scdiffgen._codes import Code
from scdiffgen._shared_docs import shared_docs
from scdiffgen.responses import MIN_CELLS

if TYPE_CHECKING:
    from scdiffgen.model import TokenDiffusion
    from scdiffgen.responses import Asked, Comparisons, ResponseEstimator

Reals = NDArray[np.float64]
TINY = np.finfo(float).tiny
Treated = frozenset[tuple[int, float]]  # codes and doses of the parts of a treatment
Experiment = tuple[tuple[int, ...], Treated]  # codes of a cell context, and its treatment


class MeasuredResponse(NamedTuple):
    """Summary of the measured response to a treatment, in squared log expression summed over genes."""

    n_contexts: int
    size: float  # mean square
    between: float  # variance between contexts


@shared_docs
def rank_experiments(model: TokenDiffusion | ResponseEstimator, candidates: pd.DataFrame) -> pd.DataFrame:
    """Rank possible experiments by the expected reduction of the prediction error of all of them, per cost.

    An experiment measures the response of a cell context to a perturbation. Responses have a Gaussian process prior,
    conditioned on the measured responses. Its covariance is the product of a Gaussian kernel of contexts, by the
    distances of their control profiles, and a kernel of perturbations, by the parts that they share, the ratio of
    doses and, if registered, feature vectors. The size of a response and the share of it that is common to all contexts
    are estimated from the measured responses. Experiments are chosen greedily: each reduces the expected error most per
    cost, given those ranked before.

    Parameters
    ----------
    model
        A trained model of one AnnData, or an estimator of responses. Controls of all contexts are needed.
    candidates
        One row per possible experiment. The columns are conditions, as in
        :meth:`~scdiffgen.model.TokenDiffusion.generate` (for an estimator ``context``, ``treatment`` and ``dose``), and
        optionally ``n_cells``, the number of treated cells (100 by default), and ``cost`` (by default ``n_cells``).

    Returns
    -------
    The candidates, best first, with ``n_cells``, ``cost``, ``gain``, the expected reduction of the error by this
    experiment after those above it, ``gain_per_cost``, and ``error_left``, the expected error after it. The error is
    the sum over all candidates of the expected squared errors of the response; now it is 1.

    Raises
    ------
    ValueError
        If a condition or label is unknown, a pair is a control or was measured in 20 cells, a context has fewer than 20
        control cells, or a number of cells or cost is not positive.

    Examples
    --------
    >>> import pandas as pd
    >>> from scdiffgen import datasets
    >>> from scdiffgen.responses import ResponseEstimator
    >>> cells = datasets.simulate(n_cells=600, n_genes=50)
    >>> cells = cells[cells.obs["perturbation"].isin(["control", "A"]) | (cells.obs["cell_type"] == "type_0")]
    >>> labels = (cells.obs[name].astype(str) for name in ("cell_type", "batch", "perturbation"))
    >>> estimator = ResponseEstimator.fit(cells.layers["counts"], *labels)
    >>> candidates = pd.DataFrame({"context": ["type_1", "type_2"], "treatment": "B", "n_cells": [100, 900]})
    >>> rank_experiments(estimator, candidates)["context"].tolist()
    ['type_1', 'type_2']
    """
    conditions, n_cells, cost = _checked(candidates)
    predictor, requested = model._requested_responses(conditions)
    table, columns = predictor.comparisons, _shared_columns(predictor.comparisons, requested)
    known, noise, measured = _measured(table, columns)
    asked: list[Experiment] = [(tuple(codes[columns]), frozenset(treatment.items())) for codes, treatment in requested]
    is_known = {*known}
    controls = {codes: _control_cells(table, columns, codes) for codes, _ in (*known, *asked)}
    for row, (codes, treatment) in zip(conditions.to_dict("records"), asked, strict=True):
        reasons = {
            "is a control": not treatment,
            "was already measured": (codes, treatment) in is_known,
            f"has fewer than {MIN_CELLS} control cells in training": controls[codes] is None,
        }
        for reason in (text for text, is_so in reasons.items() if is_so):
            raise ValueError(f"`candidates` has the row {row}, which {reason}: leave it out.")

    order = sorted(range(len(asked)), key=lambda i: (cost[i], n_cells[i], asked[i][0], sorted(asked[i][1])))
    pairs = [*known, *(asked[i] for i in order)]  # in an order that does not depend on that of the rows
    cells, bulks = [x for x in controls.values() if x is not None], predictor.bulks
    variances = [np.average(bulks.log_variance, axis=0, weights=n).sum() for n in cells]
    variance = float(np.mean(variances))  # of a control cell, summed over genes
    position = {codes: place for place, codes in enumerate(controls)}
    places = [position[codes] for codes, _ in pairs]
    similar = _gaussian_kernel(np.array([bulks.mean(n)[0] for n in cells]))[np.ix_(places, places)]
    prior = _prior(pairs, similar, predictor.features, measured, variance / 2)
    new, old = slice(len(known), None), slice(len(known))
    explained = prior[new, old] @ np.linalg.solve(prior[old, old] + np.diag(noise), prior[old, new])
    posterior = prior[new, new] - explained
    chosen, gains = _choose_greedily(posterior, variance / n_cells[order], cost[order])
    rows, gain = np.array(order)[chosen], gains / max(np.trace(posterior), TINY)
    ranked = conditions.iloc[rows].assign(n_cells=n_cells[rows], cost=cost[rows], gain=gain)
    return ranked.assign(gain_per_cost=gain / cost[rows], error_left=1 - gain.cumsum())


def _checked(candidates: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64], Reals]:
    """Split candidates into conditions, numbers of cells and costs; raise if a number is not positive."""
    if not (isinstance(candidates, pd.DataFrame) and len(candidates)):
        raise ValueError("`candidates` is no data frame with rows: pass one row per possible experiment.")
    n_cells = candidates.get("n_cells", pd.Series(100, candidates.index))
    cost = candidates.get("cost", n_cells)
    for value in n_cells:
        check_whole_number("n_cells", value)
    for value in cost:
        if not (is_finite_number(value) and value > 0):
            raise ValueError(f"`cost` is {value!r}: pass positive numbers.")
    conditions = candidates.drop(columns=["n_cells", "cost"], errors="ignore")
    return conditions, n_cells.to_numpy(np.int64), cost.to_numpy(np.float64)


def _shared_columns(table: Comparisons, requested: Sequence[Asked]) -> np.ndarray:
    """Return the columns of the contexts, without batches; raise if they differ between candidates."""
    given = {tuple(table.levels(codes)[0].tolist()) for codes, _ in requested}
    if len(given) > 1:
        raise ValueError("`candidates` gives a condition in some rows only: fill it in, or leave out its column.")
    return np.array(given.pop(), dtype=int)


def _control_cells(table: Comparisons, columns: np.ndarray, codes: tuple[int, ...]) -> Reals | None:
    """Count the control cells ``(groups,)`` of a context; None if there are too few."""
    context = np.full(table.bulks.cell_context.shape[1], Code.MISSING)
    context[columns] = codes
    return table.cells(context, columns)


def _measured(
    table: Comparisons, columns: np.ndarray
) -> tuple[list[Experiment], list[float], dict[Treated, MeasuredResponse]]:
    """Return the measured pairs, their sampling variances summed over genes, and a summary of each treatment."""
    known, noise, summaries = list[Experiment](), list[float](), dict[Treated, MeasuredResponse]()
    for treatment in table.bulks.treatments():
        if (found := table.measured(columns, treatment)) is None:
            continue
        own, sampling = frozenset(treatment.items()), found.variance.sum(1)
        known += [(tuple(codes), own) for codes in found.contexts]
        noise += sampling.tolist()
        size = max(float(np.square(found.change).sum(1).mean() - sampling.mean()), 0.0)
        between = np.square(found.change - found.change.mean(0)).sum() / max(len(sampling) - 1, 1) - sampling.mean()
        summaries[own] = MeasuredResponse(len(sampling), size, float(between))
    return known, noise, summaries


def _prior(
    pairs: Sequence[Experiment],
    similar: Reals,
    features: Reals | None,
    measured: Mapping[Treated, MeasuredResponse],
    size: float,
) -> Reals:
    """Compute the prior covariance ``(pairs, pairs)`` of responses; ``size`` if no response was measured."""
    shared, first = dict[Treated, float](), 0
    for treatment, response in measured.items():
        n, last = response.n_contexts, first + response.n_contexts
        # Contexts with similar profiles share a part of what is specific to contexts.
        independent = (1 - similar[first:last, first:last]).sum() / max(n * (n - 1), 1)
        if response.size * independent > 0:
            specific = np.clip(response.between / (response.size * independent), 0, 1)
            shared[treatment] = (1 - 1 / n) * (1 - specific)
        first = last
    sizes = {treatment: response.size for treatment, response in measured.items()}
    mean_size, mean_shared = (float(np.mean([*x.values()] or [y])) for x, y in ((sizes, size), (shared, 0.0)))
    treatments = [treatment for _, treatment in pairs]
    amplitude = np.sqrt([sizes.get(treatment, mean_size) for treatment in treatments])
    common = np.array([shared.get(treatment, mean_shared) for treatment in treatments])
    of_contexts = np.sqrt(np.outer(common, common)) + np.sqrt(np.outer(1 - common, 1 - common)) * similar
    return np.outer(amplitude, amplitude) * of_contexts * _treatment_kernel(treatments, features)


def _gaussian_kernel(points: Reals) -> Reals:
    """Compute a Gaussian kernel ``(points, points)``, as wide as the median distance between distinct points."""
    distances = pdist(points)
    width = np.median(pdist(np.unique(points, axis=0))) if distances.any() else 1.0
    return np.exp(-((squareform(distances) / width) ** 2))


def _treatment_kernel(treatments: Sequence[Treated], features: Reals | None) -> Reals:
    """Compute the cosine kernel of treatments, by feature vectors or identity and doses of their parts."""
    parts = sorted({part for treatment in treatments for part in treatment})
    codes, doses = (np.array(column) for column in zip(*parts, strict=True))
    alike = (codes[:, None] == codes).astype(float) if features is None else _gaussian_kernel(features[codes])
    low, high = np.minimum.outer(doses, doses), np.maximum.outer(doses, doses)
    alike *= np.sqrt(np.divide(low, high, out=(low == high).astype(float), where=np.isfinite(high)))
    member = np.array([[part in treatment for part in parts] for treatment in treatments], dtype=float)
    kernel = member @ alike @ member.T
    return kernel / np.sqrt(np.outer(kernel.diagonal(), kernel.diagonal()))


def _choose_greedily(covariance: Reals, noise: Reals, cost: Reals) -> tuple[list[int], Reals]:
    """Order experiments by the reduction of the trace of the covariance per cost, given those chosen before."""
    covariance, left, chosen, gains = covariance.copy(), np.arange(len(cost)), list[int](), list[float]()
    while len(left):
        reduction = np.square(covariance[left]).sum(1) / (covariance.diagonal() + noise)[left]
        score = reduction / cost[left]
        best = int(np.argmax(score >= score.max() * (1 - 1e-6)))  # ties by the cost, not by rounding
        row = left[best]
        covariance -= np.outer(covariance[row], covariance[row]) / (covariance[row, row] + noise[row])
        chosen.append(int(row))
        gains.append(float(reduction[best]))
        left = np.delete(left, best)
    return chosen, np.array(gains)
