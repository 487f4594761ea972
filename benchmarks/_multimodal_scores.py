"""What is measured on RNA and protein: each modality, both together, and protein by protein."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mudata import MuData
from numpy.typing import NDArray
from scipy import stats

from benchmarks._multimodal_data import PROTEIN, RNA, CiteSplit
from benchmarks._multimodal_methods import Counts, counts_of
from benchmarks._scores import N_CORRELATED_GENES, Metric
from scdiffgen.metrics import ExpressionSpace, classifier_auc, gene_correlation_error, mmd

N_PCS = 30

METRICS = {
    "rna_mmd_x1000": Metric("RNA: MMD² x 1000", 0.0, 2),
    "rna_auc_forest_pcs": Metric("RNA: forest AUC", 0.5),
    "protein_mmd_x1000": Metric("protein: MMD² x 1000", 0.0, 2),
    "protein_auc_forest": Metric("protein: forest AUC", 0.5),
    "protein_correlation_error": Metric("protein: correlation error", "limit", 4),
    "joint_auc_forest": Metric("both: forest AUC", 0.5),
    "cross_correlation_error": Metric("gene-protein correlation error", "limit", 4),
    "library_correlation_error": Metric("library size correlation error", "limit", 4),
}


@dataclass(frozen=True)
class JointScorer:
    """Scores cells with RNA and protein against the held-out cells."""

    split: CiteSplit
    spaces: dict[str, ExpressionSpace]
    n_trees: int = 200
    n_jobs: int = 1

    @classmethod
    def fit(cls, split: CiteSplit, *, n_trees: int = 200, n_jobs: int = 1) -> JointScorer:
        """Fit a space of each modality on the training cells."""
        spaces = {
            key: ExpressionSpace.fit(split.train[key].X, n_pcs=min(N_PCS, split.train[key].n_vars - 1))
            for key in (RNA, PROTEIN)
        }
        return cls(split, spaces, n_trees, n_jobs)

    def score(self, counts: Counts) -> dict[str, float]:
        """Score cells on every metric."""
        real = counts_of(self.split.held_out)
        pcs = {key: [space.pcs(cells[key]) for cells in (real, counts)] for key, space in self.spaces.items()}
        protein = [self.spaces[PROTEIN].expression(cells[PROTEIN]) for cells in (real, counts)]
        forest = {"n_trees": self.n_trees, "n_jobs": self.n_jobs}
        both = [np.hstack([pcs[key][side] / pcs[key][0][:, 0].std() for key in pcs]) for side in (0, 1)]
        return {
            "rna_mmd_x1000": 1000 * mmd(*pcs[RNA]),
            "rna_auc_forest_pcs": classifier_auc(*pcs[RNA], **forest),
            "protein_mmd_x1000": 1000 * mmd(*pcs[PROTEIN]),
            "protein_auc_forest": classifier_auc(*protein, **forest),
            "protein_correlation_error": gene_correlation_error(*protein),
            "joint_auc_forest": classifier_auc(*both, **forest),
            "cross_correlation_error": float(np.abs(self._cross(real) - self._cross(counts)).mean()),
            "library_correlation_error": abs(library_correlation(real) - library_correlation(counts)),
        }

    def _cross(self, counts: Counts) -> NDArray[np.float64]:
        """Correlation of the most variable genes with the proteins ``(genes, proteins)``."""
        genes = self.spaces[RNA].most_variable_genes(N_CORRELATED_GENES)
        rna = self.spaces[RNA].expression(counts[RNA])[:, genes]
        return correlation(rna.toarray(), self.spaces[PROTEIN].expression(counts[PROTEIN]).toarray())


def correlation(x: NDArray, y: NDArray) -> NDArray[np.float64]:
    """Pearson correlation of the columns of two matrices; 0 for a constant column."""
    unit = []
    for values in (x, y):
        centred = values - values.mean(axis=0, dtype=np.float64)
        spread = np.sqrt(np.square(centred).mean(axis=0))
        unit.append(centred / np.where(spread > 0, spread, np.inf))
    return unit[0].T @ unit[1] / len(x)


def library_correlation(counts: Counts) -> float:
    """Rank correlation of the depths of both modalities."""
    depth = [np.asarray(matrix.sum(axis=1)).ravel() for matrix in counts.values()]
    return float(stats.spearmanr(*depth).statistic)


def pearson_by_protein(measured: MuData, expected: NDArray[np.float64]) -> dict[str, float]:
    """Pearson correlation over cells of measured and expected counts of each protein, after ``log1p``."""
    real = np.log1p(measured[PROTEIN].X.toarray())
    found = np.diag(correlation(real, np.log1p(expected)))
    return dict(zip(measured[PROTEIN].var_names, map(float, found), strict=True))


def interval_coverage(measured: MuData, draws: NDArray[np.float64]) -> float:
    """Share of the measured counts between the 10 % and the 90 % quantile of draws ``(draws, cells, proteins)``."""
    low, high = np.quantile(draws, [0.1, 0.9], axis=0)
    real = measured[PROTEIN].X.toarray()
    return float(((real >= low) & (real <= high)).mean())
