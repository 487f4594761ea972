"""The columns of `evaluate`: what each metric is, and how it is computed with its bootstrap on two samples of cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen.metrics._classifiers import N_FOLDS, ClassifierKind, auc_resampled, cross_validated_scores
from scdiffgen.metrics._distances import energy_resampled, frechet_resampled, median_squared_distance, mmd_resampled
from scdiffgen.metrics._genes import (
    STATISTICS,
    correlation_error_resampled,
    gene_moments,
    ks_resampled,
    statistics_resampled,
)
from scdiffgen.metrics._manifold import N_NEIGHBOURS, ball_counts, is_too_close, one_nn_hits
from scdiffgen.metrics._resampling import Weights, weighted_mean
from scdiffgen.metrics._transport import wasserstein_resampled

Rows: TypeAlias = NDArray[np.float64]  # the estimate, then its resamples
CONFIDENCE = 1.96  # standard errors either way: 95 %


class Metric(NamedTuple):
    """What a column says: where it is best, and the range it cannot leave."""

    direction: Literal["lower", "higher", "closest to"]
    ideal: float | str  # "other_real" is the value of that source in the same group
    lowest: float = 0.0
    highest: float = np.inf


METRICS: dict[str, Metric] = {
    "mmd": Metric("lower", 0.0, lowest=-np.inf),
    "wasserstein": Metric("lower", "other_real"),
    "energy_distance": Metric("lower", 0.0, lowest=-np.inf),
    "frechet": Metric("lower", "other_real"),
    "c2st_auc_forest_pcs": Metric("closest to", 0.5, highest=1.0),
    "c2st_auc_forest_genes": Metric("closest to", 0.5, highest=1.0),
    "c2st_auc_logistic_genes": Metric("closest to", 0.5, highest=1.0),
    "one_nn": Metric("closest to", 0.5, highest=1.0),
    "precision": Metric("closest to", "other_real", highest=1.0),
    "recall": Metric("higher", "other_real", highest=1.0),
    "density": Metric("closest to", "other_real"),
    "coverage": Metric("higher", "other_real", highest=1.0),
    "mean_slope": Metric("closest to", 1.0, lowest=-np.inf),
    "mean_correlation": Metric("higher", 1.0, lowest=-1.0, highest=1.0),
    "variance_slope": Metric("closest to", 1.0, lowest=-np.inf),
    "variance_correlation": Metric("higher", 1.0, lowest=-1.0, highest=1.0),
    "zero_fraction_slope": Metric("closest to", 1.0, lowest=-np.inf),
    "zero_fraction_correlation": Metric("higher", 1.0, lowest=-1.0, highest=1.0),
    "library_size_ks": Metric("lower", "other_real", highest=1.0),
    "gene_correlation": Metric("lower", "other_real", highest=2.0),
    "label_accuracy": Metric("closest to", "other_real", highest=1.0),
    "novelty": Metric("closest to", 1.0),
    "too_close": Metric("closest to", 0.01, highest=1.0),
}

EVALUATION_METRICS = tuple(METRICS)

Features: TypeAlias = Literal["pcs", "expression"]
CLASSIFIERS: dict[str, tuple[ClassifierKind, Features]] = {
    "c2st_auc_forest_pcs": ("forest", "pcs"),
    "c2st_auc_forest_genes": ("forest", "expression"),
    "c2st_auc_logistic_genes": ("logistic", "expression"),
}


@dataclass(frozen=True)
class Cells:
    """A sample of cells in every form that a metric needs."""

    pcs: NDArray[np.float64]  # (cells, components)
    expression: sparse.csr_matrix  # (cells, genes)
    library: NDArray[np.float64]  # (cells,)
    hits: NDArray[np.float64]  # classified as its label, (cells,)
    to_train: NDArray[np.float64]  # distance to the nearest training cell, (cells,)

    def take(self, rows: NDArray[np.intp]) -> Cells:
        """Choose cells by position."""
        arrays = (self.pcs, self.expression, self.library, self.hits, self.to_train)
        return Cells(*(array[rows] for array in arrays))


@dataclass(frozen=True)
class Pair:
    """Two samples of equally many cells, weights that resample them, and how to compare them."""

    real: Cells
    generated: Cells
    real_weights: Weights
    generated_weights: Weights
    genes: NDArray[np.intp]  # most variable genes, for the correlation of genes
    n_trees: int
    n_jobs: int
    seed: int

    @property
    def pcs(self) -> tuple[NDArray, NDArray, Weights, Weights]:
        """Components and weights of both sides, as the distances take them."""
        return self.real.pcs, self.generated.pcs, self.real_weights, self.generated_weights


class Block(NamedTuple):
    """Metrics that are computed together, and the cells that they need on a side."""

    names: tuple[str, ...]
    n_cells: int
    compute: Callable[[Pair], dict[str, Rows]]


def score_pair(pair: Pair, metrics: tuple[str, ...]) -> tuple[dict[str, float], list[str]]:
    """Compute the metrics of a pair, with ``_low`` and ``_high`` if it is resampled; and name those short of cells."""
    scores: dict[str, float] = {}
    missing: list[str] = []
    n_cells = pair.real.pcs.shape[0]
    for block in BLOCKS:
        wanted = [name for name in block.names if name in metrics]
        if not wanted:
            continue
        if n_cells < block.n_cells:
            missing += wanted
            continue
        rows = block.compute(pair)
        for name in wanted:
            scores[name] = float(rows[name][0])
            if len(rows[name]) > 1:
                scores[f"{name}_low"], scores[f"{name}_high"] = interval(rows[name], METRICS[name])
    return scores, missing


def interval(rows: Rows, metric: Metric) -> tuple[float, float]:
    """95 % interval: the estimate and 1.96 standard deviations of the resamples either way, within the metric's range.

    Percentiles of the resamples would be off for plug-in statistics, which resampling biases upwards.
    """
    resamples = rows[1:][np.isfinite(rows[1:])]
    margin = CONFIDENCE * float(resamples.std(ddof=1)) if len(resamples) > 1 else float("nan")
    return float(np.maximum(rows[0] - margin, metric.lowest)), float(np.minimum(rows[0] + margin, metric.highest))


def _mmd(pair: Pair) -> dict[str, Rows]:
    return {"mmd": mmd_resampled(*pair.pcs, median_squared_distance(pair.real.pcs, seed=pair.seed))}


def _wasserstein(pair: Pair) -> dict[str, Rows]:
    return {"wasserstein": wasserstein_resampled(*pair.pcs)}


def _energy(pair: Pair) -> dict[str, Rows]:
    return {"energy_distance": energy_resampled(*pair.pcs)}


def _frechet(pair: Pair) -> dict[str, Rows]:
    return {"frechet": frechet_resampled(*pair.pcs)}


def _c2st(name: str) -> Callable[[Pair], dict[str, Rows]]:
    kind, features = CLASSIFIERS[name]

    def compute(pair: Pair) -> dict[str, Rows]:
        real, generated = getattr(pair.real, features), getattr(pair.generated, features)
        options = {"n_trees": pair.n_trees, "n_jobs": pair.n_jobs, "seed": pair.seed}
        folds = cross_validated_scores(real, generated, kind, **options)
        return {name: auc_resampled(folds, pair.real_weights, pair.generated_weights)}

    return compute


def _one_nn(pair: Pair) -> dict[str, Rows]:
    hits = np.concatenate(one_nn_hits(pair.real.pcs, pair.generated.pcs))
    return {"one_nn": weighted_mean(hits, np.hstack([pair.real_weights, pair.generated_weights]))}


def _manifold(pair: Pair) -> dict[str, Rows]:
    balls = ball_counts(pair.real.pcs, pair.generated.pcs, N_NEIGHBOURS)
    return {
        "precision": weighted_mean(balls.real_balls > 0, pair.generated_weights),
        "recall": weighted_mean(balls.generated_balls > 0, pair.real_weights),
        "density": weighted_mean(balls.real_balls / N_NEIGHBOURS, pair.generated_weights),
        "coverage": weighted_mean(balls.covered, pair.real_weights),
    }


def _statistics(pair: Pair) -> dict[str, Rows]:
    return statistics_resampled(
        gene_moments(pair.real.expression, pair.real_weights),
        gene_moments(pair.generated.expression, pair.generated_weights),
    )


def _library(pair: Pair) -> dict[str, Rows]:
    sizes = pair.real.library, pair.generated.library
    return {"library_size_ks": ks_resampled(*sizes, pair.real_weights, pair.generated_weights)}


def _gene_correlation(pair: Pair) -> dict[str, Rows]:
    x, y = pair.real.expression[:, pair.genes], pair.generated.expression[:, pair.genes]
    return {"gene_correlation": correlation_error_resampled(x, y, pair.real_weights, pair.generated_weights)}


def _label_accuracy(pair: Pair) -> dict[str, Rows]:
    return {"label_accuracy": weighted_mean(pair.generated.hits, pair.generated_weights)}


def _novelty(pair: Pair) -> dict[str, Rows]:
    found, expected = pair.generated.to_train, pair.real.to_train
    median = [
        np.median(np.repeat(found, b.astype(int))) / max(np.median(np.repeat(expected, a.astype(int))), 1e-12)
        for a, b in zip(pair.real_weights, pair.generated_weights, strict=True)
    ]
    return {
        "novelty": np.array(median),
        "too_close": weighted_mean(is_too_close(found, expected), pair.generated_weights),
    }


BLOCKS = (
    Block(("mmd",), 2, _mmd),
    Block(("wasserstein",), 1, _wasserstein),
    Block(("energy_distance",), 2, _energy),
    Block(("frechet",), 2, _frechet),
    *(Block((name,), N_FOLDS, _c2st(name)) for name in CLASSIFIERS),
    Block(("one_nn",), 2, _one_nn),
    Block(("precision", "recall", "density", "coverage"), N_NEIGHBOURS + 1, _manifold),
    Block(tuple(f"{s}_{kind}" for s in STATISTICS for kind in ("slope", "correlation")), 2, _statistics),
    Block(("library_size_ks",), 1, _library),
    Block(("gene_correlation",), 3, _gene_correlation),
    Block(("label_accuracy",), 1, _label_accuracy),
    Block(("novelty", "too_close"), 1, _novelty),
)
