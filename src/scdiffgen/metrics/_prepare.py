"""Splits real cells, makes the sources that `evaluate` compares, and maps all of them into one space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import ClassifierMixin

from scdiffgen.metrics._classifiers import fit_labels, label_hits
from scdiffgen.metrics._genes import library_sizes
from scdiffgen.metrics._groups import split_halves
from scdiffgen.metrics._input import CountsLike, labels_of
from scdiffgen.metrics._manifold import nearest_distances
from scdiffgen.metrics._nulls import null_poisson, null_shuffled
from scdiffgen.metrics._scores import Cells
from scdiffgen.metrics._space import ExpressionSpace, normalise

Source: TypeAlias = Literal["generated", "other_real", "null_poisson", "null_shuffled"]
SOURCES: tuple[Source, ...] = ("generated", "other_real", "null_poisson", "null_shuffled")
NULLS = {"null_poisson": null_poisson, "null_shuffled": null_shuffled}
OVERALL = "overall"


@dataclass(frozen=True)
class LabelledCounts:
    """Checked counts over the genes of the space, and the group of every cell."""

    counts: sparse.csr_matrix
    labels: NDArray

    def take(self, rows: NDArray[np.intp]) -> LabelledCounts:
        """Choose cells by position."""
        return LabelledCounts(self.counts[rows], self.labels[rows])


@dataclass(frozen=True)
class RealCells:
    """Real cells by what they are for, and the space fitted on the first."""

    space: ExpressionSpace
    fitted: LabelledCounts
    reference: LabelledCounts
    other: LabelledCounts


def split_real(
    real: CountsLike,
    train: CountsLike | None,
    other_real: CountsLike | None,
    groupby: str | None,
    *,
    layer: str | None,
    n_pcs: int,
    n_top_genes: int | None,
    seed: int,
) -> RealCells:
    """Fit the space on training cells, or on half of the real ones, and halve the rest unless other cells are given."""
    labels = group_labels(real, groupby, "real")
    reference = np.arange(len(labels))
    if train is None:
        fitted, reference = split_halves(labels, seed=seed)
        space = ExpressionSpace.fit(real[fitted], n_pcs=n_pcs, n_top_genes=n_top_genes, layer=layer, seed=seed)
    else:
        space = ExpressionSpace.fit(train, n_pcs=n_pcs, n_top_genes=n_top_genes, layer=layer, seed=seed)
    whole = LabelledCounts(space.counts(real, name="real"), labels)
    fit = whole.take(fitted) if train is None else labelled(train, space, groupby, "train")
    if other_real is not None:
        return RealCells(space, fit, whole.take(reference), labelled(other_real, space, groupby, "other_real"))
    first, second = split_halves(labels[reference], seed=seed + 1)
    return RealCells(space, fit, whole.take(reference[first]), whole.take(reference[second]))


def make_sources(
    real: RealCells, generated: LabelledCounts, wanted: Sequence[Source], *, seed: int
) -> dict[Source, LabelledCounts]:
    """Collect generated and other real cells, and make the nulls wanted from the latter, for the reference's groups."""
    other = real.other
    labels = real.reference.labels[np.isin(real.reference.labels, other.labels)]
    sources: dict[Source, LabelledCounts] = {"generated": generated, "other_real": other}
    for source in wanted:
        if source in NULLS:
            sources[source] = LabelledCounts(NULLS[source](other.counts, other.labels, labels, seed=seed), labels)
    return sources


@dataclass(frozen=True)
class Preparer:
    """Maps labelled counts to `Cells`; without a classifier, or training components, what needs them is NaN."""

    space: ExpressionSpace
    classifier: ClassifierMixin | None
    train_pcs: NDArray[np.float64] | None

    @classmethod
    def fit(cls, real: RealCells, *, with_labels: bool, with_train: bool, seed: int) -> Preparer:
        """Fit the classifier of labels, if there is more than one label, and map the training cells."""
        pcs = real.space.pcs(real.fitted.counts) if with_labels or with_train else None
        several = with_labels and len(np.unique(real.fitted.labels)) > 1
        classifier = fit_labels(pcs, real.fitted.labels, "logistic", seed=seed) if several and pcs is not None else None
        return cls(real.space, classifier, pcs if with_train else None)

    def cells(self, source: LabelledCounts) -> Cells:
        """Map one source."""
        expression = normalise(source.counts)[:, self.space.columns]
        pcs = self.space.project(expression)
        hits = distances = np.full(len(pcs), np.nan)
        if self.classifier is not None and len(pcs):
            hits = label_hits(self.classifier, pcs, source.labels, "generated")
        if self.train_pcs is not None and len(pcs):
            distances = nearest_distances(self.train_pcs, pcs)
        return Cells(pcs, expression, library_sizes(source.counts), hits, distances)


def labelled(cells: CountsLike, space: ExpressionSpace, groupby: str | None, name: str) -> LabelledCounts:
    """Align counts to the space and read the groups."""
    return LabelledCounts(space.counts(cells, name=name), group_labels(cells, groupby, name))


def group_labels(cells: CountsLike, groupby: str | None, name: str) -> NDArray:
    """Group of every cell; without groups, one for all."""
    if groupby is None:
        return np.full(cells.shape[0], OVERALL, dtype=object)
    labels = labels_of(cells, groupby, name)
    if OVERALL in labels:
        raise ValueError(f"obs[{groupby!r}] of `{name}` has a group {OVERALL!r}, the name of the row over all cells.")
    return labels
