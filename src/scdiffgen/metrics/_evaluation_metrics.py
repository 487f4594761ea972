"""The columns of `evaluate`."""

from __future__ import annotations

import numpy as np

from scdiffgen.metrics._classifiers import N_FOLDS, ClassifierKind, Features
from scdiffgen.metrics._comparison import Metric, Pair, Rows
from scdiffgen.metrics._distances import (
    energy_resampled,
    frechet_resampled,
    median_squared_distance,
    mmd_resampled,
    wasserstein_resampled,
)
from scdiffgen.metrics._genes import STATISTICS, correlation_error_resampled, ks_resampled
from scdiffgen.metrics._manifold import N_NEIGHBOURS, is_too_close, one_nn_hits
from scdiffgen.metrics._resampling import weighted_mean

BALLS = N_NEIGHBOURS + 1  # cells that nearest-neighbour balls need
OF_TRAIN = {"novelty", "too_close"}  # metrics that need training cells
OF_LABELS = {"label_accuracy"}  # and groups
CLASSIFIERS: dict[str, tuple[ClassifierKind, Features]] = {
    "c2st_auc_forest_pcs": ("forest", "pcs"),
    "c2st_auc_forest_genes": ("forest", "expression"),
    "c2st_auc_logistic_genes": ("logistic", "expression"),
}


def _mmd(pair: Pair) -> Rows:
    return mmd_resampled(*pair.pcs, median_squared_distance(pair.real.pcs, seed=pair.settings.seed))


def _one_nn(pair: Pair) -> Rows:
    hits = np.concatenate(one_nn_hits(pair.real.pcs, pair.generated.pcs))
    return weighted_mean(hits, np.hstack([pair.real_weights, pair.generated_weights]))


def _library_size_ks(pair: Pair) -> Rows:
    return ks_resampled(pair.real.library, pair.generated.library, pair.real_weights, pair.generated_weights)


def _gene_correlation(pair: Pair) -> Rows:
    x, y = (cells.expression[:, pair.settings.genes] for cells in (pair.real, pair.generated))
    return correlation_error_resampled(x, y, pair.real_weights, pair.generated_weights)


def _novelty(pair: Pair) -> Rows:
    ratios = [
        np.median(np.repeat(pair.generated.to_train, b.astype(int)))
        / max(np.median(np.repeat(pair.real.to_train, a.astype(int))), 1e-12)
        for a, b in zip(pair.real_weights, pair.generated_weights, strict=True)
    ]
    return np.array(ratios)


def _too_close(pair: Pair) -> Rows:
    return weighted_mean(is_too_close(pair.generated.to_train, pair.real.to_train), pair.generated_weights)


def _c2st(name: str) -> Metric:
    return Metric("closest to", 0.5, lambda pair: pair.auc(*CLASSIFIERS[name]), n_cells=N_FOLDS, highest=1.0)


def _of_genes(name: str) -> Metric:
    if name.endswith("slope"):
        return Metric("closest to", 1.0, lambda pair: pair.gene_statistics[name], lowest=-np.inf)
    return Metric("higher", 1.0, lambda pair: pair.gene_statistics[name], lowest=-1.0, highest=1.0)


METRICS: dict[str, Metric] = {
    "mmd": Metric("lower", 0.0, _mmd, lowest=-np.inf),
    "wasserstein": Metric("lower", "other_real", lambda pair: wasserstein_resampled(*pair.pcs), n_cells=1),
    "energy_distance": Metric("lower", 0.0, lambda pair: energy_resampled(*pair.pcs), lowest=-np.inf),
    "frechet": Metric("lower", "other_real", lambda pair: frechet_resampled(*pair.pcs)),
    **{name: _c2st(name) for name in CLASSIFIERS},
    "one_nn": Metric("closest to", 0.5, _one_nn, highest=1.0),
    "precision": Metric("closest to", "other_real", lambda pair: pair.in_balls["precision"], BALLS, highest=1.0),
    "recall": Metric("higher", "other_real", lambda pair: pair.in_balls["recall"], BALLS, highest=1.0),
    "density": Metric("closest to", "other_real", lambda pair: pair.in_balls["density"], BALLS),
    "coverage": Metric("higher", "other_real", lambda pair: pair.in_balls["coverage"], BALLS, highest=1.0),
    **{name: _of_genes(name) for name in STATISTICS},
    "library_size_ks": Metric("lower", "other_real", _library_size_ks, n_cells=1, highest=1.0),
    "gene_correlation": Metric("lower", "other_real", _gene_correlation, n_cells=3, highest=2.0),
    "label_accuracy": Metric(
        "closest to",
        "other_real",
        lambda pair: weighted_mean(pair.generated.hits, pair.generated_weights),
        n_cells=1,
        highest=1.0,
    ),
    "novelty": Metric("closest to", 1.0, _novelty, n_cells=1),
    "too_close": Metric("closest to", 0.01, _too_close, n_cells=1, highest=1.0),
}
EVALUATION_METRICS = tuple(METRICS)
