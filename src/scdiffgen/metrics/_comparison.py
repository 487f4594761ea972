"""The engine under `evaluate` and `perturbation_report`: pairs of samples go in, a table of scores comes out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scdiffgen._names import as_names
from scdiffgen.metrics._classifiers import ClassifierKind, Features, auc_resampled, cross_validated_scores
from scdiffgen.metrics._distances import INSTALL, pot
from scdiffgen.metrics._genes import gene_moments, statistics_resampled
from scdiffgen.metrics._input import FewCellsWarning, Matrix
from scdiffgen.metrics._manifold import N_NEIGHBOURS, overlap_resampled
from scdiffgen.metrics._resampling import Seed, Weights, bootstrap_weights, subsample
from scdiffgen.metrics._space import ExpressionSpace

CONFIDENCE = 1.96  # standard errors either way: 95 %
TRANSPORT = "wasserstein"  # the metric that needs POT
EMPTY = np.empty(0)

Rows: TypeAlias = NDArray[np.float64]  # the estimate, then its resamples
Key: TypeAlias = dict[str, Any]  # the first columns of a row: what is compared, and the numbers of cells


class Cells(NamedTuple):
    """A sample of cells in every form that a metric needs; what none needs is empty."""

    pcs: NDArray[np.float64]  # (cells, components)
    labels: NDArray = EMPTY  # groups, (cells,)
    expression: Matrix = EMPTY  # (cells, genes)
    library: NDArray[np.float64] = EMPTY  # (cells,)
    hits: NDArray[np.float64] = EMPTY  # classified as its label, (cells,)
    to_train: NDArray[np.float64] = EMPTY  # distance to the nearest training cell, (cells,)

    def take(self, rows: NDArray[np.intp]) -> Cells:
        """Choose cells by position."""
        return Cells(*(form if form is EMPTY else form[rows] for form in self))


class Settings(NamedTuple):
    """How samples are compared."""

    max_cells: int
    n_bootstrap: int
    n_trees: int
    n_jobs: int
    seed: int
    genes: NDArray[np.intp] = np.arange(0)  # for the correlation of genes

    def pair(self, real: Cells, generated: Cells, n: int, seeds: tuple[Seed, Seed], response: Any = None) -> Pair:
        """Draw n cells of each side, at most ``max_cells``, and their resamples."""
        n, rng = min(n, self.max_cells), np.random.default_rng(seeds[1])
        x, y = (
            cells.take(subsample(len(cells.pcs), n, seed)) for cells, seed in zip((real, generated), seeds, strict=True)
        )
        weights = [bootstrap_weights(n, self.n_bootstrap, rng) for _ in range(2)]
        return Pair(x, y, weights[0], weights[1], self, response)


@dataclass(frozen=True)
class Pair:
    """Two samples of equally many cells, weights that resample them, and for a perturbation its response."""

    real: Cells
    generated: Cells
    real_weights: Weights
    generated_weights: Weights
    settings: Settings
    response: Any = None

    @property
    def pcs(self) -> tuple[NDArray, NDArray, Weights, Weights]:
        """Components and weights of both sides, as the distances take them."""
        return self.real.pcs, self.generated.pcs, self.real_weights, self.generated_weights

    @cached_property
    def in_balls(self) -> dict[str, Rows]:
        """Precision, recall, density and coverage."""
        return overlap_resampled(*self.pcs, N_NEIGHBOURS)

    @cached_property
    def gene_statistics(self) -> dict[str, Rows]:
        """Agreement of the genes, one by one."""
        return statistics_resampled(
            gene_moments(self.real.expression, self.real_weights),
            gene_moments(self.generated.expression, self.generated_weights),
        )

    def auc(self, kind: ClassifierKind, features: Features) -> Rows:
        """AUC of telling generated from real cells."""
        options = {"n_trees": self.settings.n_trees, "n_jobs": self.settings.n_jobs, "seed": self.settings.seed}
        x, y = getattr(self.real, features), getattr(self.generated, features)
        return auc_resampled(cross_validated_scores(x, y, kind, **options), self.real_weights, self.generated_weights)


class Metric(NamedTuple):
    """A column: where it is best, how it is computed, the cells that it needs of a side, and the range it keeps."""

    direction: Literal["lower", "higher", "closest to"]
    ideal: float | str  # a name is the value of that source
    compute: Callable[[Pair], Rows]
    n_cells: int = 2
    lowest: float = 0.0
    highest: float = np.inf


def choose_metrics(
    asked: Sequence[str] | None, metrics: Mapping[str, Metric], others: Sequence[str], known: Sequence[str], kind: str
) -> dict[str, Metric]:
    """Metrics asked for; ``None`` is all, but transport where POT is not installed. ``others`` are sources, or so."""
    names = [*metrics] if asked is None else as_names(asked)
    if asked is not None and TRANSPORT in names:
        pot()
    if asked is None and find_spec("ot") is None:
        warnings.warn(f"`{TRANSPORT}` is left out, as POT is not installed. Install it with: {INSTALL}", stacklevel=3)
        names.remove(TRANSPORT)
    unknown = sorted(set(names) - set(metrics)) + sorted(set(others) - set(known))
    if unknown:
        raise ValueError(f"Unknown metrics or {kind} {unknown}. Metrics: {[*metrics]}; {kind}: {[*known]}.")
    return {name: metric for name, metric in metrics.items() if name in names}


def compare(
    pairs: Iterable[tuple[Key, Pair]],
    metrics: Mapping[str, Metric],
    columns: Sequence[str],
    *,
    intervals: bool,
    in_words: Callable[[list[Key]], str],
) -> pd.DataFrame:
    """Score all pairs, a row each; warns once of what lacks cells, whose keys ``in_words`` lists."""
    rows: list[Key] = []
    short: dict[tuple[str, ...], list[Key]] = {}
    for key, pair in pairs:
        n = len(pair.real.pcs)
        rows.append(key | _scores(pair, {name: metric for name, metric in metrics.items() if n >= metric.n_cells}))
        lacking = tuple(name for name, metric in metrics.items() if n < metric.n_cells)
        if lacking:
            short.setdefault(lacking, []).append(key)
    if short:
        listed = "; ".join(f"{', '.join(names)} of {in_words(keys)}" for names, keys in short.items())
        warnings.warn(f"NaN for want of cells: {listed}.", FewCellsWarning, stacklevel=3)
    bounds = [f"{name}_{end}" for name in metrics for end in ("low", "high")] if intervals else []
    return pd.DataFrame(rows, columns=[*columns, *metrics, *bounds])


def describe(
    metrics: Mapping[str, Metric], space: ExpressionSpace, settings: Settings, more: Mapping[str, Any]
) -> dict[str, Any]:
    """Where each metric is best, and how samples were compared, as ``.attrs`` hold it."""
    kept = {name: getattr(settings, name) for name in ("max_cells", "n_trees", "seed")}
    return {
        "direction": {name: metric.direction for name, metric in metrics.items()},
        "ideal": {name: metric.ideal for name, metric in metrics.items()},
        "settings": {"n_genes": len(space.columns), "n_pcs": len(space.components), **kept, **more},
    }


def _scores(pair: Pair, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Values of the metrics, with ``_low`` and ``_high`` if the pair is resampled."""
    scores: dict[str, float] = {}
    for name, metric in metrics.items():
        rows = metric.compute(pair)
        scores[name] = float(rows[0])
        if len(rows) > 1:
            scores[f"{name}_low"], scores[f"{name}_high"] = _interval(rows, metric)
    return scores


def _interval(rows: Rows, metric: Metric) -> tuple[float, float]:
    """95 % interval: the estimate and 1.96 standard deviations of the resamples either way, within the metric's range.

    Percentiles of the resamples would be off for plug-in statistics, which resampling biases upwards.
    """
    resamples = rows[1:][np.isfinite(rows[1:])]
    margin = CONFIDENCE * float(resamples.std(ddof=1)) if len(resamples) > 1 else float("nan")
    return float(np.maximum(rows[0] - margin, metric.lowest)), float(np.minimum(rows[0] + margin, metric.highest))
