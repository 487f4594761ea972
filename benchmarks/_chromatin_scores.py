"""What is measured on RNA and chromatin: generated cells, each modality and both; and imputed profiles and cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks._chromatin_data import ATAC, ChromatinSplit, labels_of
from benchmarks._chromatin_methods import Expected
from benchmarks._multimodal_data import RNA
from benchmarks._multimodal_methods import Counts, counts_of
from benchmarks._multimodal_scores import N_PCS, correlation, library_correlation
from benchmarks._scores import Metric
from benchmarks._tables import Column, score_table
from scdiffgen.metrics import ExpressionSpace, classifier_auc, mmd

FEWEST_CELLS, FEWEST_OPEN = 15, 5  # of a label with a profile, of cells in which a scored peak is open

METRICS = {
    "rna_mmd_x1000": Metric("RNA: MMD² x 1000", 0.0, 2),
    "rna_auc_forest_pcs": Metric("RNA: forest AUC", 0.5),
    "peaks_mmd_x1000": Metric("peaks: MMD² x 1000", 0.0, 2),
    "peaks_auc_forest_lsi": Metric("peaks: forest AUC", 0.5),
    "joint_auc_forest": Metric("both: forest AUC", 0.5),
    "cross_correlation_error": Metric("RNA-peak component correlation error", "limit", 4),
    "library_correlation_error": Metric("library size correlation error", "limit", 4),
}
IMPUTATION = {
    "profile_auc": "AUC over peaks of a label's profile",
    "contrast": "Pearson of a label's difference from all",
    "cell_auc": "AUC over cells of a peak",
    "pearson": "Pearson over cells of a gene",
    "pearson_normalised": "the same, normalised",
}


@dataclass(frozen=True)
class ChromatinScorer:
    """Scores cells with RNA and peaks against the held-out cells; peaks in components 2 to 31 of TF-IDF."""

    split: ChromatinSplit
    space: ExpressionSpace
    lsi: Pipeline
    n_trees: int = 200
    n_jobs: int = 1

    @classmethod
    def fit(cls, split: ChromatinSplit, *, n_trees: int = 200, n_jobs: int = 1) -> ChromatinScorer:
        """Fit a space of each modality on the training cells."""
        space = ExpressionSpace.fit(split.train[RNA].X, n_pcs=N_PCS)
        lsi = make_pipeline(TfidfTransformer(sublinear_tf=True), TruncatedSVD(N_PCS + 1, random_state=0))
        return cls(split, space, lsi.fit(is_open(split.train[ATAC].X)), n_trees, n_jobs)

    def score(self, counts: Counts) -> dict[str, float]:
        """Score cells on every metric."""
        cells = counts_of(self.split.held_out), counts
        rna = [self.space.pcs(of[RNA]) for of in cells]
        # The first component follows the number of open peaks.
        peaks = [self.lsi.transform(is_open(of[ATAC]))[:, 1:] for of in cells]
        both = [np.hstack([part[side] / part[0][:, 0].std() for part in (rna, peaks)]) for side in (0, 1)]
        crossed = [correlation(*parts) for parts in zip(rna, peaks, strict=True)]
        forest = {"n_trees": self.n_trees, "n_jobs": self.n_jobs}
        return {
            "rna_mmd_x1000": 1000 * mmd(*rna),
            "rna_auc_forest_pcs": classifier_auc(*rna, **forest),
            "peaks_mmd_x1000": 1000 * mmd(*peaks),
            "peaks_auc_forest_lsi": classifier_auc(*peaks, **forest),
            "joint_auc_forest": classifier_auc(*both, **forest),
            "cross_correlation_error": float(np.abs(crossed[0] - crossed[1]).mean()),
            "library_correlation_error": abs(library_correlation(cells[0]) - library_correlation(counts)),
        }


def imputation_scores(split: ChromatinSplit, target: str, expected: Expected) -> dict[str, float]:
    """Scores of imputed peaks, or of imputed RNA, against what was measured in the same cells."""
    cells = split.without[target]
    measured, labels = sparse.csr_matrix(cells[target].X), labels_of(cells)
    expected = np.maximum(expected, 0)
    scores = {"contrast": contrast_pearson(measured, expected, labels)}
    if target == RNA:
        counts = measured.toarray()
        pairs = {"pearson": (counts, expected), "pearson_normalised": (normalised(counts), normalised(expected))}
        kept = counts.any(axis=0)
        found = {name: np.diag(correlation(*map(np.log1p, pair)))[kept] for name, pair in pairs.items()}
        return scores | {name: float(values.mean()) for name, values in found.items()}
    opened = is_open(measured)
    aucs = auc_by_column(opened.toarray() > 0, expected)
    return scores | {"profile_auc": profile_auc(opened, expected, labels), "cell_auc": float(np.nanmean(aucs))}


def profile_auc(opened: sparse.csr_matrix, expected: Expected, labels: NDArray[np.str_]) -> float:
    """Area under the ROC over (cell, peak) pairs of a label, ranked by its mean imputed profile; mean over labels."""
    areas = []
    for label in frequent(labels):
        rows = labels == label
        profile, n_open = expected[rows].mean(axis=0), np.asarray(opened[rows].sum(axis=0)).ravel()
        truth, weights = np.repeat([1, 0], len(profile)), np.concatenate([n_open, rows.sum() - n_open])
        areas.append(roc_auc_score(truth, np.tile(profile, 2), sample_weight=weights))
    return float(np.mean(areas))


def contrast_pearson(measured: sparse.csr_matrix, expected: Expected, labels: NDArray[np.str_]) -> float:
    """Pearson over columns of how the root share of a label differs from that of all cells; mean over labels."""
    sides = (measured.toarray(), expected)
    found = []
    for label in frequent(labels):
        differences = [root_shares(side[labels == label]) - root_shares(side) for side in sides]
        found.append(correlation(*(difference[:, None] for difference in differences)).item())
    return float(np.mean(found))


def root_shares(counts: Expected) -> NDArray[np.float64]:
    """Square roots of the shares of the columns, whose noise is about the same for all."""
    totals = counts.sum(axis=0)
    return np.sqrt(totals / totals.sum())


def auc_by_column(truth: NDArray[np.bool_], scores: Expected) -> NDArray[np.float64]:
    """Area under the ROC over cells of each column; NaN where fewer than five cells are open, or closed."""
    n_open = truth.sum(axis=0)
    n_closed = len(truth) - n_open
    ranks = stats.rankdata(scores, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        areas = ((ranks * truth).sum(axis=0) - n_open * (n_open + 1) / 2) / (n_open * n_closed)
    return np.where(np.minimum(n_open, n_closed) >= FEWEST_OPEN, areas, np.nan)


def frequent(labels: NDArray[np.str_]) -> list[str]:
    """Labels with enough cells for a profile."""
    names, n_cells = np.unique(labels, return_counts=True)
    return list(names[n_cells >= FEWEST_CELLS])


def is_open(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """1 where a cell has a fragment in a peak."""
    return sparse.csr_matrix(counts > 0, dtype=np.float64)


def normalised(counts: Expected) -> NDArray[np.float64]:
    """Counts at the same depth, 10,000 molecules a cell."""
    return 1e4 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-12)


def imputed_table(result: Mapping[str, Any]) -> str:
    """Scores of imputed peaks, then of imputed RNA: a row a method, a column a score."""
    tables = []
    for target, given in ((ATAC, "peaks from RNA"), (RNA, "RNA from peaks")):
        rows: dict[str, dict[str, list[float]]] = {}
        for row in result["imputation"]:
            if row["target"] == target:
                for key, value in row["scores"].items():
                    rows.setdefault(row["method"], {}).setdefault(key, []).append(value)
        columns = {key: Column(title, 1.0) for key, title in IMPUTATION.items() if key in rows["scdiffgen"]}
        tables.append(score_table(given, columns, rows, "scdiffgen"))
    return "\n\n".join(tables)
