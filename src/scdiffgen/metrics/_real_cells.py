"""Real cells by what they are for, the sources that are compared with them, and the one space of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen.metrics._classifiers import fit_labels, label_hits
from scdiffgen.metrics._comparison import Cells
from scdiffgen.metrics._genes import library_sizes
from scdiffgen.metrics._input import CountsLike, labels_of
from scdiffgen.metrics._manifold import nearest_distances
from scdiffgen.metrics._resampling import split_halves
from scdiffgen.metrics._space import ExpressionSpace
from scdiffgen.metrics.baselines import null_poisson, null_shuffled

Source: TypeAlias = Literal["generated", "other_real", "null_poisson", "null_shuffled"]
SOURCES: tuple[Source, ...] = ("generated", "other_real", "null_poisson", "null_shuffled")
CONTROLS = {"null_poisson": null_poisson, "null_shuffled": null_shuffled}
OVERALL = "overall"


class Sample(NamedTuple):
    """Checked counts over the genes of the space, and the group of every cell."""

    counts: sparse.csr_matrix
    labels: NDArray

    def take(self, rows: NDArray[np.intp]) -> Sample:
        """Choose cells by position."""
        return Sample(self.counts[rows], self.labels[rows])


def prepare(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None,
    groupby: str | None,
    *,
    other_real: CountsLike | None,
    sources: Sequence[Source],
    layer: str | None,
    n_pcs: int,
    n_top_genes: int | None,
    seed: int,
) -> tuple[ExpressionSpace, dict[str, Sample]]:
    """Fit the space on training or half of the real cells, halve the rest unless other cells are given, add sources.

    The samples are ``"fitted"``, ``"reference"``, the first two sources, and the negative controls asked for: these are
    made of other real cells, for the groups of the reference.
    """
    labels = _groups(real, groupby, "real")
    fitted, rest = (np.arange(0), np.arange(len(labels))) if train is not None else split_halves(labels, seed=seed)
    source = real[fitted] if train is None else train
    space = ExpressionSpace.fit(source, n_pcs=n_pcs, n_top_genes=n_top_genes, layer=layer, seed=seed)

    def sample(cells: CountsLike, name: str) -> Sample:
        return Sample(space.counts(cells, name=name), _groups(cells, groupby, name))

    whole = sample(real, "real")
    samples = {"fitted": whole.take(fitted) if train is None else sample(train, "train")}
    if other_real is None:
        first, second = split_halves(labels[rest], seed=seed + 1)
        samples |= {"reference": whole.take(rest[first]), "other_real": whole.take(rest[second])}
    else:
        samples |= {"reference": whole.take(rest), "other_real": sample(other_real, "other_real")}
    samples["generated"], other = sample(generated, "generated"), samples["other_real"]
    drawn = samples["reference"].labels[np.isin(samples["reference"].labels, other.labels)]
    for name in (name for name in sources if name in CONTROLS):
        samples[name] = Sample(CONTROLS[name](other.counts, other.labels, drawn, seed=seed), drawn)
    return space, samples


def to_cells(
    samples: Mapping[str, Sample], space: ExpressionSpace, *, with_labels: bool, with_train: bool, seed: int
) -> dict[str, Cells]:
    """Map all samples but the fitted one to `Cells`; what needs labels, or training cells, is NaN without them."""
    fitted = samples["fitted"]
    pcs = space.pcs(fitted.counts) if with_labels or with_train else np.empty((0, 0))
    several = with_labels and len(np.unique(fitted.labels)) > 1
    classifier = fit_labels(pcs, fitted.labels, seed=seed) if several else None
    cells = {}
    for name in (name for name in samples if name != "fitted"):
        counts, labels = samples[name]
        expression = space.of_counts(counts)
        found = space.project(expression)
        hits = distances = np.full(len(found), np.nan)
        if classifier is not None and len(found):
            hits = label_hits(classifier, found, labels, "generated")
        if with_train and len(found):
            distances = nearest_distances(pcs, found)
        cells[name] = Cells(found, labels, expression, library_sizes(counts), hits, distances)
    return cells


def _groups(cells: CountsLike, groupby: str | None, name: str) -> NDArray:
    """Group of every cell; without groups, one for all."""
    if groupby is None:
        return np.full(cells.shape[0], OVERALL, dtype=object)
    labels = labels_of(cells, groupby, name)
    if OVERALL in labels:
        raise ValueError(f"obs[{groupby!r}] of `{name}` has a group {OVERALL!r}, the name of the row over all cells.")
    return labels
