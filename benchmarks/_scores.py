"""What is measured: scores of generated cells against the held-out cells."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import KDTree

from benchmarks._data import LABEL, Split
from benchmarks._models import Labels
from scdiffgen.metrics import (
    CopyWarning,
    ExpressionSpace,
    classifier_auc,
    dirichlet_multinomial_nll,
    gene_correlation_error,
    label_accuracy,
    mmd,
    novelty,
    wasserstein,
)
from scdiffgen.metrics._distances import overlap_resampled
from scdiffgen.metrics._genes import mean_distance_resampled
from scdiffgen.metrics._response import LabelContrasts, contrast_slope, label_contrasts
from scdiffgen.model import TokenDiffusion

N_CORRELATED_GENES = 200


@dataclass(frozen=True)
class Metric:
    """A column of a table. ``ideal`` is the best value; ``"limit"`` is what other real cells score."""

    title: str
    ideal: float | Literal["limit"]
    n_digits: int = 3
    table: Literal["distribution", "spread"] = "distribution"  # or what is new, and how cells vary


METRICS = {
    "mmd_x1000": Metric("MMD² x 1000", 0.0, 2),
    "wasserstein": Metric("W2", "limit", 2),
    "wasserstein_by_label": Metric("W2 within labels", "limit", 2),
    "auc_forest_pcs": Metric("forest AUC, PCs", 0.5),
    "auc_forest_genes": Metric("forest AUC, genes", 0.5),
    "auc_logistic_genes": Metric("logistic AUC, genes", 0.5),
    "mean_distance": Metric("distance of gene means", 0.0, 2),
    "zero_fraction_error": Metric("zero fraction error", "limit", 4),
    "gene_correlation_error": Metric("gene correlation error", "limit", 4),
    "label_accuracy": Metric("label accuracy", "limit"),
    "novelty": Metric("novelty", 1.0, 2, "spread"),
    "one_nn": Metric("1-NN accuracy", 0.5, 3, "spread"),
    "precision": Metric("precision", "limit", 3, "spread"),
    "recall": Metric("recall", "limit", 3, "spread"),
    "coverage": Metric("coverage", "limit", 3, "spread"),
    "least_variance_ratio": Metric("least variance ratio", 1.0, 2, "spread"),
    "largest_variance_ratio": Metric("largest variance ratio", 1.0, 2, "spread"),
    "variance_error": Metric("mean absolute log2 ratio", 0.0, 2, "spread"),
    "label_fold_change_slope": Metric("slope of label fold changes", 1.0, 3, "spread"),
}


@dataclass(frozen=True)
class Scorer:
    """Scores cells with the labels of the held-out cells, in their order."""

    split: Split
    space: ExpressionSpace
    contrasts: LabelContrasts
    n_trees: int = 200
    n_jobs: int = 1

    @classmethod
    def fit(cls, split: Split, *, n_trees: int = 200, n_jobs: int = 1) -> Scorer:
        """Fit the space on the training cells."""
        space = ExpressionSpace.fit(split.train.X)
        contrasts = label_contrasts(space.expression(split.train.X), split.train.obs[LABEL].to_numpy(dtype=str))
        return cls(split, space, contrasts, n_trees, n_jobs)

    def score(self, counts: sparse.csr_matrix) -> dict[str, float]:
        """Score cells on every metric."""
        real, labels = self.split.held_out.X, self.split.labels
        pcs, genes = [(to_space(real), to_space(counts)) for to_space in (self.space.pcs, self.space.expression)]
        once = np.ones((1, real.shape[0])), np.ones((1, counts.shape[0]))
        of_label = {"real_labels": labels, "generated_labels": labels}
        forest = {"n_trees": self.n_trees, "n_jobs": self.n_jobs, **of_label}
        known = self.space.pcs(self.split.train.X), self.split.train.obs[LABEL]
        return {
            "mmd_x1000": 1000 * mmd(*pcs),
            "wasserstein": wasserstein(*pcs),
            "wasserstein_by_label": wasserstein_by_label(*pcs, labels),
            "auc_forest_pcs": classifier_auc(*pcs, **forest),
            "auc_forest_genes": classifier_auc(*genes, **forest),
            "auc_logistic_genes": classifier_auc(*genes, classifier="logistic", **of_label),
            "mean_distance": float(mean_distance_resampled(*genes, *once)[0]),
            "zero_fraction_error": zero_fraction_error(real, counts),
            "gene_correlation_error": gene_correlation_error(
                *genes, genes=self.space.most_variable_genes(N_CORRELATED_GENES)
            ),
            "label_accuracy": label_accuracy(pcs[0], labels, pcs[1], labels, *known).generated,
            **spread(*pcs, known[0]),
            "label_fold_change_slope": float(contrast_slope(self.contrasts, *genes, *once, (labels, labels))[0]),
        }


def spread(real: NDArray, generated: NDArray, train: NDArray) -> dict[str, float]:
    """How new generated cells are, whether they lie where real ones do, and how much they vary, by component."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CopyWarning)  # the table says it
        ratio = novelty(real, generated, train).ratio
    overlap = overlap_resampled(real, generated, np.ones((1, len(real))), np.ones((1, len(generated))))
    variance_ratios = generated.var(axis=0) / real.var(axis=0)
    return {
        "novelty": ratio,
        "one_nn": one_nn_accuracy(real, generated),
        **{name: float(overlap[name][0]) for name in ("precision", "recall", "coverage")},
        "least_variance_ratio": float(variance_ratios.min()),
        "largest_variance_ratio": float(variance_ratios.max()),
        "variance_error": float(np.abs(np.log2(variance_ratios)).mean()),
    }


def one_nn_accuracy(x: NDArray, y: NDArray) -> float:
    """Accuracy of leave-one-out nearest neighbours, of which ties count half (Lopez-Paz & Oquab 2017)."""
    trees = KDTree(x), KDTree(y)
    own = np.concatenate([tree.query(tree.data, 2)[0][:, 1] for tree in trees])
    other = np.concatenate([trees[1].query(x)[0], trees[0].query(y)[0]]).ravel()
    return float(((own < other) + 0.5 * (own == other)).mean())


def wasserstein_by_label(real: NDArray, generated: NDArray, labels: Labels) -> float:
    """Mean over labels of the distance within the label, weighted by its cells; labels of both sides are the same."""
    names, n_cells = np.unique(labels, return_counts=True)
    distances = [wasserstein(real[labels == name], generated[labels == name]) for name in names]
    return float(np.average(distances, weights=n_cells))


def zero_fraction_error(real: sparse.csr_matrix, generated: sparse.csr_matrix) -> float:
    """Mean over genes of the absolute difference of the shares of cells without the gene."""
    present = [np.asarray((counts > 0).mean(axis=0)).ravel() for counts in (real, generated)]
    return float(np.abs(present[0] - present[1]).mean())


def likelihoods(model: TokenDiffusion, split: Split, *, seed: int) -> dict[str, float]:
    """Held-out nats per molecule: bound of the model, and of what knows the mean of the label, and how cells vary."""
    n_molecules = float(split.held_out.X.sum())
    bound = model.get_nll_bound(split.held_out.copy(), seed=seed, silent=True)["nll"].sum()
    cells = split.held_out.X, split.labels, split.train.X, split.train.obs[LABEL]
    known = {"multinomial": np.inf, "Dirichlet-multinomial": None}
    nlls = (dirichlet_multinomial_nll(*cells, concentration=number).cells.sum() for number in known.values())
    baselines = {f"{name} at the label mean": nll / n_molecules for name, nll in zip(known, nlls, strict=True)}
    return {"scdiffgen": float(bound / n_molecules), **baselines}
