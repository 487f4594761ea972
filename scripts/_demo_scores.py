"""Scores of the generated cells of the demo, beside other real cells and cells without a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.sparse import csr_matrix

from scdiffgen.metrics import (
    ExpressionSpace,
    classifier_auc,
    label_accuracy,
    mmd,
    split_halves,
    wasserstein,
)
from scdiffgen.metrics.baselines import null_poisson

HOW_TO_READ = """\
  AUC                     a classifier tells the cells from real ones: 0.5 not at all, 1 always
  MMD, Wasserstein        distance between two clouds of cells, in 30 principal components: small is good
  cell type recognised    by a classifier of real cells; more than in real cells means too typical
  other real cells        the other half of the held-out cells: the best that can be reached
  no model                each gene by itself, Poisson at the mean of the cell type: what is to be beaten
So few cells leave an AUC uncertain by about 0.05."""


def compare(held_out: AnnData, generated: AnnData, train: AnnData, label: str) -> pd.DataFrame:
    """Scores against one half of the held-out cells: a row for each metric, a column for what is scored.

    As many cells of each type are taken of all.
    """
    first, second = split_halves(held_out.obs[label])
    real, real_labels = held_out.layers["counts"][first], held_out.obs[label].iloc[first]
    known, known_labels = train.layers["counts"], train.obs[label]
    candidates = {
        "generated cells": (generated.X, generated.obs[label]),
        "other real cells": (held_out.layers["counts"][second], held_out.obs[label].iloc[second]),
        "no model": (null_poisson(known, known_labels, real_labels), real_labels),
    }
    space = ExpressionSpace.fit(known)
    columns = {}
    for name, (counts, labels) in candidates.items():
        chosen = subsample(labels, real_labels.value_counts())
        accuracy = label_accuracy(
            space.pcs(real), real_labels, space.pcs(counts[chosen]), labels.iloc[chosen], space.pcs(known), known_labels
        )
        columns[name] = compare_counts(space, real, counts[chosen]) | {"cell type recognised": accuracy.generated}
    return pd.DataFrame(columns)


def as_text(scores: pd.DataFrame) -> str:
    lines = ["".ljust(26) + "".join(name.rjust(18) for name in scores)]
    lines += [name.ljust(26) + "".join(f"{score:18.2f}" for score in row) for name, row in scores.T.items()]
    return "\n".join(line.rstrip() for line in lines)


def subsample(labels: pd.Series, n_cells: pd.Series) -> np.ndarray:
    """Positions of at most so many cells of each label."""
    rng = np.random.default_rng(0)
    positions = [rng.permutation(np.flatnonzero(labels == label))[:n] for label, n in n_cells.items()]
    return np.concatenate(positions)


def compare_counts(space: ExpressionSpace, real: csr_matrix, candidate: csr_matrix) -> dict[str, float]:
    genes, components = [(to_space(real), to_space(candidate)) for to_space in (space.expression, space.pcs)]
    return {
        "forest AUC, components": classifier_auc(*components, n_trees=100),
        "forest AUC, genes": classifier_auc(*genes, n_trees=100),
        "logistic AUC, genes": classifier_auc(*genes, classifier="logistic"),
        "MMD x 1000": 1000 * mmd(*components),
        "Wasserstein": wasserstein(*components),
    }
